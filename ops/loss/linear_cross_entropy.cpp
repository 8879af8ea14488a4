#include <algorithm>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../checked.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../matmul.h"
#include "../reduce.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"
#include "loss_front.h"

namespace tapir::inline v0 {
namespace {

constexpr const char* kName = "linear_cross_entropy";

/// x (N, D), w (C, D), target (N) int64, class_weight (C).
struct Operands {
  Tensor x, w, bias, target, class_weight;
  NllParams params;
  int64_t chunk;

  int64_t rows() const { return x.shape()[0]; }
  int64_t classes() const { return w.shape()[0]; }
  /// Columns of the logits' memory. Rows of 16 bits begin at multiples of 16 bytes on a GPU: Note [Rows of 16 bits].
  int64_t columns() const {
    const bool rounds = x.device().type == DeviceType::CUDA && size_of(x.dtype()) == 2;
    return rounds ? (classes() + 7) / 8 * 8 : classes();
  }
};
struct Gradients {
  Tensor x, w, bias;  // of w and bias in float32 at least
};

int64_t chunk_of(const Tensor& x, int64_t classes, int64_t wanted) {
  const int64_t room = int64_t(x.device().type == DeviceType::CUDA ? 512 : 32) << 20, rows = x.shape()[0];
  int64_t most = wanted ? wanted : std::max<int64_t>(1, room / std::max<int64_t>(1, classes * size_of(x.dtype())));
  if (most >= rows) return std::max<int64_t>(1, rows);
  const int64_t chunks = (rows + most - 1) / most, even = (rows + chunks - 1) / chunks;
  return std::min(most, (even + 127) / 128 * 128);  // of equal sizes, about
}

/// What is added up over the chunks: the first is kept as it is where there is no other.
void add_to(Tensor& sum, const Tensor& part, bool only) {
  if (!sum.defined()) sum = only ? part : to(part, compute_type(part.dtype()));
  else add_(sum, part);
}

/// Runs all chunks. g (N): the losses' gradients, absent where none are wanted. With `losses` (N) they are written.
class Chunks {
 public:
  Chunks(const Operands& o, Tensor losses, Tensor g, Needs needs)
      : o_(o), losses_(std::move(losses)), g_(std::move(g)), needs_(needs), wide_(o.w) {
    const TensorOptions options{.dtype = o.x.dtype(), .device = o.x.device()};
    const int64_t classes = o.classes(), columns = o.columns(), behind = columns - classes;
    room_ = empty({std::min(o.chunk, o.rows()), columns}, options);
    if (g_.defined() && needs[0]) sums_.x = empty(o.x.shape(), options);
    if (behind == 0 || !g_.defined()) return;
    narrow(room_, 1, classes, behind).zero_();
    if (!needs[0]) return;
    wide_ = empty({columns, o.w.shape()[1]}, options);  // zeros behind the classes, for the zeros behind the logits
    narrow(wide_, 0, 0, classes).copy_(o.w), narrow(wide_, 0, classes, behind).zero_();
  }
  Gradients run() {
    for (int64_t at = 0; at < o_.rows(); at += o_.chunk) run(at, std::min(o_.chunk, o_.rows() - at));
    if (g_.defined() && o_.rows() == 0) sums_.w = zeros_like(o_.w), sums_.bias = sum(room_, 0);
    return sums_;
  }

