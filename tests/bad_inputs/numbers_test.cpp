// Numbers that a dtype cannot hold, and ranges at the ends of int64 and double: the right value or a typed error, never one that wrapped.
#include "refused.h"

namespace {
constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
constexpr double kLargest = std::numeric_limits<double>::max();
const DType kNarrow[] = {kInt8, kUInt8, kInt16, kInt32};

/// The ends of an integer dtype and numbers between.
std::vector<int64_t> samples(DType t) {
  const int bits = int(size_of(t)) * 8;
  if (t == kUInt8) return {0, 1, 44, 100, 255};
  return {-(int64_t(1) << (bits - 1)), -1, 0, 1, 44, 100, (int64_t(1) << (bits - 1)) - 1};
}
Tensor as(const std::vector<int64_t>& v, DType t) { return tensor(v, {.dtype = t}); }
}  // namespace

TEST_CASE("integers compare with any number as it is") {
  const auto hold = [](auto&& op, const std::vector<int64_t>& v, int64_t number, bool swapped) {
    std::vector<bool> out;
    for (int64_t x : v) out.push_back(swapped ? op(number, x) : op(x, number));
    return out;
  };
#define SAME(name, sign)                                                                                   \
  CHECK(name(x, n).to_vector<bool>() == hold([](int64_t a, int64_t b) { return a sign b; }, v, n, false)); \
  CHECK(name(n, x).to_vector<bool>() == hold([](int64_t a, int64_t b) { return a sign b; }, v, n, true))
  for (const DType t : kNarrow)
    for (const int64_t n : {int64_t(356), int64_t(-1), int64_t(-129), int64_t(128), int64_t(256), int64_t(1) << 16,
                            -(int64_t(1) << 40), kMost, kLeast, int64_t(44)}) {
      INFO(name_of(t) << " and " << n);
      const std::vector<int64_t> v = samples(t);
      const Tensor x = as(v, t);
      SAME(eq, ==);
      SAME(ne, !=);
      SAME(lt, <);
      SAME(le, <=);
      SAME(gt, >);
      SAME(ge, >=);
      SAME(logical_and, &&);
      SAME(logical_or, ||);
      Tensor y = x.clone();
      CHECK(values(eq_(y, n)) == values(eq(x, n).to(t)));
    }
#undef SAME
  CHECK(values(lt(as({1, 2}, kInt8).view({2, 1}).expand({2, 3}), 300)) == Values(6, 1));
}

TEST_CASE("a compiled comparison with a number that does not fit is the eager one") {
  auto step = compile([](const Tensor& x) { return lt(x, 356).to(kInt32) + eq(x, -200).to(kInt32) * 2; });
  const Tensor x = as({-128, 100, 127}, kInt8);
  for (int i = 0; i < 3; ++i) CHECK(values(step(x)) == Values{1, 1, 1});
}

TEST_CASE("a device sees numbers that do not fit as the CPU does") {
  if (!cuda::is_available()) SKIP_TEST("no CUDA device");
  for (const DType t : kNarrow)
    for (const int64_t n : {int64_t(356), int64_t(-1), int64_t(1) << 40, kLeast}) {
      const Tensor x = as(samples(t), t), y = x.to(kCUDA);
      for (auto f : std::vector<Tensor (*)(const Operand&, const Operand&)>{eq, ne, lt, le, gt, ge, logical_and, mul,
                                                                            bitwise_or, bitwise_right_shift})
        CHECK(values(f(x, n)) == values(f(y, n)));
      CHECK(values(clamp(x, 0, kMost)) == values(clamp(y, 0, kMost)));
      CHECK(error_of([&] { remainder(y, kMost); }) == error_of([&] { remainder(x, kMost); }));
    }
  CHECK(values(arange(kLeast, kMost, kMost, {.device = kCUDA})) == values(arange(kLeast, kMost, kMost)));
  CHECK(values(linspace(-kLargest, kLargest, 7, {.dtype = kFloat64, .device = kCUDA})) ==
        values(linspace(-kLargest, kLargest, 7, {.dtype = kFloat64})));
}

TEST_CASE("logspace of integers that do not fit") {
  REFUSED(logspace(0, 3, 4, 10, {.dtype = kInt8}), "logspace", "1000", "int8");
  REFUSED(logspace(0, 30, 4, 10, {.dtype = kInt64}), "logspace", "int64");
  CHECK(values(logspace(0, 2, 3, 10, {.dtype = kInt8})) == Values{1, 10, 100});
}

