// Convolutions: dtype and layout of the operands, then the kernel that suits them: winograd.h for 3 x 3 in float32 and bfloat16 that gains by
// it, conv_direct.h for float32 in channels-last order where it beats the library, dnn::conv for dense float32 and bfloat16, the
// implicit GEMM (conv_gemm.h) for all else.
#include <chrono>
#include <string>

#include "../../core/choices.h"
#include "../../core/error.h"
#include "../../core/layout.h"
#include "../dnn.h"
#include "../pack.h"
#include "../vec.h"
#include "conv_direct.h"
#include "conv_gemm.h"
#include "winograd.h"

namespace tapir::inline v0::cpu {
namespace {

dnn::ConvShape conv_shape(V x, V w, V y, const ConvParams& p) {
  dnn::ConvShape s{.n = x.sizes[0], .c = x.sizes[1], .o = y.sizes[1], .groups = p.groups, .spatial = p.spatial};
  for (int64_t d = 0; d < p.spatial; ++d) {
    s.in[d] = x.sizes[d + 2], s.out[d] = y.sizes[d + 2], s.kernel[d] = w.sizes[d + 2];
    s.stride[d] = p.stride[d], s.padding[d] = p.padding[d], s.dilation[d] = p.dilation[d];
  }
  return s;
}

/// Whether v fills its memory in the order (N, C, spatial) or (N, spatial, C). Both can be true.
bool fills(V v, bool channels_last) {
  int64_t step = 1;
  const auto next = [&](int64_t d) {
    const bool fits = v.sizes[d] == 1 || v.strides[d] == step;
    step *= v.sizes[d];
    return fits;
  };
  bool ok = !channels_last || next(1);
  for (int64_t d = v.rank; d-- > 0;)
    if (!channels_last || d != 1) ok = ok && next(d);
  return ok;
}
TensorView scratch_image(Context& ctx, V v, DType dtype, bool channels_last) {
  TensorView image = v;
  int64_t step = 1;
  if (channels_last) image.strides[1] = 1, step = v.sizes[1];
  for (int64_t d = v.rank; d-- > 0;)
    if (!channels_last || d != 1) image.strides[d] = step, step *= v.sizes[d];
  image.dtype = dtype;
  image.data = ctx.scratch(v.numel() * size_of(dtype));
  return image;
}

/// An operand in a layout and dtype that the kernels take: itself, or a copy, or memory that finish() copies back.
class Operand {
 public:
  /// only: no other layout than that, where the memory could be had in the other one.
  Operand(Context& ctx, V user, DType dtype, bool written, bool channels_last, bool only = false)
      : ctx_(ctx), user_(user), view_(user), written_(written) {
    if (user.dtype == dtype && fills(user, channels_last)) {
      last_ = channels_last;
    } else if (user.dtype == dtype && !only && fills(user, !channels_last)) {
      last_ = !channels_last;
    } else {
      last_ = channels_last;
      if (user.dtype == dtype) count_layout_conversion();
      view_ = scratch_image(ctx, user, dtype, channels_last);
      if (!written) copy(ctx, {view_, user});
    }
  }
  V view() const { return view_; }
  dnn::Image image() const { return {view_.data, last_}; }
  void finish() const {
    if (written_ && view_.data != user_.data) copy(ctx_, {user_, view_});
  }