 private:
  static void product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias = {}) {
    backend(out).matmul(context(out), {.out = out, .a = a, .b = b, .bias = bias, .params = {}});
  }
  void run(int64_t at, int64_t n) {
    const Tensor x = narrow(o_.x, 0, at, n), target = narrow(o_.target, 0, at, n), all = narrow(room_, 0, 0, n),
                 logits = narrow(all, 1, 0, o_.classes());
    product(logits, x, transpose(o_.w, 0, 1), o_.bias);
    const TensorOptions options{.dtype = compute_type(x.dtype()), .device = x.device()};
    const Tensor losses = losses_.defined() ? narrow(losses_, 0, at, n) : empty({n}, options),
                 lse = empty({2, n}, options);
    Context& ctx = context(x);
    const BackendTable& table = backend(x);
    table.cross_entropy(ctx, {.losses = losses,
                              .lse = lse,
                              .logits = logits,
                              .target = target,
                              .weight = o_.class_weight,
                              .params = o_.params});
    check_values(ctx, tapir::format("[{}] target {value} at position {position}{} is out of bounds for {bound} classes",
                                    kName, at ? tapir::format(" of the rows from {} on", at) : ""));
    if (!g_.defined()) return;
    table.cross_entropy_backward(ctx, {.dlogits = logits,
                                       .dlosses = narrow(g_, 0, at, n),
                                       .lse = lse,
                                       .logits = logits,
                                       .target = target,
                                       .weight = o_.class_weight,
                                       .params = o_.params});
    const bool only = n == o_.rows();
    if (needs_[0]) product(narrow(sums_.x, 0, at, n), wide_.is_same(o_.w) ? logits : all, wide_);
    if (needs_[1]) {
      const Tensor part = empty(o_.w.shape(), {.dtype = x.dtype(), .device = x.device()});
      product(part, transpose(logits, 0, 1), x);
      add_to(sums_.w, part, only);
    }
    if (needs_[2]) add_to(sums_.bias, sum(logits, 0), only);
  }

