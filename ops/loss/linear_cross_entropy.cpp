#include <algorithm>
#include <cmath>

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
  Tensor x, w, bias;  // of w (C, D) and bias (C, 1) in float32 at least, or of one chunk
};

int64_t chunk_of(const Tensor& x, int64_t classes, int64_t wanted) {
  const int64_t room = int64_t(x.device().type == DeviceType::CUDA ? 512 : 32) << 20, rows = x.shape()[0];
  // Logits as large as the weight at least: fewer rows would read it, and its gradient, more often than they are worth.
  const int64_t least = std::max<int64_t>(1, x.shape()[1]);
  const int64_t most = wanted ? wanted : std::max(least, room / std::max<int64_t>(1, classes * size_of(x.dtype())));
  if (most >= rows) return std::max<int64_t>(1, rows);
  const int64_t chunks = (rows + most - 1) / most, even = (rows + chunks - 1) / chunks;
  return std::min(most, (even + 127) / 128 * 128);  // of equal sizes, about
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
    if (o_.rows() == 0 && g_.defined() && needs_[1]) sums_.w = zeros_like(o_.w);
    if (o_.rows() == 0 && g_.defined() && needs_[2]) sums_.bias = zeros_like(o_.bias);
    return sums_;
  }

 private:
  static void product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias = {},
                      const MatmulParams& params = {}) {
    backend(out).matmul(context(out), {.out = out, .a = a, .b = b, .bias = bias, .params = params});
  }
  /// sum += logits^T x, in float32 at least. float16 may not hold a sum of so many rows: it is kept near the root of their number.
  void add_product(Tensor& sum, const Tensor& logits, const Tensor& x) {
    const Shape shape{logits.shape()[1], x.shape()[1]};
    const Tensor turned = transpose(logits, 0, 1);
    const int64_t n = x.shape()[0];
    const bool first = !sum.defined();
    if (compute_type(x.dtype()) == x.dtype()) {
      if (first) sum = empty(shape, {.dtype = x.dtype(), .device = x.device()});
      return product(sum, turned, x, {}, {.beta = first ? 0. : 1.});
    }
    const double down = x.dtype() == kFloat16 ? std::exp2(-std::floor(std::log2(double(n)) / 2)) : 1;
    const Tensor part = empty(shape, {.dtype = x.dtype(), .device = x.device()});
    product(part, turned, x, {}, {.alpha = down});
    if (!first) add_(sum, to(part, sum.dtype()), 1 / down);
    else if (n == o_.rows() && down == 1) sum = part;  // there is no other
    else sum = mul(to(part, compute_type(x.dtype())), 1 / down);
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
    if (needs_[0]) product(narrow(sums_.x, 0, at, n), wide_.is_same(o_.w) ? logits : all, wide_);
    if (needs_[1]) add_product(sums_.w, logits, x);
    if (needs_[2]) add_product(sums_.bias, logits, ones({n, 1}, {.dtype = x.dtype(), .device = x.device()}));
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
    compare_fused(kName, losses,
                  [&] { return label_losses(linear(o.x, o.w, o.bias), o.target, o.class_weight, o.params); });
  }
  return record(kName, losses, {o.x, o.w, o.bias}, save(o.x, o.w, o.bias, o.target, o.class_weight),
                [p = o.params, chunk = o.chunk](Needs needs, const Tensor& g, const Tensor& x, const Tensor& w,
                                                const Tensor& bias, const Tensor& target, const Tensor& weight) {
                  const Operands o{x, w, bias, target, weight, p, chunk};
                  const auto kernel = [&] {
                    const Gradients d = Chunks(o, {}, g, needs).run();
                    return Grads{d.x, needs[1] ? to(d.w, w.dtype()) : Tensor(),
                                 needs[2] ? reshape(to(d.bias, w.dtype()), bias.shape()) : Tensor()};
                  };
                  return gradient_by_kernel(kName, g, kernel, [&] { return composite_gradient(g, o); });
                });
}

/// The sum of the losses, or their mean, whose gradients are made with them: of losses times `share`, so that 16 bits hold them. What is
/// left of the factor is applied in float32.
Tensor reduced_loss(const Operands& o, bool mean) {
  const TensorOptions options{.dtype = compute_type(o.x.dtype()), .device = o.x.device()};
  const uint64_t bits = wants_grad({o.x}) | wants_grad({o.w}) << 1 | wants_grad({o.bias}) << 2;
  const Tensor losses = empty({o.rows()}, options);
  Tensor y, count, share = ones({}, options);  // count: what a mean divides by after `share`
  Gradients d;
  {
    NoGrad guard;
    Tensor total;
    if (mean) {
      total = count = total_of(o.target, o.params.ignore_index, {}, options.dtype.value());
      if (o.class_weight.defined()) {
        const Tensor known =
            clamp(o.target, 0, std::max<int64_t>(0, o.classes() - 1));  // the kernel refuses the others
        total = total_of(where(eq(o.target, o.params.ignore_index), o.target, known), o.params.ignore_index,
                         o.class_weight, options.dtype.value());
        share = where(eq(total, 0), 0, div(count, total));
      }
    }
    d = Chunks(o, losses, bits ? expand(share, {o.rows()}) : Tensor(), Needs(bits)).run();
    y = mean ? div(sum(losses), total) : sum(losses);
    compare_fused(kName, y, [&] {
      const Tensor plain = label_losses(linear(o.x, o.w, o.bias), o.target, o.class_weight, o.params);
      return mean ? div(sum(plain), total) : sum(plain);
    });
  }
  return record(
      kName, y, {o.x, o.w, o.bias}, save(d.x, d.w, d.bias, count, share, o.x, o.w, o.bias, o.target, o.class_weight),
      [p = o.params, chunk = o.chunk](Needs needs, const Tensor& g, const Tensor& dx, const Tensor& dw,
                                      const Tensor& dbias, const Tensor& count, const Tensor& share, const Tensor& x,
                                      const Tensor& w, const Tensor& bias, const Tensor& target, const Tensor& weight) {
        const Tensor factor = count.defined() ? where(eq(count, 0), 0, div(g, count)) : g;  // 0: all are ignored
        const auto times = [&](bool needed, const Tensor& sums, const Tensor& like) {
          return needed ? reshape(to(mul(to(sums, g.dtype()), factor), like.dtype()), like.shape()) : Tensor();
        };
        return gradient_by_kernel(
            kName, g,
            [&] {
              return Grads{times(needs[0], dx, x), times(needs[1], dw, w), times(needs[2], dbias, bias)};
            },
            [&] {
              return composite_gradient(expand(mul(factor, share), {x.shape()[0]}),
                                        {x, w, bias, target, weight, p, chunk});
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
  const Tensor y = o.reduction == Reduction::None ? reshape(losses_of_rows(operands), target.shape())
                                                  : reduced_loss(operands, o.reduction == Reduction::Mean);
  return to(y, wide ? y.dtype() : input.dtype());
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& input, const Tensor& linear_weight, const Tensor& target,
                            const LinearCrossEntropyOptions& o) {
  check_defined("linear_cross_entropy", "input", input, "linear_weight", linear_weight, "target", target);
  if (modes.autocast) [[unlikely]]
    if (detail::CastScope cast(cast_rule("linear"), input, linear_weight, o.linear_bias); cast) {
      LinearCrossEntropyOptions options = o;
      options.linear_bias = cast(o.linear_bias);
      return run(true, cast(input), cast(linear_weight), target, options);
    }
  return run(false, input, linear_weight, target, o);
}

}  // namespace tapir::inline v0
