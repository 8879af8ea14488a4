#include "operands.h"

using namespace kernel_tests;

namespace {
/// The elements that each output reduces, found one by one.
std::vector<std::vector<double>> groups(const Array& x, uint32_t dims, int64_t outputs) {
  std::vector<std::vector<double>> g(static_cast<size_t>(outputs));
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t at = 0, step = 1, flat = i;
    for (int64_t d = x.view.rank; d-- > 0; flat /= x.view.sizes[d]) {
      if (dims >> d & 1) continue;
      at += flat % x.view.sizes[d] * step;
      step *= x.view.sizes[d];
    }
    g[size_t(at)].push_back(x.get(i));
  }
  return g;
}
Shape reduced(const Shape& shape, uint32_t dims) {
  Shape s = shape;
  for (int64_t d = 0; d < s.size(); ++d)
    if (dims >> d & 1) s[d] = 1;
  return s;
}
double naive(const ReduceParams& p, const std::vector<double>& x) {
  using Wide = long double;
  const Wide n = Wide(x.size());
  Wide sum = 0, product = 1, power = 0, squares = 0;
  double largest = -kInf, least = kInf;
  bool any = false, all = true;
  for (const double v : x) {
    sum += v, product *= v, any |= v != 0, all &= v != 0;
    largest = std::max(largest, v), least = std::min(least, v);
    if (p.op == ReduceOp::NormP) power += p.p == 0 ? Wide(v != 0) : std::pow(Wide(std::abs(v)), Wide(p.p));
  }
  Wide log_sum = 0;
  for (const double v : x) {
    squares += (v - sum / n) * (v - sum / n);
    if (p.op == ReduceOp::LogSumExp) log_sum += std::exp(Wide(v - largest));
  }
  switch (p.op) {
    case ReduceOp::Sum:
    case ReduceOp::NanSum: return double(sum);
    case ReduceOp::Mean: return double(sum / n);
    case ReduceOp::Prod: return double(product);
    case ReduceOp::Max: return largest;
    case ReduceOp::Min: return least;
    case ReduceOp::Any: return any;
    case ReduceOp::All: return all;
    case ReduceOp::Var: return double(squares / (n - p.correction));
    case ReduceOp::Std: return double(std::sqrt(squares / (n - p.correction)));
    case ReduceOp::LogSumExp: return double(std::log(log_sum) + largest);
    case ReduceOp::NormP: break;
  }
  if (p.p == kInf) return double(std::max(std::abs(largest), std::abs(least)));
  return double(p.p == 0 ? power : std::pow(power, 1 / p.p));
}
DType result_type(ReduceOp op, DType t) {
  if (op == ReduceOp::Any || op == ReduceOp::All) return kBool;
  const bool sum = op == ReduceOp::Sum || op == ReduceOp::Prod;
  if (sum && !is_floating(t)) return kInt64;
  const bool extreme = op == ReduceOp::Max || op == ReduceOp::Min;
  return is_floating(t) || extreme ? t : kFloat32;
}
void check_reduce(ReduceParams p, DType t, const Shape& shape, Layout layout) {
  Numbers numbers;
  Array x = Array(t, shape, layout).fill(numbers);
  if (p.op == ReduceOp::Prod)
    for (int64_t i = 0; i < x.numel(); ++i)
      x.set(i, numbers.next() % 3 || t == kUInt8 || t == kBool ? 1 : numbers.next() % 2 ? 2 : -1);
  Array out(result_type(p.op, t), reduced(shape, p.dims), layout);
  cpu().reduce(ctx(), {out.view, x.view, p});
  const auto g = groups(x, p.dims, out.numel());
  INFO(int(p.op) << " " << name_of(t) << " " << shape.str() << " dims " << p.dims << " layout " << int(layout));
  const auto exact = [&](int64_t i) { return naive(p, g[size_t(i)]); };
  if (p.op == ReduceOp::LogSumExp && t == kFloat32) {  // a logarithm near 0 is as exact as its argument
    for (int64_t i = 0; i < out.numel(); ++i) REQUIRE(out.get(i) == Approx(exact(i)).epsilon(5e-7).margin(5e-7));
    return;
  }
  REQUIRE(difference(out, exact, t == kFloat64 ? 100 : 4) == "");
}
double reduce_one(ReduceParams p, const std::vector<double>& values, DType t = kFloat32) {
  const Array x = Array(t, {int64_t(values.size())}).fill(values);
  Array out(result_type(p.op, t), {1});
  p.dims = 1;
  cpu().reduce(ctx(), {out.view, x.view, p});
  return out.get(0);
}
}  // namespace

