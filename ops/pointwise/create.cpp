#include "../create.h"

#include <algorithm>
#include <cmath>

#include "../cast.h"
#include "../front.h"
#include "../pointwise.h"

namespace tapir::inline v0 {

static Tensor filled(const char* op, Tensor t, Scalar value, bool requires_grad) {
  check_fits(op, value, t.dtype());
  backend(t).fill(context(t), {t, value});
  if (requires_grad) t.requires_grad_();
  return noted(op, t);
}

Tensor full(const Shape& shape, Scalar value, const TensorOptions& o) {
  return filled("full", empty("full", shape, {.dtype = o.dtype.value_or(value.dtype()), .device = o.device}), value,
                o.requires_grad);
}
Tensor zeros(const Shape& shape, const TensorOptions& o) {
  return filled("zeros", empty("zeros", shape, {.dtype = o.dtype, .device = o.device}), 0, o.requires_grad);
}
Tensor ones(const Shape& shape, const TensorOptions& o) {
  return filled("ones", empty("ones", shape, {.dtype = o.dtype, .device = o.device}), 1, o.requires_grad);
}
Tensor full_like(const Tensor& x, Scalar value, const LikeOptions& o) {
  return filled("full_like", empty_like(x, {.dtype = o.dtype, .device = o.device, .memory_format = o.memory_format}),
                value, o.requires_grad);
}
Tensor zeros_like(const Tensor& x, const LikeOptions& o) { return full_like(x, 0, o); }
Tensor ones_like(const Tensor& x, const LikeOptions& o) { return full_like(x, 1, o); }

Tensor& fill_(Tensor& self, Scalar value) {
  check_inplace("fill_", self, wants_grad({self}));
  check_fits("fill_", value, self.dtype());
  backend(self).fill(context(self), {self, value});
  record("fill_", self, {self}, [](const Tensor& g) { return Grads{zeros_like(g)}; });
  return self;
}
Tensor& zero_(Tensor& self) { return fill_(self, 0); }

Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& o) {
  const bool floats = start.is_float() || end.is_float() || step.is_float();
  const double a = start.to_double(), b = end.to_double(), s = step.to_double();
  check(std::isfinite(a) && std::isfinite(b) && std::isfinite(s), "[arange] unsupported range: {} to {} by {}", start,
        end, step);
  check(s != 0, "[arange] step must be nonzero (start {}, end {}, step {})", start, end, step);
  check(s > 0 ? a <= b : a >= b,
        "[arange] upper bound and lower bound inconsistent with step sign (start {}, end {}, step {})", start, end,
        step);
  const double n = std::ceil((b - a) / s);
  check(n < 0x1p62, "[arange] unsupported range: {} to {} by {} is {} elements", start, end, step, n);
  const int64_t count =
      floats ? int64_t(n) : (end.to_int() - start.to_int() + step.to_int() - (s > 0 ? 1 : -1)) / step.to_int();
  Tensor y = empty("arange", count, {.dtype = o.dtype.value_or(floats ? kFloat32 : kInt64), .device = o.device});
  const bool whole = !is_floating(y.dtype());  // integers: start and step are truncated, the count is not
  backend(y).range(context(y), {y, {whole ? Scalar(start.to_int()) : start, whole ? Scalar(step.to_int()) : step}});
  if (o.requires_grad) y.requires_grad_();
  return noted("arange", y);
}

Tensor linspace(Scalar start, Scalar end, int64_t steps, const TensorOptions& o) {
  check(steps >= 0, "[linspace] number of steps must be non-negative, got {}", steps);
  Tensor y = empty("linspace", steps, {.dtype = o.dtype.value_or(kFloat32), .device = o.device});
  const bool whole = !is_floating(y.dtype());  // integers: the ends are truncated first, then every value
  const double a = whole ? double(start.to_int()) : start.to_double(),
               b = whole ? double(end.to_int()) : end.to_double();
  const double step = steps > 1 ? (b - a) / double(steps - 1) : 0;
  // From both ends inwards, so that the last value is `end` itself.
  const int64_t half = steps == 1 ? 1 : steps / 2, rest = steps - half;
  backend(y).range(context(y), {alias(y, half, 1, 0), {a, step}});
  backend(y).range(context(y), {alias(y, rest, 1, half), {b - step * double(rest - 1), step}});
  if (rest)
    backend(y).fill(context(y), {alias(y, 1, 1, steps - 1), is_floating(y.dtype()) ? Scalar(b) : Scalar(int64_t(b))});
  if (o.requires_grad) y.requires_grad_();
  return noted("linspace", y);
}

Tensor logspace(Scalar start, Scalar end, int64_t steps, double base, const TensorOptions& o) {
  check(steps >= 0, "[logspace] number of steps must be non-negative, got {}", steps);
  const bool whole = o.dtype && !is_floating(*o.dtype);  // integers: the ends are truncated first
  const Tensor exponents = linspace(whole ? Scalar(start.to_int()) : start, whole ? Scalar(end.to_int()) : end, steps,
                                    {.dtype = kFloat64, .device = o.device});
  Tensor y = to(pow(base, exponents), o.dtype.value_or(kFloat32));
  if (o.requires_grad) y.requires_grad_();
  return y;
}

Tensor eye(int64_t n, int64_t m, const TensorOptions& o) {
  check(n >= 0, "[eye] n must be greater or equal to 0, got {}", n);
  check(m >= -1, "[eye] m must be greater or equal to 0, got {}", m);
  if (m < 0) m = n;
  Tensor y = zeros({n, m}, {.dtype = o.dtype, .device = o.device});
  if (n && m) backend(y).fill(context(y), {alias(y, std::min(n, m), m + 1, 0), 1});
  if (o.requires_grad) y.requires_grad_();
  return y;
}

}  // namespace tapir::inline v0