  const Operands& o_;
  Tensor losses_, g_;
  Needs needs_;
  Tensor wide_, room_;
  Gradients sums_;
};

/// The gradients of x, w and bias, from those of the losses (N), in differentiable operations.
Grads composite_gradient(const Tensor& g, const Operands& o) {
  const Tensor d = cross_entropy_gradient(g, linear(o.x, o.w, o.bias), o.target, o.class_weight, o.params);
  return {matmul(d, o.w), matmul(transpose(d, 0, 1), o.x), o.bias.defined() ? sum(d, 0) : Tensor()};
}

Tensor losses_of_rows(const Operands& o) {
  const Tensor losses = empty({o.rows()}, {.dtype = compute_type(o.x.dtype()), .device = o.x.device()});
  {
    NoGrad guard;
    Chunks(o, losses, {}, Needs(0)).run();
  }
  return record(
      kName, losses, {o.x, o.w, o.bias}, save(o.x, o.w, o.bias, o.target, o.class_weight),
      [p = o.params, chunk = o.chunk](Needs needs, const Tensor& g, const Tensor& x, const Tensor& w,
                                      const Tensor& bias, const Tensor& target, const Tensor& weight) {
        const Operands o{x, w, bias, target, weight, p, chunk};
        const auto kernel = [&] {
          const Gradients d = Chunks(o, {}, g, needs).run();
          return Grads{d.x, needs[1] ? to(d.w, w.dtype()) : Tensor(), needs[2] ? to(d.bias, w.dtype()) : Tensor()};
        };
        return gradient_by_kernel(kName, g, kernel, [&] { return composite_gradient(g, o); });
      });
}

/// The sum of the losses, or with a total their mean, whose gradients are made with them: of a sum, for 16 bits would not hold those of a mean.
Tensor reduced_loss(const Operands& o, const Tensor& total) {
  const TensorOptions options{.dtype = compute_type(o.x.dtype()), .device = o.x.device()};
  const Tensor losses = empty({o.rows()}, options);
  Gradients d;
  Tensor y;
  {
    NoGrad guard;
    const auto wants = [](const Tensor& x) { return x.defined() && x.requires_grad(); };
    const uint64_t bits = wants(o.x) | wants(o.w) << 1 | wants(o.bias) << 2;
    d = Chunks(o, losses, bits ? expand(ones({}, options), {o.rows()}) : Tensor(), Needs(bits)).run();
    y = total.defined() ? div(sum(losses), total) : sum(losses);
  }
  return record(
      kName, y, {o.x, o.w, o.bias}, save(d.x, d.w, d.bias, total, o.x, o.w, o.bias, o.target, o.class_weight),
      [p = o.params, chunk = o.chunk](Needs needs, const Tensor& g, const Tensor& dx, const Tensor& dw,
                                      const Tensor& dbias, const Tensor& total, const Tensor& x, const Tensor& w,
                                      const Tensor& bias, const Tensor& target, const Tensor& weight) {
        const Tensor factor = total.defined() ? where(eq(total, 0), 0, div(g, total)) : g;  // 0: all are ignored
        const auto times = [&](bool needed, const Tensor& sums) {
          return needed ? to(mul(sums, factor), w.dtype()) : Tensor();
        };
        return gradient_by_kernel(
            kName, g,
            [&] {
              return Grads{times(needs[0], dx), times(needs[1], dw), times(needs[2], dbias)};
            },
            [&] {
              return composite_gradient(expand(factor, {x.shape()[0]}), {x, w, bias, target, weight, p, chunk});
            });
      });
}

void check_operands(const Tensor& x, const Tensor& w, const Tensor& target, const LinearCrossEntropyOptions& o) {
  common_device(kName, {&x, &w, &target, &o.linear_bias, &o.weight});
  check(is_floating(x.dtype()) && x.dtype() == w.dtype(),
        "[{}] expected input and linear_weight to have the same floating-point dtype, but got {} and {}", kName, x, w);
  check(x.dim() > 0 && w.dim() == 2 && x.shape().back() == w.shape()[1],
        "[{}] expected input (..., D) and linear_weight (C, D), but got {} and {}", kName, x, w);
  const int64_t classes = w.shape()[0];
  check(!o.linear_bias.defined() || (o.linear_bias.shape() == Shape{classes} && o.linear_bias.dtype() == x.dtype()),
        "[{}] expected a linear_bias of shape ({},) and input's dtype {}, got {}", kName, classes, x.dtype(),
        o.linear_bias);
  check(!o.weight.defined() || (o.weight.shape() == Shape{classes} && is_floating(o.weight.dtype())),
        "[{}] weight tensor should be defined either for all {} classes or no classes but got {}", kName, classes,
        o.weight);
  const Shape rows = std::span(x.shape().data(), size_t(x.dim() - 1));
  check(is_integral(target.dtype()) && target.shape() == rows,
        "[{}] expected labels of an integer dtype and shape {} for input {}, got {}", kName, rows, x, target);
  check(o.label_smoothing >= 0 && o.label_smoothing <= 1, "[{}] label_smoothing must be between 0.0 and 1.0. Got: {}",
        kName, o.label_smoothing);
  check(o.chunk_size >= 0, "[{}] expected a chunk_size of at least 0, got {}", kName, o.chunk_size);
  check(o.reduction != Reduction::BatchMean, "[{}] expected a reduction of none, mean or sum, got batchmean", kName);
}

Tensor run(bool wide, const Tensor& input, const Tensor& w, const Tensor& target, const LinearCrossEntropyOptions& o) {
  check_operands(input, w, target, o);
  const int64_t rows = target.numel();
  const Tensor x = reshape(input, {rows, w.shape()[1]}), labels = reshape(to(target, kInt64), {rows});
  const Operands operands{x,
                          w,
                          o.linear_bias,
                          labels,
                          o.weight,
                          {o.ignore_index, o.label_smoothing},
                          chunk_of(x, w.shape()[0], o.chunk_size)};
  Tensor y;
  if (o.reduction == Reduction::None) {
    y = reshape(losses_of_rows(operands), target.shape());
  } else {
    const bool mean = o.reduction == Reduction::Mean;
    y = reduced_loss(operands, mean ? total_of(labels, o.ignore_index, o.weight, compute_type(x.dtype())) : Tensor());
  }
  return to(y, wide ? y.dtype() : input.dtype());
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& input, const Tensor& linear_weight, const Tensor& target,
                            const LinearCrossEntropyOptions& o) {
  if (modes.autocast) [[unlikely]]
    if (detail::CastScope cast(cast_rule("linear"), input, linear_weight, o.linear_bias); cast) {
      LinearCrossEntropyOptions options = o;
      options.linear_bias = cast(o.linear_bias);
      return run(true, cast(input), cast(linear_weight), target, options);
    }
  return run(false, input, linear_weight, target, o);
}

}  // namespace tapir::inline v0
