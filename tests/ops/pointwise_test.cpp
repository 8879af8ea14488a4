#include "helpers.h"

TEST_CASE("pow: values and dtypes") {
  const Tensor x = floats({-2, 0, 0.5, 3});
  CHECK(close(values(pow(x, 2)), {4, 0, 0.25, 9}));
  CHECK(close(values(pow(x, 3)), {-8, 0, 0.125, 27}));
  CHECK(close(values(pow(x, 0)), {1, 1, 1, 1}));
  CHECK(close(values(pow(x, -1)), {-0.5, kInf, 2, 1.0 / 3}));
  CHECK(close(values(pow(x, 0.5)), {kNan, 0, std::sqrt(0.5), std::sqrt(3)}));
  CHECK(close(values(pow(2, x)), {0.25, 1, std::sqrt(2), 8}));
  CHECK(close(values(pow(floats({2, 3}), floats({3, 0.5}))), {8, std::sqrt(3)}));
  const Tensor i = tensor({-3, 2});
  CHECK(values(pow(i, 3)) == Values{-27, 8});
  CHECK(pow(i, 2).dtype() == kInt64);
  CHECK(pow(i, 2.0).dtype() == kFloat32);
  CHECK(values(pow(tensor({3037000500}), 2)) == Values{double(int64_t(3037000500ull * 3037000500ull))});  // wraps
  CHECK(has(error_of([&] { pow(i, -1); }), "integers to negative integer powers are not allowed"));       // BI-086
  CHECK(has(error_of([&] { pow(tensor({true}), true); }), "[pow]"));
  Tensor j = clone(i);
  CHECK(values(pow_(j, 2)) == Values{9, 4});
  CHECK(has(error_of([&] { pow_(j, 0.5); }), "can't be cast"));  // BI-080
}

TEST_CASE("pow: gradients") {
  const Tensor x = leaf({0.5, 1.2, 2.0, 0.3}, {2, 2}), e = leaf({0.5, -1.3}), signed_x = leaf({-1.5, 0.7, -0.2});
  CHECK(gradients_hold([](const Tensor& x) { return pow(x, 2); }, {signed_x}));
  CHECK(gradients_hold([](const Tensor& x) { return pow(x, 3); }, {signed_x}));
  CHECK(gradients_hold([](const Tensor& x) { return pow(x, -1.5); }, {x}));
  CHECK(gradients_hold([](const Tensor& x) { return pow(x, 0); }, {x}));
  CHECK(gradients_hold([](const Tensor& e) { return pow(2.5, e); }, {e}));
  CHECK(gradients_hold([](const Tensor& x, const Tensor& e) { return pow(x, e); }, {x, e}));
  CHECK(gradients_hold(
      [](const Tensor& x, const Tensor& e) {
        Tensor y = x * 1.0;
        return pow_(y, e);
      },
      {x, e}));
  CHECK(gradients_hold(
      [](const Tensor& x) {
        Tensor y = x * 1.0;
        return pow_(y, 3);
      },
      {signed_x}));
}

TEST_CASE("pow: no NaN where the gradient is 0") {
  Tensor x = leaf({0, 0, 2}), e = leaf({0, 2, 0});
  sum(pow(x, e)).backward();
  CHECK(values(x.grad()) == Values{0, 0, 0});
  CHECK(close(values(e.grad()), {0, 0, std::log(2)}));
}

TEST_CASE("maximum and minimum: NaN wins, ties share") {
  const Tensor a = floats({1, 2, kNan, 4}), b = floats({2, 2, 1, kNan});
  CHECK(close(values(maximum(a, b)), {2, 2, kNan, kNan}));
  CHECK(close(values(minimum(a, b)), {1, 2, kNan, kNan}));
  CHECK(close(values(fmax(a, b)), {2, 2, 1, 4}));
  CHECK(close(values(fmin(a, b)), {1, 2, 1, 4}));
  CHECK(maximum(tensor({1, 2}), 1.5).dtype() == kFloat32);
  Tensor x = leaf({1, 2, 3}), y = leaf({2, 2, 2});
  sum(maximum(x, y)).backward();
  CHECK(values(x.grad()) == Values{0, 0.5, 1});
  CHECK(values(y.grad()) == Values{1, 0.5, 0});
  const Tensor n = leaf({kNan, 2, 3, kNan}), m = leaf({1, 2, kNan, kNan});
  CHECK(values(grad({sum(fmax(n, m))}, {n})[0]) == Values{0, 0.5, 1, 1});
  CHECK(values(grad({sum(fmin(n, m))}, {m})[0]) == Values{1, 0.5, 0, 0});
  const Tensor u = leaf({1, 5, -2, 0.5}, {2, 2}), v = leaf({2, 0.1});
  for (auto f : std::vector<Tensor (*)(const Operand&, const Operand&)>{maximum, minimum, fmax, fmin})
    CHECK(gradients_hold([f](const Tensor& u, const Tensor& v) { return f(u, v); }, {u, v}));
}

