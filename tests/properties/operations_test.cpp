// Laws that hold for every shape, stride and dtype, tried on random ones by rapidcheck; skipped where that library is missing.
#if __has_include(<rapidcheck.h>)
#include <rapidcheck.h>

#include <cstring>
#include <functional>

#include "../ops/helpers.h"

namespace {

int64_t up_to(int64_t n) { return *rc::gen::inRange<int64_t>(0, n + 1); }
DType any_dtype(bool floats_only = false) {
  return floats_only
             ? *rc::gen::element(kFloat32, kFloat64, kFloat16, kBFloat16)
             : *rc::gen::element(kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8);
}
Shape any_shape(int64_t max_rank = 4) {
  Shape shape;
  for (int64_t d = up_to(max_rank); d > 0; --d)
    shape.push_back(*rc::gen::weightedElement<int64_t>({{1, 0}, {2, 1}, {3, 2}, {3, 3}, {1, 7}, {1, 17}}));
  return shape;
}
/// Small whole numbers, which every dtype holds and adds exactly.
Tensor numbers(const Shape& shape, DType dtype) {
  manual_seed(uint64_t(up_to(1 << 20)));
  return randint(dtype == kUInt8 ? 0 : -4, 5, shape).to(dtype);
}
/// A tensor of that shape with strides of any kind: dimensions in any order, steps, an offset, repeated elements.
Tensor view_of(const Shape& shape, DType dtype, bool may_repeat = true) {
  const int64_t rank = shape.size();
  std::vector<int64_t> order(static_cast<size_t>(rank)), back(order);
  for (int64_t d = 0; d < rank; ++d) order[size_t(d)] = d;
  for (int64_t d = rank - 1; d > 0; --d) std::swap(order[size_t(d)], order[size_t(up_to(d))]);
  Shape wide;
  std::vector<int64_t> step, start;
  for (int64_t d = 0; d < rank; ++d) {
    const bool repeat = may_repeat && up_to(5) == 0;
    step.push_back(repeat ? 0 : 1 + up_to(2)), start.push_back(up_to(2));
    wide.push_back(repeat ? 1 : start.back() + shape[order[size_t(d)]] * step.back());
  }
  Tensor x = numbers(wide, dtype);
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t extent = shape[order[size_t(d)]];
    if (step[size_t(d)] == 0) {
      Shape s = x.shape();
      s[d] = extent;
      x = x.expand(s);
    } else x = x.slice(d, start[size_t(d)], start[size_t(d)] + extent * step[size_t(d)], step[size_t(d)]);
    back[size_t(order[size_t(d)])] = d;
  }
  Dims dims;
  for (int64_t d : back) dims.push_back(d);
  return rank ? x.permute(dims) : x;
}
bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && close(values(a), values(b), 0);
}
/// A shape that broadcasts to `shape`.
Shape part_of(const Shape& shape) {
  Shape part;
  for (int64_t d = up_to(shape.size()); d < shape.size(); ++d) part.push_back(up_to(2) == 0 ? 1 : shape[d]);
  return part;
}

/// PyTorch's rule for two tensors: one without dimensions counts only where its kind (integer, float) is the higher one.
DType result_of(const Tensor& a, const Tensor& b) {
  const bool a_weak = a.dim() == 0 && b.dim() > 0, b_weak = b.dim() == 0 && a.dim() > 0;
  if (b_weak && is_floating(a.dtype()) >= is_floating(b.dtype())) return a.dtype();
  if (a_weak && is_floating(b.dtype()) >= is_floating(a.dtype())) return b.dtype();
  return a_weak ? a.dtype() : b_weak ? b.dtype() : promote_types(a.dtype(), b.dtype());
}

struct Unary {
  const char* name;
  Tensor (*call)(const Tensor&);
  Tensor& (*in_place)(Tensor&);
  bool floats;
};
#define UNARY_OP(name, floats)                                                                               \
  Unary {                                                                                                    \
#name, [](const Tensor& x) { return name(x); }, [](Tensor & x) -> Tensor& { return name##_(x); }, floats \
  }
const Unary unary_ops[] = {UNARY_OP(neg, false),  UNARY_OP(abs, false),    UNARY_OP(exp, true),
                           UNARY_OP(sin, true),   UNARY_OP(tanh, true),    UNARY_OP(sigmoid, true),
                           UNARY_OP(relu, false), UNARY_OP(square, false), UNARY_OP(floor, false),
                           UNARY_OP(sqrt, true)};
