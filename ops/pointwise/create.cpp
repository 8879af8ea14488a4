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
  check_defined("full_like", "x", x);
  return filled("full_like", empty_like(x, {.dtype = o.dtype, .device = o.device, .memory_format = o.memory_format}),
                value, o.requires_grad);
}
Tensor zeros_like(const Tensor& x, const LikeOptions& o) try { return full_like(x, 0, o); } catch (...) {
  fail_as("zeros_like");
}
Tensor ones_like(const Tensor& x, const LikeOptions& o) try { return full_like(x, 1, o); } catch (...) {
  fail_as("ones_like");
}

Tensor& fill_(Tensor& self, Scalar value) {
  check_defined("fill_", "self", self);
  check_inplace("fill_", self, wants_grad({self}));
  check_fits("fill_", value, self.dtype());
  backend(self).fill(context(self), {self, value});
  record("fill_", self, {self}, [](const Tensor& g) { return Grads{zeros_like(g)}; });
  return self;
}
Tensor& zero_(Tensor& self) try { return fill_(self, 0); } catch (...) {
  fail_as("zero_");
}

using Wide = __int128;

Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& o) {
  const bool floats = start.is_float() || end.is_float() || step.is_float();
  const double a = start.to_double(), b = end.to_double(), s = step.to_double();
  check(std::isfinite(a) && std::isfinite(b) && std::isfinite(s), "[arange] unsupported range: {} to {} by {}", start,
        end, step);
  check(s != 0, "[arange] step must be nonzero (start {}, end {}, step {})", start, end, step);
  const bool rising = floats ? a <= b : start.to_int() <= end.to_int();
  const bool falling = floats ? a >= b : start.to_int() >= end.to_int();
  check(s > 0 ? rising : falling,
        "[arange] upper bound and lower bound inconsistent with step sign (start {}, end {}, step {})", start, end,
        step);
  const DType dtype = o.dtype.value_or(floats ? kFloat32 : kInt64);
  const bool whole = !is_floating(dtype);  // integers: start and step are truncated, the count is not
  int64_t count;
  if (floats) {
    const double n = std::ceil((b - a) / s);
    check(n < 0x1p62, "[arange] unsupported range: {} to {} by {} is {} elements", start, end, step, n);
    count = int64_t(n);
  } else {  // in 128 bits: the distance of two integers need not be one
    const Wide from = start.to_int(), to = end.to_int(), by = step.to_int(),
               n = (to - from + by - (s > 0 ? 1 : -1)) / by;
    check(n < Wide(1) << 62, "[arange] unsupported range: {} to {} by {} is {} elements", start, end, step, double(n));
    count = int64_t(n);
  }
  if (whole) check_held("arange", start, kInt64), check_held("arange", step, kInt64);
  if (whole && count > 0) {
    check_held("arange", start, dtype);
    const Wide last = start.to_int() + Wide(count - 1) * step.to_int();
    check(last == int64_t(last), "[arange] unsupported range: {} to {} by {} leaves int64", start, end, step);
    check_held("arange", Scalar(int64_t(last)), dtype);
  }
  Tensor y = empty("arange", count, {.dtype = dtype, .device = o.device});
  backend(y).range(context(y), {y, {whole ? Scalar(start.to_int()) : start, whole ? Scalar(step.to_int()) : step}});
  if (o.requires_grad) y.requires_grad_();
  return noted("arange", y);
}

Tensor linspace(Scalar start, Scalar end, int64_t steps, const TensorOptions& o) {
  check(steps >= 0, "[linspace] number of steps must be non-negative, got {}", steps);
  const DType dtype = o.dtype.value_or(kFloat32);
  check_fits("linspace", start, dtype), check_fits("linspace", end, dtype);
  Tensor y = empty("linspace", steps, {.dtype = dtype, .device = o.device});
  const bool whole = !is_floating(y.dtype());  // integers: the ends are truncated first, then every value
  const bool wide = std::isfinite(start.to_double()) && std::isfinite(end.to_double()) &&
                    std::isinf(end.to_double() - start.to_double());  // the distance overflows, its parts do not
  const double a = whole ? double(start.to_int()) : start.to_double(),
               b = whole ? double(end.to_int()) : end.to_double();
  const double n = double(steps - 1);
  const double step = steps <= 1 || (wide && steps == 2) ? 0 : wide ? b / n - a / n : (b - a) / n;
  // From both ends inwards, so that the last value is `end` itself.
  const int64_t half = steps == 1 ? 1 : steps / 2, rest = steps - half;
  backend(y).range(context(y), {alias(y, half, 1, 0), {a, step}});
  const double middle = wide ? 2 * (b / 2 - step / 2 * double(rest - 1)) : b - step * double(rest - 1);
  backend(y).range(context(y), {alias(y, rest, 1, half), {middle, step}});
  if (rest) backend(y).fill(context(y), {alias(y, 1, 1, steps - 1), whole ? Scalar(end.to_int()) : Scalar(b)});
  if (o.requires_grad) y.requires_grad_();
  return noted("linspace", y);
}

Tensor logspace(Scalar start, Scalar end, int64_t steps, double base, const TensorOptions& o) try {
  check(steps >= 0, "[logspace] number of steps must be non-negative, got {}", steps);
  const bool whole = o.dtype && !is_floating(*o.dtype);  // integers: the ends are truncated first
  if (whole && steps > 0) {
    check_held("logspace", std::pow(base, double(start.to_int())), *o.dtype);
    if (steps > 1) check_held("logspace", std::pow(base, double(end.to_int())), *o.dtype);
  }
  const Tensor exponents = linspace(whole ? Scalar(start.to_int()) : start, whole ? Scalar(end.to_int()) : end, steps,
                                    {.dtype = kFloat64, .device = o.device});
  Tensor y = to(pow(base, exponents), o.dtype.value_or(kFloat32));
  if (o.requires_grad) y.requires_grad_();
  return y;
} catch (...) {
  fail_as("logspace");
}

Tensor eye(int64_t n, int64_t m, const TensorOptions& o) try {
  check(n >= 0, "[eye] n must be greater or equal to 0, got {}", n);
  check(m >= -1, "[eye] m must be greater or equal to 0, got {}", m);
  if (m < 0) m = n;
  Tensor y = zeros({n, m}, {.dtype = o.dtype, .device = o.device});
  if (n && m) backend(y).fill(context(y), {alias(y, std::min(n, m), m + 1, 0), 1});
  if (o.requires_grad) y.requires_grad_();
  return y;
} catch (...) {
  fail_as("eye");
}

}  // namespace tapir::inline v0
