#include "../random.h"

#include <cmath>
#include <tuple>

#include "../../core/generator.h"
#include "../cast.h"
#include "../create.h"
#include "../front.h"
#include "../shape.h"

namespace tapir::inline v0 {

/// Fills y (all of it is overwritten) with the generator's next numbers; p: probabilities, broadcast.
static void draw(const char* op, const Tensor& y, RandomParams params, const Tensor& p = {}) {
  std::tie(params.seed, params.offset) = default_generator().take(y.numel());
  Context& ctx = context(y);
  backend(y).random(ctx,
                    {.out = y, .p = p.defined() ? TensorView(p).expand(y.shape()) : TensorView(), .params = params});
  profiler::note_operation(op);
  if (ctx.late_error)
    name_late_error(ctx,
                    tapir::format("[{}] expected probabilities in [0, 1], got another one at position {position}", op));
  if (!ctx.error.set) return;
  const int64_t at = ctx.error.position;
  fail(ErrorKind::Value, "[{}] expected probabilities in [0, 1], got {} at position {}", op,
       expand(p, y.shape()).to_vector<double>()[size_t(at)], at);
}
static Tensor drawn(const char* op, Tensor y, bool requires_grad, const RandomParams& params) {
  draw(op, y, params);
  if (requires_grad) y.requires_grad_();
  return y;
}
/// In place: nothing of the old value is left, so its gradient is 0.
static Tensor& redrawn(const char* op, Tensor& self, const RandomParams& params, const Tensor& p = {}) {
  check_defined(op, "self", self);
  check_inplace(op, self, wants_grad({self}));
  draw(op, self, params, p);
  record(op, self, {self}, [](const Tensor& g) { return Grads{zeros_like(g)}; });
  return self;
}

// What each distribution asks of its arguments.
static RandomParams uniform(const char* op, DType dtype, double from, double to) {
  check(is_floating(dtype), "[{}] expected a floating point dtype, got {}", op, dtype);
  check(from <= to && std::isfinite(to - from), "[{}] expected to return a [from, to) range, got from={} and to={}", op,
        from, to);
  check_fits(op, from, dtype), check_fits(op, to, dtype);
  return {.op = RandomOp::Uniform, .a = from, .b = to};
}
static RandomParams normal(const char* op, DType dtype, double mean, double std) {
  check(is_floating(dtype), "[{}] expected a floating point dtype, got {}", op, dtype);
  check(std >= 0, "[{}] expected std >= 0.0, got std {}", op, std);
  return {.op = RandomOp::Normal, .a = mean, .b = std};
}
static RandomParams integers(const char* op, DType dtype, int64_t low, int64_t high) {
  check(low < high, "[{}] expected 'from' to be less than 'to', got from={} >= to={}", op, low, high);
  check_fits(op, low, dtype), check_fits(op, high - 1, dtype);
  check(dtype != kBool || (low >= 0 && high <= 2), "[{}] expected bounds within those of bool, got from={} and to={}",
        op, low, high);
  return {.op = RandomOp::Integer, .low = low, .high = high};
}
static RandomParams coin(const char* op, double p) {
  check(p >= 0 && p <= 1, "[{}] expected p to be in [0, 1], got p={}", op, p);
  return {.op = RandomOp::Bernoulli, .a = p};
}

static Tensor like(const char* op, const Tensor& x, const LikeOptions& o) try {
  return empty_like(x, {.dtype = o.dtype, .device = o.device, .memory_format = o.memory_format});
} catch (...) {
  fail_as(op);
}

Tensor rand(const Shape& shape, const TensorOptions& o) {
  const RandomParams params = uniform("rand", o.dtype.value_or(kFloat32), 0, 1);
  return drawn("rand", empty("rand", shape, {.dtype = o.dtype, .device = o.device}), o.requires_grad, params);
}
Tensor randn(const Shape& shape, const TensorOptions& o) {
  const RandomParams params = normal("randn", o.dtype.value_or(kFloat32), 0, 1);
  return drawn("randn", empty("randn", shape, {.dtype = o.dtype, .device = o.device}), o.requires_grad, params);
}
Tensor normal(double mean, double std, const Shape& shape, const TensorOptions& o) {
  const RandomParams params = normal("normal", o.dtype.value_or(kFloat32), mean, std);
  return drawn("normal", empty("normal", shape, {.dtype = o.dtype, .device = o.device}), o.requires_grad, params);
}
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& o) {
  const DType dtype = o.dtype.value_or(kInt64);
  const RandomParams params = integers("randint", dtype, low, high);
  return drawn("randint", empty("randint", shape, {.dtype = dtype, .device = o.device}), o.requires_grad, params);
}
Tensor randperm(int64_t n, const TensorOptions& o) {
  check(n >= 0, "[randperm] expected n to be at least 0, got {}", n);
  const DType dtype = o.dtype.value_or(kInt64);
  if (n > 0) check_fits("randperm", n - 1, dtype);
  return drawn("randperm", empty("randperm", n, {.dtype = dtype, .device = o.device}), o.requires_grad,
               {.op = RandomOp::Permutation});
}