struct Binary {
  const char* name;
  Tensor (*call)(const Tensor&, const Tensor&);
  Tensor& (*in_place)(Tensor&, const Tensor&);
};
#define BINARY_OP(name)                                                                                         \
  Binary {                                                                                                      \
#name, [](const Tensor& a,                                                                                  \
              const Tensor& b) { return name(a, b); }, [](Tensor & a,                                           \
                                                          const Tensor& b) -> Tensor& { return name##_(a, b); } \
  }
const Binary binary_ops[] = {BINARY_OP(add), BINARY_OP(sub), BINARY_OP(mul)};
struct AlongDim {
  const char* name;
  Tensor (*call)(const Tensor&, int64_t dim);
};
#define REDUCTION_OP(name, ...)                                               \
  AlongDim {                                                                  \
#name, [](const Tensor& x, int64_t dim) -> Tensor { return __VA_ARGS__; } \
  }
const AlongDim reductions[] = {REDUCTION_OP(sum, sum(x, dim)), REDUCTION_OP(cumsum, cumsum(x, dim)),
                               REDUCTION_OP(prod, prod(x, dim)), REDUCTION_OP(any, any(x, dim)),
                               REDUCTION_OP(all, all(x, dim))};

template <class T> const T& pick(std::span<const T> list) { return list[size_t(up_to(int64_t(list.size()) - 1))]; }

}  // namespace

TEST_CASE("laws: strides do not change a result") {
  CHECK(rc::check("unary", [] {
    const Unary& op = pick(std::span<const Unary>(unary_ops));
    const Tensor x = view_of(any_shape(), any_dtype(op.floats));
    RC_ASSERT(same(op.call(x), op.call(x.clone().contiguous())));
  }));
  CHECK(rc::check("binary", [] {
    const Binary& op = pick(std::span<const Binary>(binary_ops));
    const Shape shape = any_shape();
    const Tensor a = view_of(shape, any_dtype()), b = view_of(part_of(shape), any_dtype());
    RC_ASSERT(same(op.call(a, b), op.call(a.contiguous(), b.contiguous())));
  }));
  CHECK(rc::check("reductions", [] {
    const AlongDim& op = pick(std::span<const AlongDim>(reductions));
    Shape shape = any_shape();
    shape.push_back(1 + up_to(4));
    const Tensor x = view_of(shape, any_dtype());
    const int64_t dim = up_to(shape.size() - 1);
    RC_ASSERT(same(op.call(x, dim), op.call(x.contiguous(), dim)));
  }));
  CHECK(rc::check("matmul", [] {
    const int64_t m = up_to(20), k = up_to(20), n = up_to(20);
    const DType dtype = any_dtype();
    const Tensor a = view_of({m, k}, dtype), b = view_of({k, n}, dtype);
    RC_ASSERT(same(matmul(a, b), matmul(a.contiguous(), b.contiguous())));
  }));
}

TEST_CASE("laws: in place is the same as out of place, and touches nothing else") {
  CHECK(rc::check("unary", [] {
    const Unary& op = pick(std::span<const Unary>(unary_ops));
    Tensor x = view_of(any_shape(), any_dtype(op.floats), false);
    const Tensor expected = op.call(x);
    RC_ASSERT(same(op.in_place(x), expected));
  }));
  CHECK(rc::check("binary, also with an operand that overlaps", [] {
    const Binary& op = pick(std::span<const Binary>(binary_ops));
    const Tensor base = view_of({6, 5}, any_dtype(), false);
    Tensor a = base.narrow(0, up_to(3), 3);
    const Tensor b = up_to(1) ? base.narrow(0, up_to(3), 3) : base.narrow(0, up_to(5), 1);
    const Tensor expected = op.call(a, b), outside = base.clone();
    op.in_place(a, b);
    RC_ASSERT(same(a, expected));
    RC_ASSERT(sum(ne(base, outside)).item<int64_t>() <= 15);
  }));
}

