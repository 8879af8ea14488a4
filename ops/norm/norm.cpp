#include "../norm.h"

#include <cmath>
#include <limits>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../checked.h"
#include "../front.h"
#include "../reduce.h"
#include "../shape.h"
#include "../slicing.h"
#include "../unary.h"

namespace tapir::inline v0 {
namespace {

/// How the composite forms see a norm: x and the statistics in shapes that broadcast.
struct Frame {
  NormParams params;
  Shape x, weight;  // shapes to view x and weight in
  Dims over;        // dimensions that share statistics

  Frame(const NormParams& params, const Shape& shape) : params(params), x(shape) {
    const int64_t rank = shape.size();
    if (params.op == NormOp::Batch) {
      weight = Dims::filled(rank, 1);
      weight[1] = shape[1];
      for (int64_t d = 0; d < rank; ++d)
        if (d != 1) over.push_back(d);
    } else if (params.op == NormOp::Group) {
      const int64_t samples = shape[0], channels = shape[1],
                    plane = numel_of(Dims(std::span(shape.data() + 2, size_t(rank - 2))));
      x = {samples, params.groups, channels / params.groups, plane};
      weight = {1, params.groups, channels / params.groups, 1};
      over = {2, 3};
    } else {
      for (int64_t d = rank - params.axes; d < rank; ++d) weight.push_back(shape[d]), over.push_back(d);
    }
  }
  bool fixed() const { return params.op == NormOp::Batch && !params.training; }
};

/// x, its statistics and what is normalised, in differentiable operations and at least float32. mean and rstd are read only where they
/// do not depend on x.
struct Normalized {
  Tensor rstd, xhat;
  Normalized(const Frame& f, const Tensor& input, const Tensor& mean_of, const Tensor& rstd_of) {
    Tensor x = reshape(to(input, compute_type(input.dtype())), f.x);
    if (f.fixed()) {
      x = sub(x, view(mean_of, f.weight)), rstd = view(rstd_of, f.weight);
    } else {
      if (f.params.op != NormOp::Rms) x = sub(x, mean(x, f.over, {.keepdim = true}));
      rstd = rsqrt(add(mean(square(x), f.over, {.keepdim = true}), f.params.eps));
    }
    xhat = mul(x, rstd);
  }
};

/// weight (or bias) as it broadcasts against Frame::x.
Tensor framed(const Frame& f, const Tensor& v, DType dtype) {
  return v.defined() ? reshape(to(v, dtype), f.weight) : v;
}

Tensor norm_composite(const Frame& f, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                      const Tensor& rstd) {
  Tensor y = Normalized(f, x, mean, rstd).xhat;
  if (weight.defined()) y = mul(y, framed(f, weight, y.dtype()));
  if (bias.defined()) y = add(y, framed(f, bias, y.dtype()));
  return to(reshape(y, x.shape()), x.dtype());
}

/// With g = dy weight: dx = rstd (g - avg(g) - xhat avg(g xhat)), where Rms has no avg(g) and fixed statistics have no averages.
Grads norm_gradient(const Frame& f, const Tensor& dy_of, const Tensor& x, const Tensor& weight, DType bias_dtype,
                    const Tensor& mean_of, const Tensor& rstd_of, Needs needs) {
  const Normalized n(f, x, mean_of, rstd_of);
  const Tensor dy = reshape(to(dy_of, n.xhat.dtype()), f.x),
               g = weight.defined() ? mul(dy, framed(f, weight, dy.dtype())) : dy;
  const auto average = [&](const Tensor& t) { return mean(t, f.over, {.keepdim = true}); };
  Grads out(3);
  if (needs[0]) {
    Tensor inner = g;
    if (!f.fixed()) {
      if (f.params.op != NormOp::Rms) inner = sub(inner, average(g));
      inner = sub(inner, mul(n.xhat, average(mul(g, n.xhat))));
    }
    out[0] = to(reshape(mul(n.rstd, inner), x.shape()), x.dtype());
  }
  const Shape shape = f.params.op == NormOp::Batch || f.params.op == NormOp::Group ? Shape(x.shape()[1]) : f.weight;
  if (needs[1]) out[1] = to(reshape(sum_to(mul(dy, n.xhat), f.weight), shape), weight.dtype());
  if (needs[2]) out[2] = to(reshape(sum_to(dy, f.weight), shape), bias_dtype);
  return out;
}

Grads norm_backward(const NormParams& params, const Tensor& dy, const Tensor& x, const Tensor& weight, DType bias_dtype,
                    const Tensor& mean, const Tensor& rstd, Needs needs) {
  Grads out(3);
  if (needs[0]) out[0] = empty_like(x);
  if (needs[1]) out[1] = empty(weight.shape(), {.dtype = weight.dtype(), .device = x.device()});
  if (needs[2])
    out[2] = empty(params.op == NormOp::Layer ? Frame(params, x.shape()).weight : Shape(x.shape()[1]),
                   {.dtype = bias_dtype, .device = x.device()});
  backend(x).norm_backward(context(x), {.dx = out[0],
                                        .dweight = out[1],
                                        .dbias = out[2],
                                        .dy = dy,
                                        .x = x,
                                        .weight = weight,
                                        .mean = mean,
                                        .rstd = rstd,
                                        .params = params});
  return out;
}

/// The one kernel call behind every norm; `statistics` is how many means there are.
Tensor run_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                const Tensor& running_var, int64_t statistics, const NormParams& params) {
  const TensorOptions options{.dtype = compute_type(x.dtype()), .device = x.device()};
  Tensor y = empty_like(x), mean, rstd;
  if (wants_grad({x, weight, bias}) || fused_checks) rstd = empty(statistics, options);
  if (rstd.defined() && params.op != NormOp::Rms) mean = empty(statistics, options);
  backend(x).norm(context(x), {.y = y,
                               .mean = mean,
                               .rstd = rstd,
                               .x = x,
                               .weight = weight,
                               .bias = bias,
                               .running_mean = running_mean,
                               .running_var = running_var,
                               .params = params});
  compare_fused(
      op, y, [&] { return norm_composite(Frame(params, x.shape()), x, weight, bias, mean, rstd); }, x);
  const DType bias_dtype = bias.defined() ? bias.dtype() : x.dtype();
  return record(
      op, y, {x, weight, bias}, save(x, weight, mean, rstd),
      [params, bias_dtype](Needs needs, const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                           const Tensor& rstd) {
        return gradient_by_kernel(
            "norm_backward", dy, [&] { return norm_backward(params, dy, x, weight, bias_dtype, mean, rstd, needs); },
            [&] { return norm_gradient(Frame(params, x.shape()), dy, x, weight, bias_dtype, mean, rstd, needs); });
      });
}

void check_vector(const char* op, const char* what, const Tensor& v, int64_t channels) {
  if (!v.defined()) return;
  check(is_floating(v.dtype()), "[{}] expected {} of a floating-point dtype, got {}", op, what, v);
  check(v.dim() == 1 && v.numel() == channels, "[{}] {} should contain {} elements not {} (shape {})", op, what,
        channels, v.numel(), v.shape());
}

void check_input(const char* op, const Tensor& x, std::initializer_list<const Tensor*> others, double eps) {
  for (const Tensor* t : others) common_device(op, {&x, t});
  check(is_floating(x.dtype()), "[{}] expected a floating-point dtype, got {}", op, x);
  check(!std::isnan(eps), "[{}] expected a number for eps, got {}", op, eps);
}

/// Layer and Rms: normalized_shape is the tail of x's shape, and that of weight and bias.
void check_tail(const char* op, const Tensor& x, const Shape& tail, const Tensor& weight, const Tensor& bias) {
  check(!tail.empty(), "[{}] expected normalized_shape to be at least 1-dimensional, got {}", op, tail);
  bool fits = tail.size() <= x.dim();
  for (int64_t d = 0; fits && d < tail.size(); ++d) fits = tail[d] == x.shape()[x.dim() - tail.size() + d];
  check(fits, "[{}] given normalized_shape={}, expected input with shape (*, {}), but got input of size {}", op, tail,
        tail, x.shape());
  for (const Tensor* v : {&weight, &bias}) {
    if (v->defined())
      check(v->shape() == tail && is_floating(v->dtype()),
            "[{}] expected {} to be of same shape as normalized_shape {}, got {}", op, v == &weight ? "weight" : "bias",
            tail, *v);
  }
}

/// Nothing is normalised; weight and bias still get gradients, of zeros.
Tensor norm_of_nothing(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tensor y = clone(x);
  if (weight.defined() && weight.numel()) y = mul(y, select(weight, 0, 0));
  return bias.defined() && bias.numel() ? add(y, select(bias, 0, 0)) : y;
}

int64_t rows_above(const Tensor& x, const Shape& tail) {
  return numel_of(Dims(std::span(x.shape().data(), size_t(x.dim() - tail.size()))));
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, const BatchNormOptions& o) try {
  check_defined("batch_norm", "x", x);
  check_input("batch_norm", x, {&running_mean, &running_var, &weight, &bias}, o.eps);
  check(!std::isnan(o.momentum), "[batch_norm] expected a number for momentum, got {}", o.momentum);
  if (x.dim() == 1 && x.numel() == 0) return norm_of_nothing(x, weight, bias);  // as PyTorch
  check(x.dim() >= 2, "[batch_norm] expected an input of shape (N, C, ...), got {}", x);
  const int64_t channels = x.shape()[1];
  check_vector("batch_norm", "running_mean", running_mean, channels),
      check_vector("batch_norm", "running_var", running_var, channels);
  check_vector("batch_norm", "weight", weight, channels), check_vector("batch_norm", "bias", bias, channels);
  if (x.numel() == 0 && !o.training) return norm_of_nothing(x, weight, bias);
  check(o.training || (running_mean.defined() && running_var.defined()),
        "[batch_norm] expected running_mean and running_var in evaluation mode, got an undefined one");
  check(!o.training || (channels > 0 && x.numel() / channels > 1),
        "[batch_norm] expected more than 1 value per channel when training, got input size {}", x.shape());
  for (const Tensor* t : {&running_mean, &running_var})
    if (o.training && t->defined()) check_writable("batch_norm", *t);
  const Tensor y = run_norm("batch_norm", x, weight, bias, running_mean, running_var, channels,
                            {.op = NormOp::Batch, .eps = o.eps, .momentum = o.momentum, .training = o.training});
  for (const Tensor* t : {&running_mean, &running_var})
    if (o.training && t->defined()) bump_version(*t);
  return y;
} catch (...) {
  fail_as("batch_norm");
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, const InstanceNormOptions& o) try {
  check_defined("instance_norm", "x", x);
  check(x.dim() >= 2, "[instance_norm] expected an input of shape (N, C, ...), got {}", x);
  const int64_t samples = x.shape()[0], channels = x.shape()[1];
  check(!o.use_input_stats || (x.numel() > 0 && x.numel() / (samples * channels) > 1),
        "[instance_norm] expected more than 1 spatial element when training, got input size {}", x.shape());
  // One sample of N C channels is batch norm.
  Shape shape = x.shape();
  shape[0] = 1, shape[1] = samples * channels;
  const auto repeated = [&](const char* what, const Tensor& v) {
    check_vector("instance_norm", what, v, channels);
    return v.defined() ? reshape(expand(v, {samples, channels}), samples * channels) : v;
  };
  const Tensor w = repeated("weight", weight), b = repeated("bias", bias);
  Tensor mean_all, var_all;
  {
    NoGrad guard;
    if (running_mean.defined()) mean_all = clone(repeated("running_mean", running_mean));
    if (running_var.defined()) var_all = clone(repeated("running_var", running_var));
  }
  const Tensor y = batch_norm(reshape(x, shape), mean_all, var_all, w, b,
                              {.training = o.use_input_stats, .momentum = o.momentum, .eps = o.eps});
  for (auto [running, all] : {std::pair(running_mean, mean_all), std::pair(running_var, var_all)}) {
    NoGrad guard;
    if (o.use_input_stats && running.defined()) copy_(running, mean(view(all, {samples, channels}), 0));
  }
  return reshape(y, x.shape());
} catch (...) {
  fail_as("instance_norm");
}

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const NormOptions& o) {
  check_defined("layer_norm", "x", x);
  TAPIR_AUTOCAST(layer_norm, x, normalized_shape, o.weight, o.bias, o.eps);
  check_input("layer_norm", x, {&o.weight, &o.bias}, o.eps);
  check_tail("layer_norm", x, normalized_shape, o.weight, o.bias);
  return run_norm("layer_norm", x, o.weight, o.bias, {}, {}, rows_above(x, normalized_shape),
                  {.op = NormOp::Layer, .eps = o.eps, .axes = normalized_shape.size()});
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const RmsNormOptions& o) {
  check_defined("rms_norm", "x", x);
  TAPIR_AUTOCAST(rms_norm, x, normalized_shape, o.weight, o.eps);
  const double epsilon = x.dtype() == kFloat64    ? std::numeric_limits<double>::epsilon()
                         : x.dtype() == kFloat16  ? 0x1p-10
                         : x.dtype() == kBFloat16 ? 0x1p-7
                                                  : 0x1p-23;
  const double eps = o.eps.value_or(epsilon);
  check_input("rms_norm", x, {&o.weight}, eps);
  check_tail("rms_norm", x, normalized_shape, o.weight, {});
  return run_norm("rms_norm", x, o.weight, {}, {}, {}, rows_above(x, normalized_shape),
                  {.op = NormOp::Rms, .eps = eps, .axes = normalized_shape.size()});
}

Tensor group_norm(const Tensor& x, int64_t num_groups, const NormOptions& o) {
  check_defined("group_norm", "x", x);
  TAPIR_AUTOCAST(group_norm, x, num_groups, o.weight, o.bias, o.eps);
  check_input("group_norm", x, {&o.weight, &o.bias}, o.eps);
  check(x.dim() >= 2, "[group_norm] expected an input of shape (N, C, ...), got {}", x);
  const int64_t channels = x.shape()[1];
  check(num_groups > 0 && channels % num_groups == 0,
        "[group_norm] expected number of channels in input to be divisible by num_groups, but got input of shape {} "
        "and num_groups={}",
        x.shape(), num_groups);
  check_vector("group_norm", "weight", o.weight, channels), check_vector("group_norm", "bias", o.bias, channels);
  return run_norm("group_norm", x, o.weight, o.bias, {}, {}, x.shape()[0] * num_groups,
                  {.op = NormOp::Group, .eps = o.eps, .groups = num_groups});
}

}  // namespace tapir::inline v0