TEST_CASE("reduce: every operation, dtype, set of dimensions and layout") {
  const ReduceOp ops[] = {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Prod,     ReduceOp::Max,
                          ReduceOp::Min, ReduceOp::Any,  ReduceOp::All,      ReduceOp::NormP,
                          ReduceOp::Var, ReduceOp::Std,  ReduceOp::LogSumExp};
  for (const ReduceOp op : ops)
    for (const DType t : kAllDTypes)
      for (const Layout layout : {Layout::Dense, Layout::Reversed, Layout::Gaps, Layout::Repeated})
        for (const Shape& shape : {Shape{5, 9, 6}, Shape{2, 70, 3}, Shape{40, 3, 1}})
          for (uint32_t dims = 0; dims < 8; ++dims) {
            if (op == ReduceOp::Prod && dims == 7) continue;  // 2^100 is no float16
            if ((op == ReduceOp::Var || op == ReduceOp::Std) && layout == Layout::Repeated)
              continue;  // 0 but for rounding
            check_reduce({op, dims}, t, shape, layout);
          }
}

TEST_CASE("reduce: norms") {
  for (const double p : {0.0, 0.5, 1.0, 2.0, 3.0, kInf})
    for (const DType t : kFloats)
      for (const Layout layout : kLayouts)
        for (uint32_t dims = 1; dims < 4; ++dims) check_reduce({ReduceOp::NormP, dims, p}, t, {33, 40}, layout);
  CHECK(reduce_one({ReduceOp::NormP, 1, -kInf}, {3, -2, 5}) == 2);
  CHECK(std::isnan(reduce_one({ReduceOp::NormP, 1, kInf}, {1, kNaN, 2})));
}

TEST_CASE("reduce: long rows, many rows, 16 dimensions, no dimensions") {
  for (const Layout layout : kLayouts)
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Var, ReduceOp::LogSumExp}) {
      for (uint32_t dims = 1; dims < 4; ++dims) {
        check_reduce({op, dims}, kFloat32, {3, 70001}, layout);
        check_reduce({op, dims}, kFloat64, {1100, 700}, layout);
      }
      check_reduce({op, 0b101}, kFloat32, {9, 30, 784}, layout);
      check_reduce({op, 0x5a5a}, kFloat64, {2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 3}, layout);
      if (op != ReduceOp::Var) check_reduce({op, 0}, kFloat32, {}, layout);
    }
}

TEST_CASE("reduce: nothing to reduce gives the neutral element") {
  for (const uint32_t dims : {1u, 2u, 3u}) {
    const auto value = [&](ReduceOp op, DType t, const Shape& shape) {
      Array x(t, shape), out(result_type(op, t), reduced(shape, dims));
      cpu().reduce(ctx(), {out.view, x.view, {op, dims}});
      return out.numel() ? out.get(out.numel() - 1) : -123;
    };
    const Shape shape = dims == 1 ? Shape{0, 600} : Shape{600, 0};
    CHECK(value(ReduceOp::Sum, kFloat32, shape) == 0);
    CHECK(value(ReduceOp::Sum, kInt32, shape) == 0);
    CHECK(value(ReduceOp::Prod, kFloat32, shape) == 1);
    CHECK(std::isnan(value(ReduceOp::Mean, kFloat32, shape)));
    CHECK(value(ReduceOp::Any, kBool, shape) == 0);
    CHECK(value(ReduceOp::All, kFloat16, shape) == 1);
    CHECK(std::isnan(value(ReduceOp::Var, kFloat64, shape)));
    CHECK(value(ReduceOp::LogSumExp, kFloat32, shape) == -kInf);
    CHECK(value(ReduceOp::NormP, kFloat32, shape) == 0);
    if (dims != 3) CHECK(value(ReduceOp::Sum, kFloat32, {0, 0}) == (-123));
  }
}