TEST_CASE("laws: broadcasting is expanding") {
  CHECK(rc::check([] {
    const Binary& op = pick(std::span<const Binary>(binary_ops));
    const Shape shape = any_shape();
    const Tensor a = view_of(shape, any_dtype()), b = view_of(part_of(shape), any_dtype());
    const Tensor y = op.call(a, b);
    RC_ASSERT(y.shape() == shape);
    RC_ASSERT(y.dtype() == result_of(a, b));
    if (b.dim() > 0) RC_ASSERT(same(y, op.call(a, b.expand(shape))));
  }));
}

TEST_CASE("laws: the sum of chunks is the whole, and joining undoes splitting") {
  CHECK(rc::check([] {
    Shape shape = any_shape();
    shape.push_back(up_to(30));
    const Tensor x = view_of(shape, any_dtype());
    const int64_t dim = up_to(shape.size() - 1);
    Tensor total = zeros({}, {.dtype = sum(x).dtype()});
    const std::vector<Tensor> parts = x.split(1 + up_to(6), dim);
    for (const Tensor& part : parts) total = total + sum(part);
    if (!is_floating(x.dtype()) || x.dtype() == kFloat64) RC_ASSERT(same(total, sum(x)));
    RC_ASSERT(same(cat(parts, dim), x.contiguous()));
  }));
}

TEST_CASE("laws: gradients of views are those of copies") {
  CHECK(rc::check([] {
    const Unary& op = unary_ops[up_to(7)];
    const Tensor x = view_of(any_shape(3), kFloat64);
    Tensor a = x.detach().clone().requires_grad_(), base = x.clone().requires_grad_();
    const Tensor weight = numbers(x.shape(), kFloat64);
    sum(op.call(a) * weight).backward();
    const int64_t d = x.dim();
    const Tensor view = d > 1 ? base.transpose(0, d - 1) : base.view(base.shape());
    sum(op.call(view) * (d > 1 ? weight.transpose(0, d - 1) : weight)).backward();
    if (x.numel()) RC_ASSERT(same(a.grad(), base.grad()));
  }));
}

TEST_CASE("laws: special values go through as the C library has them") {
  const Values special = {0.0, -0.0, 1, -1, kInf, -kInf, kNan, 1e-310, -1e-310, 1e308};
  const auto agree = [&](const char* name, const Tensor& y, double (*f)(double)) {
    for (size_t i = 0; i < special.size(); ++i) {
      const double got = y[int64_t(i)].item(), wanted = f(special[i]);
      INFO(name << " of " << special[i]);
      CHECK(close({got}, {wanted}, 1e-14));
      if (wanted == 0) CHECK(std::signbit(got) == std::signbit(wanted));
    }
  };
  const Tensor x = tensor(special);
  agree("exp", exp(x), std::exp);
  agree("log", log(x), std::log);
  agree("sqrt", sqrt(x), std::sqrt);
  agree("tanh", tanh(x), std::tanh);
  agree("floor", floor(x), std::floor);
  agree("abs", abs(x), std::fabs);
  agree("neg", -x, [](double v) { return -v; });
  agree("expm1", expm1(x), std::expm1);
  agree("log1p", log1p(x), std::log1p);
  agree("atan", atan(x), std::atan);
  agree("relu", relu(x), [](double v) { return v < 0 ? 0.0 : v; });
}

TEST_CASE("laws: integers wrap around") {
  CHECK(rc::check([](int32_t a, int32_t b, int8_t c, int8_t d, uint8_t e, uint8_t f) {
    const auto whole = [](auto v) { return tensor(std::vector{v}); };
    RC_ASSERT((whole(a) * whole(b)).item<int32_t>() == int32_t(uint32_t(a) * uint32_t(b)));
    RC_ASSERT((whole(a) + whole(b)).item<int32_t>() == int32_t(uint32_t(a) + uint32_t(b)));
    RC_ASSERT((whole(c) * whole(d)).item<int8_t>() == int8_t(c * d));
    RC_ASSERT((whole(c) - whole(d)).item<int8_t>() == int8_t(c - d));
    RC_ASSERT((whole(e) - whole(f)).item<uint8_t>() == uint8_t(e - f));
    RC_ASSERT((-whole(e)).item<uint8_t>() == uint8_t(-e));
  }));
}
#else
#include "../catch.h"

TEST_CASE("laws of operations on random operands") { SKIP_TEST("no rapidcheck (librapidcheck-dev)"); }
#endif