TEST_CASE("arithmetic with a number that does not fit is right modulo 2^n, or refused") {
  const Tensor x = as({-128, -1, 100, 127}, kInt8), u = as({0, 1, 200}, kUInt8);
  CHECK(values(x + 300) == values((x.to(kInt64) + 300).to(kInt8)));
  CHECK(values(x * 300) == values((x.to(kInt64) * 300).to(kInt8)));
  CHECK(values(300 - x) == values((300 - x.to(kInt64)).to(kInt8)));
  CHECK(values(bitwise_and(x, 0xff)) == values(x));
  CHECK(values(u - 1) == Values{255, 0, 199});
  CHECK(values(bitwise_left_shift(x, 256)) == Values{0, 0, 0, 0});
  CHECK(values(bitwise_right_shift(x, 1000)) == Values{-1, -1, 0, 0});
  for (const int64_t n : {int64_t(-1), int64_t(256), kLeast}) {
    CHECK(values(bitwise_left_shift(u, n)) == Values{0, 0, 0});
    CHECK(values(bitwise_right_shift(u, n)) == Values{0, 0, 0});
  }
  CHECK(values(arange(-0.5, 3, 1, {.dtype = kUInt8})) == Values{0, 1, 2, 3});
  for (const int64_t n : {int64_t(300), int64_t(-200), int64_t(1) << 40}) {
    INFO(n);
    REFUSED(div(x, n, "floor"), "div", "int8", "127");
    REFUSED(div(x, n, "trunc"), "div", "int8");
    REFUSED(remainder(x, n), "remainder", "int8");
    REFUSED(fmod(x, n), "fmod", "int8");
    REFUSED(maximum(x, n), "maximum", "int8");
    REFUSED(minimum(n, x), "minimum", "int8");
    if (n > 0) {  // of limits only those matter that elements reach
      REFUSED(clamp(x, n, {}), "clamp", "int8");
      REFUSED(clamp_min(x, n), "clamp_min", "int8");
      REFUSED(hardtanh(x, double(n), double(n)), "hardtanh", "int8");
      CHECK(values(clamp(x, -5, n)) == values(clamp(x, -5, 127)));
      CHECK(values(hardtanh(x, -5, double(n))) == values(clamp(x, -5, 127)));
    } else {
      REFUSED(clamp(x, {}, n), "clamp", "int8");
      REFUSED(clamp_max(x, n), "clamp_max", "int8");
      CHECK(values(clamp(x, n, 5)) == values(clamp(x, -128, 5)));
    }
    if (n > 0) REFUSED(pow(x, n), "pow", "int8");
    if (n > 0) REFUSED(pow(n, abs(x)), "pow", "int8");
    REFUSED(threshold(x, 0, double(n)), "threshold", "int8");
    REFUSED(where(gt(x, 0), x, n), "where", "int8");
    REFUSED(masked_fill(x, gt(x, 0), n), "masked_fill", "int8");
    REFUSED(full({2}, n, {.dtype = kInt8}), "full", "int8");
    REFUSED(full_like(x, n), "full_like", "int8");
    REFUSED(pad(x, {1, 1}, {.value = n}), "pad", "int8");
    Tensor y = x.clone();
    REFUSED(y.fill_(n), "fill_", "int8");
    REFUSED(scatter_(y, 0, tensor({0, 1}), n), "scatter_", "int8");
    REFUSED(index_fill(x, 0, tensor({0, 1}), n), "int8");
    REFUSED((y[0] = n), "int8");
    CHECK(values(y) == values(x));
  }
  REFUSED(remainder(u, 256), "remainder", "256", "uint8");
  REFUSED(where(gt(u, 0), u, -1), "where", "-1", "uint8");
  REFUSED(threshold(u, 1, -2), "threshold", "-2", "uint8");
  CHECK(values(clamp(u, -1, 5)) == Values{0, 1, 5});
}

TEST_CASE("factors with a fraction are none of integers") {
  const Tensor m = ones({2, 2}, {.dtype = kInt64}), b = ones({1, 2, 2}, {.dtype = kInt64}),
               v = ones({2}, {.dtype = kInt64});
  const auto words = {"integral input tensors", "must not be a floating point number", "0.5"};
  const auto refused = [&](auto&& f) {
    for (const AddmmOptions& o : {AddmmOptions{.alpha = 0.5}, AddmmOptions{.beta = 0.5}}) {
      CHECK(missing([&] { f(o); }, words) == "");
      CHECK(missing([&] { f(o); }, {o.alpha.is_float() ? "alpha" : "beta"}) == "");
    }
  };
  refused([&](const AddmmOptions& o) { addr(m, v, v, o); });
  CHECK(missing([&] { add(m, m, 0.5); }, words) == "");
  CHECK(missing([&] { sub(m, m, 0.5); }, words) == "");
  CHECK(missing([&] { addcmul(m, m, m, 0.5); }, words) == "");
  CHECK(missing([&] { index_add(m, 0, tensor({0, 1}), m, 0.5); }, words) == "");
  // Those of the products of matrices are cut off, as the recorded ones of PyTorch are.
  CHECK(values(addmm(m, m, m, {.beta = 2.9, .alpha = 3.9})) == Values(4, 8));
  CHECK(values(baddbmm(b, b, b, {.beta = 0.5, .alpha = 0.5})) == Values(4, 0));
  CHECK(values(addmv(v, m, v, {.beta = 1.5, .alpha = 0.5})) == Values(2, 1));
}