TEST_CASE("remainders and quotients") {
  const Tensor a = tensor({-7, 7, -8, 8}), b = tensor({3, -3, 4, 3});
  CHECK(values(remainder(a, b)) == Values{2, -2, 0, 2});
  CHECK(values(fmod(a, b)) == Values{-1, 1, 0, 2});
  CHECK(values(floor_divide(a, b)) == Values{-3, -3, -2, 2});
  CHECK(close(values(remainder(floats({-7.5, 7.5}), 2)), {0.5, 1.5}));
  CHECK(has(error_of([&] { remainder(a, 0); }), "ZeroDivisionError"));  // BI-082
  CHECK(has(error_of([&] { fmod(a, tensor({1, 2, 0, 1})); }), "position 2"));
  CHECK(close(values(remainder(floats({1}), 0)), {kNan}));
  Tensor c = clone(a);
  CHECK(values(remainder_(c, 5)) == Values{3, 2, 2, 3});
  CHECK(values(fmod_(c, 2)) == Values{1, 0, 0, 1});
  const Tensor x = leaf({-7.3, 7.1}), y = leaf({2.2, -3.1});
  CHECK(gradients_hold([](const Tensor& x, const Tensor& y) { return remainder(x, y); }, {x, y}));
  CHECK(gradients_hold([](const Tensor& x, const Tensor& y) { return fmod(x, y); }, {x, y}));
  CHECK(gradients_hold(
      [](const Tensor& x, const Tensor& y) {
        Tensor z = x * 1.0;
        return remainder_(z, y);
      },
      {x, y}));
}

TEST_CASE("atan2") {
  CHECK(close(values(atan2(floats({1, -1, 0}), floats({-1, -1, 2}))), {2.356194490192345, -2.356194490192345, 0}));
  CHECK(atan2(tensor({1}), tensor({2})).dtype() == kFloat32);
  const Tensor origin = leaf({0, 1}), other = leaf({0, 1});
  CHECK(values(grad({sum(atan2(origin, other))}, {origin})[0]) == Values{0, 0.5});
  const Tensor x = leaf({1, -2, 0.5}), y = leaf({-0.5, 0.3, 2});
  CHECK(gradients_hold([](const Tensor& x, const Tensor& y) { return atan2(x, y); }, {x, y}));
  CHECK(gradients_hold([](const Tensor& x) { return atan2(x, 2.0); }, {x}));
  CHECK(gradients_hold([](const Tensor& x) { return atan2(2.0, x); }, {x}));
  CHECK(gradients_hold(
      [](const Tensor& x, const Tensor& y) {
        Tensor z = x * 1.0;
        return atan2_(z, y);
      },
      {x, y}));
}

TEST_CASE("hypot, copysign, heaviside, float_power: special values and dtypes") {
  CHECK(close(values(hypot(floats({3e30, kInf, kNan, 1e-30}), floats({4e30, kNan, 1, 0}))), {5e30, kInf, kNan, 1e-30},
              1e24));
  CHECK(values(hypot(floats({1e-30}), floats({0})))[0] == double(1e-30f));
  CHECK(std::signbit(values(copysign(floats({1}), -0.0))[0]));
  CHECK(values(copysign(tensor({-3, 0, 4}), -1)) == Values{-3, -0.0, -4});
  CHECK(copysign(tensor({true}), tensor({true})).dtype() == kFloat32);
  CHECK(close(values(heaviside(floats({0, kNan, -1, 2}), floats({5}))), {5, 0, 0, 1}));
  CHECK(has(error_of([] { heaviside(tensor({1}), ones({1})); }), "[heaviside] expected values of dtype int64"));
  CHECK(float_power(tensor({-3, 2}), -1).dtype() == kFloat64);
  CHECK(close(values(float_power(2, tensor({-3, 4}))), {0.125, 16}));
  Tensor i = tensor({2});
  CHECK(has(error_of([&] { float_power_(i, 2); }), "[float_power_]"));
  const Tensor a = leaf({2, -3, 0}), b = leaf({-1, 2, 1});
  CHECK(values(grad({sum(copysign(a, b))}, {a})[0]) == Values{-1, -1, 0});
}

TEST_CASE("review 11: % is remainder, for tensors and numbers on either side, and in place") {
  const Tensor a = tensor({-7, 7, 5}), b = tensor({3, -3, 2});
  CHECK(values(a % 3) == Values{2, 1, 2});
  CHECK(values(a % b) == Values{2, -2, 1});
  CHECK(values(7 % b) == Values{1, -2, 1});
  CHECK(close(values(floats({-7.5, 7.5}) % 2), {0.5, 1.5}));
  CHECK((a % 2.5).dtype() == kFloat32);
  CHECK_THROWS_AS(a % 0, ValueError);
  Tensor c = clone(a);
  c %= 4;
  CHECK(values(c) == Values{1, 3, 1});
  c[Slice(1, None)] %= b[2];
  CHECK(values(c) == Values{1, 1, 1});
  CHECK(values(a[0] % 4) == Values{1});
  CHECK(values(9 % a[2]) == Values{4});
  const Tensor x = leaf({-7.3, 7.1}), y = leaf({2.2, -3.1});
  CHECK(gradients_hold([](const Tensor& x, const Tensor& y) { return x % y + 7.7 % y; }, {x, y}));
}