TEST_CASE("reduce: sums keep what float32 alone would lose") {
  Array ones(kFloat32, {1 << 24 | 1}), out(kFloat32, {1});
  cpu().fill(ctx(), {ones.view, 1});
  cpu().reduce(ctx(), {out.view, ones.view, {ReduceOp::Sum, 1}});
  CHECK(out.get(0) == 16777216);  // 2^24 + 1 rounds to even
  TensorView many = Array(kFloat32, {100000000}, Layout::Repeated).view;
  float one = 1;
  many.data = &one;
  cpu().reduce(ctx(), {out.view, many, {ReduceOp::Mean, 1}});
  CHECK(out.get(0) == 1);
  Array halves(kFloat16, {100000}), half(kFloat16, {1}), sum(kFloat32, {1});
  cpu().fill(ctx(), {halves.view, 0.5});
  cpu().reduce(ctx(), {half.view, halves.view, {ReduceOp::Sum, 1}});
  CHECK(half.get(0) == 49984);  // float16 has multiples of 32 here, and 50000 lies between two: the even one
  cpu().reduce(ctx(), {sum.view, halves.view, {ReduceOp::Sum, 1}});
  CHECK(sum.get(0) == 50000);
  const Array bytes = Array(kUInt8, {1000}).fill({255.0});
  Array total(kInt64, {1});
  cpu().reduce(ctx(), {total.view, bytes.view, {ReduceOp::Sum, 1}});
  CHECK(total.get(0) == 255000);
  Numbers numbers;
  Array columns(kFloat64, {3000, 300}), row(kFloat64, {1, 300});
  for (int64_t i = 0; i < columns.numel(); ++i) columns.set(i, double(numbers.next()) * 1e-3);
  cpu().reduce(ctx(), {row.view, columns.view, {ReduceOp::Sum, 1}});
  for (int64_t j = 0; j < 300; ++j) {
    long double exact = 0;
    for (int64_t i = 0; i < 3000; ++i) exact += columns.get(i * 300 + j);
    CHECK(std::abs(double((row.get(j) - exact) / exact)) < 1e-15);
  }
}

TEST_CASE("reduce: elements that repeat are read once") {
  const int64_t times = int64_t(1) << 40;  // reading all would take an hour
  const std::vector<double> values = {1, -2, 4};
  const Array row = Array(kFloat32, {1, 3}).fill(values), odd = Array(kInt64, {1, 1}).fill({-3.0});
  TensorView x = row.view;
  x.sizes[0] = times, x.strides[0] = 0;
  const auto reduced_to = [&](ReduceParams p, const Shape& shape, DType t) {
    Array out(t, shape);
    cpu().reduce(ctx(), {out.view, x, p});
    return out;
  };
  for (int64_t j = 0; j < 3; ++j) {
    const Shape columns = {1, 3};
    const double value = values[size_t(j)];
    CHECK(reduced_to({ReduceOp::Sum, 1}, columns, kFloat32).get(j) == value * 0x1p40);
    CHECK(reduced_to({ReduceOp::Mean, 1}, columns, kFloat32).get(j) == value);
    CHECK(reduced_to({ReduceOp::Max, 1}, columns, kFloat32).get(j) == value);
    CHECK(reduced_to({ReduceOp::Var, 1}, columns, kFloat32).get(j) == 0);
    CHECK(reduced_to({ReduceOp::NormP, 1, 2}, columns, kFloat32).get(j) == std::abs(value) * 0x1p20);
  }
  CHECK(reduced_to({ReduceOp::Sum, 3}, {1, 1}, kFloat32).get(0) == 3 * 0x1p40);
  CHECK(reduced_to({ReduceOp::Mean, 3}, {1, 1}, kFloat32).get(0) == 1);
  CHECK(reduced_to({ReduceOp::Min, 3}, {1, 1}, kFloat32).get(0) == -2);
  CHECK(reduced_to({ReduceOp::Var, 3}, {1, 1}, kFloat64).get(0) == Approx(6));
  CHECK(reduced_to({ReduceOp::NormP, 3, 1}, {1, 1}, kFloat32).get(0) == 7 * 0x1p40);
  CHECK(reduced_to({ReduceOp::Any, 3}, {1, 1}, kBool).get(0) == 1);
  const double log_sum = std::log(std::exp(1.0) + std::exp(-2.0) + std::exp(4.0)) + 40 * std::log(2.0);
  CHECK(reduced_to({ReduceOp::LogSumExp, 3}, {1, 1}, kFloat64).get(0) == Approx(log_sum).epsilon(1e-6));
  x = odd.view, x.sizes[0] = 5, x.sizes[1] = 3, x.strides[0] = x.strides[1] = 0;
  CHECK(reduced_to({ReduceOp::Prod, 3}, {1, 1}, kInt64).get(0) == -14348907);  // (-3)^15
}

