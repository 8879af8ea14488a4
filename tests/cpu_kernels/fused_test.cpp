#include <cstring>
#include <limits>
#include <vector>

#include <tapir/core/parallel.h>
#include <tapir/tapir.h>

#include "../catch.h"
#include "../same_bits.h"
#include "fused_steps.h"

using namespace tapir;
using tapir_tests::same_bits, tapir_tests::Steps;

namespace {

Tensor transposed(const Tensor& x) { return x.t().contiguous().t(); }
/// Loops subtract alpha b. Contracted to one instruction on ARM64, that turns the sign of a NaN among b: there one NaN stands for all.
Tensor one_nan(const Tensor& x) {
#if defined(__aarch64__)
  return where(isnan(x), full({}, std::numeric_limits<double>::quiet_NaN()), x);
#else
  return x;
#endif
}

}  // namespace

TEST_CASE("a fused call reads and writes any strides, and broadcasts") {
  NoGrad off;
  for (const int64_t rows : {1, 3, 70})
    for (const int64_t columns : {1, 5, 65, 700, 3001}) {
      INFO(rows << " x " << columns);
      const Tensor x = randn({rows, columns}), column = randn({rows, 1}), row = randn({columns}), one = randn({});
      const Tensor wide = randn({rows, columns + 3}), apart = wide.narrow(1, 2, columns);
      const Tensor columns_first = transposed(apart);
      for (const bool dense : {true, false}) {
        Tensor y = dense ? empty({rows, columns}) : empty({rows, 2 * columns}).slice(1, 0, 2 * columns, 2);
        Tensor z = dense ? transposed(empty({rows, columns})) : empty({rows, columns});
        Steps s;
        const uint8_t a = s.binary(BinaryOp::Mul, s.load(x), s.load(column));
        const uint8_t b = s.binary(BinaryOp::Add, a, s.load(row));
        const uint8_t c = s.unary(UnaryOp::Tanh, s.binary(BinaryOp::Sub, b, s.load(one)));
        const uint8_t d = s.binary(BinaryOp::Add, c, s.load(columns_first));
        s.store(s.binary(BinaryOp::Mul, d, s.number(3, kFloat32)), y);
        s.store(b, z);
        s.run();
        const Tensor expected = x * column + row;
        CHECK(same_bits(z, expected));
        CHECK(same_bits(y, (tanh(expected - one) + apart) * 3));
      }
    }
}

TEST_CASE("an output that is an input's very view is seen by no load") {
  NoGrad off;
  for (const bool dense : {true, false}) {
    Tensor whole = randn({40, 90}), x = dense ? whole : whole.narrow(1, 3, 70);
    const Tensor before = x.clone();
    Tensor old = empty(x.shape()), sum = empty(x.shape());
    Steps s;
    const uint8_t v = s.load(x);
    const uint8_t twice = s.binary(BinaryOp::Mul, v, s.number(2, kFloat32));
    s.store(twice, x);  // x changes, its old value is stored and used afterwards
    s.store(v, old);
    s.store(s.binary(BinaryOp::Add, twice, v), sum);
    s.run();
    CHECK(same_bits(x, before * 2));
    CHECK(same_bits(old, before));
    CHECK(same_bits(sum, before * 2 + before));
  }
}