Tensor rand_like(const Tensor& x, const LikeOptions& o) {
  check_defined("rand_like", "x", x);
  const RandomParams params = uniform("rand_like", o.dtype.value_or(x.dtype()), 0, 1);
  return drawn("rand_like", like("rand_like", x, o), o.requires_grad, params);
}
Tensor randn_like(const Tensor& x, const LikeOptions& o) {
  check_defined("randn_like", "x", x);
  const RandomParams params = normal("randn_like", o.dtype.value_or(x.dtype()), 0, 1);
  return drawn("randn_like", like("randn_like", x, o), o.requires_grad, params);
}
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, const LikeOptions& o) {
  check_defined("randint_like", "x", x);
  const RandomParams params = integers("randint_like", o.dtype.value_or(x.dtype()), low, high);
  return drawn("randint_like", like("randint_like", x, o), o.requires_grad, params);
}

Tensor bernoulli(const Tensor& p) {
  check_defined("bernoulli", "p", p);
  check(is_floating(p.dtype()), "[bernoulli] expected probabilities of floating point dtype, got {}", p);
  Tensor y = like("bernoulli", p, {});
  draw("bernoulli", y, {.op = RandomOp::BernoulliTensor}, p);
  return record("bernoulli", y, {p}, [](const Tensor& g) { return Grads{zeros_like(g)}; });
}
Tensor bernoulli(const Tensor& x, double p) {
  check_defined("bernoulli", "x", x);
  const RandomParams params = coin("bernoulli", p);
  return drawn("bernoulli", like("bernoulli", x, {}), false, params);
}

Tensor& uniform_(Tensor& self, double from, double to) {
  return redrawn("uniform_", self, uniform("uniform_", self.dtype(), from, to));
}
Tensor& normal_(Tensor& self, double mean, double std) {
  return redrawn("normal_", self, normal("normal_", self.dtype(), mean, std));
}
Tensor& bernoulli_(Tensor& self, double p) { return redrawn("bernoulli_", self, coin("bernoulli_", p)); }
Tensor& bernoulli_(Tensor& self, const Tensor& p) {
  check_defined("bernoulli_", "p", p);
  check(is_floating(p.dtype()), "[bernoulli_] expected probabilities of floating point dtype, got {}", p);
  check(broadcasts_to(p.shape(), self.shape()), "[bernoulli_] expected probabilities that broadcast to {}, got {}",
        self, p);
  common_device("bernoulli_", {&self, &p});
  return redrawn("bernoulli_", self, {.op = RandomOp::BernoulliTensor}, p);
}
Tensor& random_(Tensor& self, int64_t from, int64_t to) {
  return redrawn("random_", self, integers("random_", self.dtype(), from, to));
}

}  // namespace tapir::inline v0