TEST_CASE("arange at the ends of int64, and in dtypes that cannot hold it") {
  CHECK(arange(kMost - 2, kMost).to_vector<int64_t>() == std::vector<int64_t>{kMost - 2, kMost - 1});
  CHECK(arange(kLeast, kLeast + 2).to_vector<int64_t>() == std::vector<int64_t>{kLeast, kLeast + 1});
  CHECK(arange(kMost, kMost - 2, -1).to_vector<int64_t>() == std::vector<int64_t>{kMost, kMost - 1});
  CHECK(arange(kLeast, kMost, kMost).to_vector<int64_t>() == std::vector<int64_t>{kLeast, -1, kMost - 1});
  CHECK(arange(0, kMost, kMost).to_vector<int64_t>() == std::vector<int64_t>{0});
  CHECK(arange(kMost, kLeast, kLeast).to_vector<int64_t>() == std::vector<int64_t>{kMost, -1});
  CHECK(arange(kMost, kMost).numel() == 0);
  REFUSED(arange(kLeast, kMost), "arange", "unsupported range", "18446744073709551616");
  REFUSED(arange(kMost, kMost - 1), "arange", "inconsistent with step sign");
  REFUSED(arange(0, 300, 1, {.dtype = kUInt8}), "arange", "299", "uint8");
  REFUSED(arange(-1, 3, 1, {.dtype = kUInt8}), "arange", "-1", "uint8");
  REFUSED(arange(1e300, 1.1e300, 1e299, {.dtype = kInt64}), "arange", "1e+300", "int64");
  CHECK(arange(0, 256, 1, {.dtype = kUInt8}).numel() == 256);
}

TEST_CASE("linspace at the ends of double, and in dtypes that cannot hold it") {
  for (const int64_t steps : {2, 3, 4, 5, 7, 8, 101}) {
    INFO(steps);
    const Values v = values(linspace(-kLargest, kLargest, steps, {.dtype = kFloat64}));
    CHECK(v.front() == -kLargest);
    CHECK(v.back() == kLargest);
    for (size_t i = 1; i < v.size(); ++i) CHECK((v[i] > v[i - 1] && std::isfinite(v[i])));
    CHECK(std::abs(v[v.size() / 2] + v[v.size() - 1 - v.size() / 2]) <= kLargest * 1e-14);
  }
  REFUSED(linspace(0, 300, 4, {.dtype = kUInt8}), "linspace", "300", "uint8");
  REFUSED(linspace(-1, 3, 4, {.dtype = kUInt8}), "linspace", "-1", "uint8");
  REFUSED(linspace(0, 1e300, 4), "linspace", "1e+300", "float32");
  CHECK(linspace(0, kMost, 2, {.dtype = kInt64}).to_vector<int64_t>() == std::vector<int64_t>{0, kMost});
}

TEST_CASE("histograms at the ends of double") {
  const Tensor x = tensor({-kLargest, 0.0, kLargest});
  REFUSED(histc(x, 4), "histc", "finite");
  REFUSED(histc(x, 4, {.min = -kLargest, .max = kLargest}), "histc", "finite");
}

TEST_CASE("lu_solve takes an order that is one") {
  const Tensor a = tensor({{2.0, 1.0}, {1.0, 3.0}}, {.dtype = kFloat64}), b = ones({2, 1}, {.dtype = kFloat64});
  const auto [lu, order] = linalg::lu_factor(a);
  CHECK(close(values(matmul(a, linalg::lu_solve(lu, order, b))), values(b)));
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{0, 2}, {-1, 0}, {0, 0}, {7, 8}})
    REFUSED(linalg::lu_solve(lu, tensor(wrong, {.dtype = kInt32}), b), "linalg.lu_solve", "each number of [0, 2) once");
  REFUSED(linalg::lu_solve(stack({lu, lu}), stack({order, tensor({1, 1}, {.dtype = kInt32})}), stack({b, b})),
          "lu_solve");
}