TEST_CASE("values of all dtypes are cast, compared and chosen as by the single calls") {
  NoGrad off;
  const Tensor x = randn({33, 77}) * 50;
  for (const DType dtype : {kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    INFO(name_of(dtype));
    Tensor y = empty({33, 77}, {.dtype = dtype}), z = empty({33, 77}), m = empty({33, 77}, {.dtype = kBool});
    Steps s;
    const uint8_t v = s.load(x), low = s.cast(v, dtype), back = s.cast(low, kFloat32);
    const uint8_t above = s.binary(BinaryOp::Gt, back, s.number(0.5, kFloat32), kBool);
    s.store(low, y), s.store(above, m);
    s.store(
        s.add(
            {.kind = FusedKind::Ternary, .op = uint8_t(TernaryOp::Where), .operand = {above, v, back}, .numbers = {1}}),
        z);
    s.run();
    const Tensor rounded = x.to(dtype).to(kFloat32);
    CHECK(same_bits(y, x.to(dtype)));
    CHECK(same_bits(m, rounded > 0.5));
    CHECK(same_bits(z, where(rounded > 0.5, x, rounded)));
  }
}

TEST_CASE("a fused call keeps what dropout keeps, by any number of threads") {
  NoGrad off;
  const int threads = get_num_threads();
  for (const int64_t columns : {7, 513, 4097}) {
    const Tensor x = randn({37, columns});
    Tensor y = empty(x.shape()), mask = empty(x.shape(), {.dtype = kBool}), base = full({}, 5, {.dtype = kInt64});
    backend(x).dropout(context(x),
                       {.y = y, .mask = mask, .x = x, .base = base, .params = {.p = 0.3, .seed = 9, .offset = 11}});
    for (const int n : {1, 4}) {
      set_num_threads(n);
      Tensor kept = empty(x.shape(), {.dtype = kBool});
      Steps s;
      const uint8_t b = s.load(base);
      s.store(s.add({.kind = FusedKind::Keep, .type = kBool, .operand = {b}, .numbers = {0.3, 9, 11}}), kept);
      s.run();
      CHECK(same_bits(kept, mask));
    }
    set_num_threads(threads);
  }
}

TEST_CASE("a long list of steps takes its slots again") {
  NoGrad off;
  const Tensor x = randn({5000}, {.dtype = kFloat64});
  Tensor y = empty(x.shape(), {.dtype = kFloat64});
  Steps s;
  std::vector<uint8_t> values = {s.load(x)};
  Tensor expected = x;
  for (int i = 0; i < 30; ++i)
    values.push_back(s.unary(i % 2 ? UnaryOp::Sigmoid : UnaryOp::Tanh, values.back(), kFloat64));
  uint8_t sum = values[1];
  for (int i = 2; i <= 30; ++i) sum = s.binary(BinaryOp::Add, sum, values[size_t(i)], kFloat64);
  s.store(sum, y);
  s.run();
  Tensor total;
  for (int i = 0; i < 30; ++i) {
    expected = i % 2 ? sigmoid(expected) : tanh(expected);
    total = i ? total + expected : expected;
  }
  CHECK(same_bits(y, total));
}

TEST_CASE("steps in registers give the bits of the loops") {
  NoGrad off;
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t n : {1, 63, 128, 1000, 5001}) {
    INFO(n);
    Tensor x = randn({n}), z = randn({n});
    const double special[] = {0, -0.0, inf, -inf, nan, 1e-40, -1};
    for (int64_t i = 0; i < std::min<int64_t>(n, 49); ++i) x[i].fill_(special[i % 7]), z[i].fill_(special[i / 7]);
    using enum UnaryOp;
    for (const UnaryOp op : {Neg, Abs, Square, Relu, Sqrt, Reciprocal}) {
      Tensor y = empty({n}), twice = empty({n}), alone = empty({n});
      Steps s;
      const uint8_t v = s.unary(op, s.load(x));
      s.store(v, y), s.store(s.unary(op, v), twice);
      s.run();
      backend(x).unary(context(x), {alone, x, {op}});
      CHECK(same_bits(y, alone));
      backend(x).unary(context(x), {alone, y, {op}});
      CHECK(same_bits(twice, alone));
    }
    using B = BinaryOp;
    for (const B op : {B::Add, B::Sub, B::Mul, B::Div, B::Maximum, B::Minimum, B::ReluGrad})
      for (const double number : {2.5, -0.0}) {
        Tensor out[5], alone[5];
        for (int i = 0; i < 5; ++i) out[i] = empty({n}), alone[i] = empty({n});
        Steps s;
        const uint8_t a = s.load(x), b = s.load(z), k = s.number(number, kFloat32);
        const uint8_t v = s.binary(op, a, b),
                      values[] = {v, s.binary(op, v, k), s.binary(op, k, v), s.binary(op, v, v), s.binary(op, b, v)};
        for (int i = 0; i < 5; ++i) s.store(values[i], out[i]);
        s.run();
        const TensorView w(Scalar(number), kFloat32);
        const auto single = [&](int i, const TensorView& l, const TensorView& r) {
          backend(x).binary(context(x), {alone[i], l, r, {op}});
        };
        single(0, x, z), single(1, alone[0], w), single(2, w, alone[0]), single(3, alone[0], alone[0]);
        single(4, z, alone[0]);
        for (int i = 0; i < 5; ++i) CHECK(same_bits(one_nan(out[i]), one_nan(alone[i])));
      }
  }
}

TEST_CASE("what is larger than the caches is written past them, wherever it begins") {
  NoGrad off;
  const Tensor all = randn({4200003}), x = all.narrow(0, 1, 4200001);
  for (const int64_t begin : {0, 1, 16}) {
    Tensor y = empty({4200100}).narrow(0, begin, 4200001), z = empty({4200001}), e = empty({4200001});
    Steps s;
    const uint8_t a = s.load(x), b = s.binary(BinaryOp::Add, s.binary(BinaryOp::Mul, a, a), a);
    s.store(b, y), s.store(s.unary(UnaryOp::Relu, b), z), s.store(s.unary(UnaryOp::Tanh, b), e);
    s.run();
    const Tensor expected = x * x + x;
    CHECK(same_bits(y, expected));
    CHECK(same_bits(z, relu(expected)));
    CHECK(same_bits(e, tanh(expected)));
  }
}