TEST_CASE("reduce: the variance does not suffer from a large mean") {
  Numbers numbers;
  for (const Shape& shape : {Shape{200000, 1}, Shape{3000, 40}}) {
    Array x(kFloat64, shape), out(kFloat64, {1, shape[1]});
    for (int64_t i = 0; i < x.numel(); ++i) x.set(i, 1e8 + double(numbers.next() % 1000) / 1000);
    cpu().reduce(ctx(), {out.view, x.view, {ReduceOp::Var, 1, 2, 1}});
    const auto g = groups(x, 1, out.numel());
    for (int64_t j = 0; j < shape[1]; ++j) {
      std::vector<double> shifted;
      for (const double v : g[size_t(j)]) shifted.push_back(v - 1e8);
      const double want = naive({ReduceOp::Var, 1, 2, 1}, shifted);
      CHECK(std::abs(out.get(j) - want) < 1e-7 * want);
    }
  }
}

TEST_CASE("reduce: variance by hand, with corrections") {
  CHECK(reduce_one({ReduceOp::Var, 1, 2, 1}, {1, 2, 3, 4}) == float(5.0 / 3));
  CHECK(reduce_one({ReduceOp::Std, 1, 2, 0}, {1, 3}) == 1);
  CHECK(std::isnan(reduce_one({ReduceOp::Var, 1, 2, 1}, {5})));
  CHECK(reduce_one({ReduceOp::Var, 1, 2, 3}, {1, 3}) == kInf);
}

TEST_CASE("reduce: infinities, NaN and large numbers") {
  CHECK(reduce_one({ReduceOp::LogSumExp}, {1e30, -1e30}) == float(1e30));
  CHECK(reduce_one({ReduceOp::LogSumExp}, {-1e30, -1e30}) == float(-1e30));
  CHECK(reduce_one({ReduceOp::LogSumExp}, {kInf, 3}) == kInf);
  CHECK(reduce_one({ReduceOp::LogSumExp}, {-kInf, -kInf}) == -kInf);
  CHECK(reduce_one({ReduceOp::LogSumExp}, {-kInf, 2}) == 2);
  CHECK(std::isnan(reduce_one({ReduceOp::LogSumExp}, {kInf, kNaN})));
  for (const ReduceOp op : {ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum, ReduceOp::LogSumExp}) {
    std::vector<double> values(5000, 1.0);
    values[3333] = kNaN;
    CHECK(std::isnan(reduce_one({op}, values)));
    values.resize(70);
    values[69] = kNaN;
    CHECK(std::isnan(reduce_one({op}, values)));
    Array x(kFloat32, {100, 80}), out(kFloat32, {1, 80});
    x.set(50 * 80 + 7, kNaN);
    cpu().reduce(ctx(), {out.view, x.view, {op, 1}});
    CHECK((std::isnan(out.get(7)) && out.get(8) == (op == ReduceOp::LogSumExp ? float(std::log(100.0)) : 0)));
  }
  for (const int64_t n : {3, 64, 200, 5000}) {
    const std::vector<double> low(size_t(n), -kInf);
    CHECK(reduce_one({ReduceOp::Max}, low) == -kInf);
    CHECK(reduce_one({ReduceOp::LogSumExp}, low) == -kInf);
  }
  Array x(kInt64, {3}), out(kInt64, {1});
  x.view.as<int64_t>()[0] = INT64_MAX - 1, x.view.as<int64_t>()[1] = INT64_MAX, x.view.as<int64_t>()[2] = INT64_MIN;
  cpu().reduce(ctx(), {out.view, x.view, {ReduceOp::Max, 1}});
  CHECK(out.view.as<int64_t>()[0] == INT64_MAX);
  cpu().reduce(ctx(), {out.view, x.view, {ReduceOp::Sum, 1}});
  CHECK(out.view.as<int64_t>()[0] == INT64_MAX - 2);  // wraps, and back
}

TEST_CASE("reduce: the result does not depend on the threads") {
  Numbers numbers;
  for (const Shape& shape : {Shape{300007, 1}, Shape{1500, 500}, Shape{40000, 3}, Shape{7, 90001}})
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Var, ReduceOp::NormP, ReduceOp::LogSumExp})
      for (uint32_t dims = 1; dims < 4; ++dims) {
        Array x(kFloat32, shape);
        for (int64_t i = 0; i < x.numel(); ++i) x.set(i, double(numbers.next()) * 0x1p-31 - 0.3);
        check_threads([&] {
          Array out(kFloat64, reduced(shape, dims));
          cpu().reduce(ctx(), {out.view, x.view, {op, dims}});
          return out.memory;
        });
      }
}