 private:
  Context& ctx_;
  const TensorView& user_;
  TensorView view_;
  bool written_, last_;
};

/// The operands' common layout: channels last where x or y has it and the other does not forbid it.
bool prefers_channels_last(V x, V y) {
  return fills(x, true) || (fills(y, true) && !fills(x, false)) || !(fills(x, false) || fills(y, false));
}

DType conv_type(V x) {
  if (!is_floating(x.dtype)) return kInt64;
  return x.dtype == kBFloat16 && dnn::has_bfloat16() ? kBFloat16 : compute_type(x.dtype);
}

void check_type(const char* op, V x) {
  check(x.dtype != kBool, "[{}] expected a dtype of numbers, got {}", op, x.dtype);
}

/// Forward and data pass in int64, which wraps: exact, and not in a hurry.
void integer_conv(dnn::ConvPass pass, const dnn::ConvShape& s, Field<int64_t> x, Field<int64_t> w, Field<int64_t> y,
                  const int64_t* bias) {
  const bool forward = pass == dnn::ConvPass::Forward;
  check_internal(pass != dnn::ConvPass::BackwardWeight, "[conv] integers have no gradients");
  const int64_t per_group = s.c / s.groups, out_group = s.o / s.groups;
  const Pixels pixels{forward ? s.out : s.in}, positions{s.kernel};
  const int64_t channels = forward ? s.o : s.c;
  parallel_for(s.n * channels, 1, [&](int64_t first, int64_t last) {
    for (int64_t plane = first; plane < last; ++plane) {
      const int64_t n = plane / channels, channel = plane % channels;
      const int64_t group = channel / (forward ? out_group : per_group), summed = forward ? per_group : out_group;
      const Field<int64_t>&to = forward ? y : x, &from = forward ? x : y;
      for (int64_t i = 0; i < volume(pixels.extents); ++i) {
        int64_t ignored, p[3], q[3], at[3];
        pixels.locate(i, ignored, p);
        uint64_t sum = forward && bias ? uint64_t(bias[channel]) : 0;
        for (int64_t k = 0; k < volume(s.kernel); ++k) {
          positions.locate(k, ignored, q);
          if (!(forward ? source_of(s, p, q, at) : target_of(s, p, q, at))) continue;
          for (int64_t c = 0; c < summed; ++c) {
            const int64_t o = forward ? channel : group * out_group + c, in_group = forward ? c : channel % per_group;
            const int64_t other = forward ? group * per_group + c : o;
            const int64_t a = from.data[n * from.n + other * from.channel + at[0] * from.at[0] + at[1] * from.at[1] +
                                        at[2] * from.at[2]];
            const int64_t b = w.data[o * w.n + in_group * w.channel + q[0] * w.at[0] + q[1] * w.at[1] + q[2] * w.at[2]];
            sum += uint64_t(a) * uint64_t(b);
          }
        }
        to.data[n * to.n + channel * to.channel + p[0] * to.at[0] + p[1] * to.at[1] + p[2] * to.at[2]] = int64_t(sum);
      }
    }
  });
}

/// The sum of each channel of dy. Small planes are added over the images first: that adds whole rows, where a channel's own elements are a
/// few neighbours at a time (512 images of 256 planes of 2 x 2 take 34 us, not 414).
void sum_channels(Context& ctx, V dbias, V dy) {
  constexpr int64_t kFewImages = 16, kLargePlane = 1024;
  const int64_t channels = dy.sizes[1], images = dy.sizes[0];
  TensorView sums = dbias, from = dy;
  sums.rank = dy.rank;
  for (int64_t d = 0; d < dy.rank; ++d)
    sums.sizes[d] = d == 1 ? channels : 1, sums.strides[d] = d == 1 ? dbias.strides[0] : 0;
  if (images >= kFewImages && dy.numel() / images <= kLargePlane * channels && fills(dy, false)) {
    from.sizes[0] = 1, from.strides[0] = 0, from.dtype = compute_type(dy.dtype);
    from.data = ctx.scratch(from.numel() * size_of(from.dtype));
    reduce(ctx, {from, dy, {.op = ReduceOp::Sum, .dims = 1}});
  }
  reduce(ctx, {sums, from, {.op = ReduceOp::Sum, .dims = ((1u << dy.rank) - 1) & ~2u}});
}

template <class T> void run_gemm(Context& ctx, dnn::ConvPass pass, const dnn::ConvShape& s, V x, V w, V y, V bias) {
  ConvGemm<T> gemm(ctx, s, x, w, y);
  if (pass == dnn::ConvPass::Forward) return gemm.forward(bias.as<T>());
  if (pass == dnn::ConvPass::BackwardData) return gemm.backward_data();
  gemm.backward_weight();
}

/// A pass by the library or by the implicit GEMM. False: the library has no bfloat16 kernel for this shape.
bool run_kernel(Context& ctx, dnn::ConvPass pass, const dnn::ConvShape& s, const Operand& x, const Operand& w,
                const Operand& y, V bias) {
  const DType dtype = x.view().dtype;
  if (dtype != kFloat64 &&
      dnn::conv(ctx, {pass, dtype, ctx.deterministic, s, x.image(), w.image(), y.image(), bias.as<float>()}))
    return true;
  if (dtype == kBFloat16) return false;
  if (dtype == kFloat64) run_gemm<double>(ctx, pass, s, x.view(), w.view(), y.view(), bias);
  else run_gemm<float>(ctx, pass, s, x.view(), w.view(), y.view(), bias);
  return true;
}

/// One pass in float32, float64, bfloat16 or int64 over views of that dtype. bias: see Operands; absent in a data pass. False: as above.
bool run(Context& ctx, dnn::ConvPass pass, const dnn::ConvShape& s, const Operand& x, const Operand& w,
         const Operand& y, V bias) {
  const DType dtype = x.view().dtype;
  if (dtype == kInt64)
    return integer_conv(pass, s, field<int64_t>(x.view()), field<int64_t>(w.view()), field<int64_t>(y.view()),
                        bias.as<int64_t>()),
           true;
  if (pass != dnn::ConvPass::BackwardWeight) return run_kernel(ctx, pass, s, x, w, y, bias);
  if (dtype == kFloat32 && x.image().channels_last && y.image().channels_last &&
      direct_backward_weight(ctx, s, w.view(), bias, y.view().as<float>(), x.view().as<float>()))
    return true;
  if (!run_kernel(ctx, pass, s, x, w, y, {})) return false;
  if (bias.defined()) sum_channels(ctx, bias, y.view());
  return true;
}

/// The operands of a pass in the layout and dtype that its kernels take; the bias without gaps in the type of the sums, its gradient as it is.
struct Operands {
  Operand x, w, y;
  TensorView bias;
  Operands(Context& ctx, dnn::ConvPass pass, DType dtype, bool last, bool only_last, V x, V w, V y, V bias)
      : x(ctx, x, dtype, pass == dnn::ConvPass::BackwardData, last, only_last),
        w(ctx, w, dtype, pass == dnn::ConvPass::BackwardWeight, false),
        y(ctx, y, dtype, pass == dnn::ConvPass::Forward, last, only_last) {
    if (pass == dnn::ConvPass::BackwardWeight) this->bias = bias;
    else if (bias.defined()) this->bias = dense(ctx, bias, dtype == kBFloat16 ? kFloat32 : dtype);
  }
  void finish() const {
    for (const Operand* operand : {&x, &w, &y}) operand->finish();
  }
};

/// A pass in `dtype`, or in float32 where the library has no kernel of that.
void run_in(Context& ctx, dnn::ConvPass pass, DType dtype, const dnn::ConvShape& s, V x, V w, V y, V bias) {
  // A group of one channel fills no vector along planes: turning these round costs less, where the library has a kernel for them.
  const bool depthwise = s.spatial >= 2 && s.groups == s.c && s.o == s.c && s.c >= 8 && dtype != kFloat64;
  const bool last =
      depthwise || (pass == dnn::ConvPass::Forward ? prefers_channels_last(y, x) : prefers_channels_last(x, y));
  const Operands o(ctx, pass, dtype, last, depthwise, x, w, y, bias);
  if (!run(ctx, pass, s, o.x, o.w, o.y, o.bias)) return run_in(ctx, pass, kFloat32, s, x, w, y, bias);
  o.finish();
}

/// A pass by Winograd's algorithm. False: a result is not finite, and the pass is to be done directly.
bool run_tiles(Context& ctx, dnn::ConvPass pass, DType dtype, const dnn::ConvShape& s, V x, V w, V y, V bias) {
  const Operands o(ctx, pass, dtype, true, true, x, w, y, bias);
  const bool forward = pass == dnn::ConvPass::Forward;
  if (!winograd(ctx, pass, s, o.x.view(), o.w.view(), o.y.view(), forward ? o.bias.as<float>() : nullptr)) return false;
  if (!forward && bias.defined()) sum_channels(ctx, bias, o.y.view());
  o.finish();
  return true;
}

/// Is Winograd's algorithm the faster one? By trial of both on the operands at hand, once on a machine (Note [Choices kept on disk]).
bool tiles_win(const Context& ctx, dnn::ConvPass pass, DType direct, DType tiled, const dnn::ConvShape& s, V x, V w,
               V y, V bias) {
  using Clock = std::chrono::steady_clock;
  static const std::string processor = name_of_processor(), library = dnn::library();
  const std::string key =
      choice_key(processor, library, kVectorBytes,
                 tapir::format("conv {} {} {} {} {} {} {} {} {} {} {} {} {} threads {}", int(pass), name_of(x.dtype),
                               name_of(direct), s.n, s.c, s.o, s.in[0], s.in[1], s.padding[0], s.padding[1],
                               fills(x, true), fills(y, true), fills(w, false), get_num_threads()));
  const std::string kept = kept_choices().find(key);
  if (!kept.empty()) return kept == "winograd";
  Clock::duration best[2] = {Clock::duration::max(), Clock::duration::max()};
  for (int turn = 0; turn < 6; ++turn) {
    Context trial;  // of its own: each run uses blocks of scratch memory
    trial.device = ctx.device, trial.deterministic = ctx.deterministic, trial.table = ctx.table;
    const auto start = Clock::now();
    if (turn % 2 == 0 || !run_tiles(trial, pass, tiled, s, x, w, y, bias))
      run_in(trial, pass, direct, s, x, w, y, bias);
    best[turn % 2] = std::min(best[turn % 2], Clock::now() - start);
  }
  kept_choices().keep(key, best[1] < best[0] ? "winograd" : "direct");
  return best[1] < best[0];
}

void run_pass(Context& ctx, dnn::ConvPass pass, DType dtype, V x, V w, V y, V bias, const ConvParams& params) {
  const dnn::ConvShape shape = conv_shape(x, w, y, params);
  const DType tiled = x.dtype == kBFloat16 ? kBFloat16 : dtype;  // which the direct pass may have to convert
  if (allows_winograd(tiled, shape) &&
      (ctx.autotune && !ctx.deterministic ? tiles_win(ctx, pass, dtype, tiled, shape, x, w, y, bias)
                                          : suits_winograd(dtype, shape)) &&
      run_tiles(ctx, pass, tiled, shape, x, w, y, bias))
    return;
  run_in(ctx, pass, dtype, shape, x, w, y, bias);
}

}  // namespace

void conv(Context& ctx, const entry::Conv& c) {
  V y = c.y, x = c.x, w = c.w, bias = c.bias;
  check_type("conv", x);
  if (y.numel() == 0) return;
  if (c.params.relu) {  // the library's own turns NaN into 0
    entry::Conv plain = c;
    plain.params.relu = false;
    conv(ctx, plain);
    return unary(ctx, {y, y, {UnaryOp::Relu}});
  }
  if (x.numel() == 0 || w.numel() == 0) {  // no products: what is left is the bias
    if (!bias.defined()) return fill(ctx, {y, 0.0});
    TensorView b = bias;
    b.rank = y.rank;
    for (int64_t d = 0; d < y.rank; ++d) b.sizes[d] = y.sizes[d], b.strides[d] = d == 1 ? bias.strides[0] : 0;
    return copy(ctx, {y, b});
  }
  run_pass(ctx, dnn::ConvPass::Forward, conv_type(x), x, w, y, bias, c.params);
}

void conv_backward_data(Context& ctx, const entry::ConvBackwardData& c) {
  check_type("conv_backward_data", c.dx);
  if (c.dx.numel() == 0) return;
  if (c.dy.numel() == 0 || c.w.numel() == 0) return fill(ctx, {c.dx, 0.0});
  run_pass(ctx, dnn::ConvPass::BackwardData, conv_type(c.dx), c.dx, c.w, c.dy, {}, c.params);
}

void conv_backward_weight(Context& ctx, const entry::ConvBackwardWeight& c) {
  V dw = c.dw, dbias = c.dbias, dy = c.dy, x = c.x;
  check_type("conv_backward_weight", dw);
  if (dw.numel() == 0 || dy.numel() == 0 || x.numel() == 0) {
    if (dbias.defined()) sum_channels(ctx, dbias, dy);
    return fill(ctx, {dw, 0.0});
  }
  run_pass(ctx, dnn::ConvPass::BackwardWeight, conv_type(x), x, dw, dy, dbias, c.params);
}

}  // namespace tapir::inline v0::cpu
