// Convolutions by oneDNN. Channels-last operands are handed over as they are; for others the library chooses blocked layouts,
// and they are reordered into scratch memory and back: cheaper than its kernels for plain NCHW, by a factor of 1.5.
#include <algorithm>

#include "../../core/layout.h"
#include "../dnn.h"
#include "conv_columns.h"
#include "library.h"

namespace tapir::inline v0::cpu::dnn {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;
constexpr auto kAny = dnnl::memory::format_tag::any;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

/// One operand: as the caller has it, as the kernel wants it, and the reorder between the two where they differ.
struct Side {
  Desc user, inner;
  Call reorder;
};
struct Plan {
  Call call;
  Side x, w, y;
};

/// Strides of `sizes` with the axis `channel` innermost or in its place.
Dims strides_of(const Dims& sizes, size_t channel, bool channels_last) {
  Dims strides(sizes.size());
  int64_t step = 1;
  if (channels_last) strides[channel] = 1, step = sizes[channel];
  for (size_t d = sizes.size(); d-- > 0;)
    if (!channels_last || d != channel) strides[d] = step, step *= sizes[d];
  return strides;
}
Dims activation(const ConvShape& s, int64_t channels, const int64_t* extents) {
  Dims d{s.n, channels};
  d.insert(d.end(), extents, extents + s.spatial);
  return d;
}
Dims weight(const ConvShape& s) {
  Dims d{s.o / s.groups, s.c / s.groups};
  if (s.groups > 1) d.insert(d.begin(), s.groups);
  d.insert(d.end(), s.kernel, s.kernel + s.spatial);
  return d;
}

struct Geometry {
  Dims stride, dilation, before, after;
  explicit Geometry(const ConvShape& s) {
    for (int64_t d = 0; d < s.spatial; ++d) {
      const int64_t reach = (s.kernel[d] - 1) * s.dilation[d] + 1;
      stride.push_back(s.stride[d]), dilation.push_back(s.dilation[d] - 1), before.push_back(s.padding[d]);
      after.push_back((s.out[d] - 1) * s.stride[d] + reach - s.in[d] -
                      s.padding[d]);  // may be negative: rows never read
    }
  }
};

/// Binds the kernel that `desc` chose to the caller's operands.
template <class P, class PD>
std::unique_ptr<Plan> bind(const PD& desc, Plan plan, std::array<int, 3> names, const Desc* bias) {
  plan.call = Call(P(desc), desc.scratchpad_desc());
  const Desc* inner[] = {&plan.x.inner, &plan.w.inner, &plan.y.inner};
  for (size_t i = 0; i < 3; ++i) plan.call.argument(names[i], *inner[i]);
  if (bias) plan.call.argument(DNNL_ARG_BIAS, *bias);
  return std::make_unique<Plan>(std::move(plan));
}
void join(Side& side, bool written) {
  if (side.user == side.inner) return;
  side.reorder = written ? make_reorder(side.inner, side.user) : make_reorder(side.user, side.inner);
}

/// turned: c is a forward pass with the weight of another (see backward_data_as_forward): O and C are swapped in memory.
std::unique_ptr<Plan> make_plan(const Conv& c, bool as_they_are, bool turned) try {
  const ConvShape& s = c.shape;
  const Geometry g(s);
  const Type type = type_of(c.dtype);
  const Dims xs = activation(s, s.c, s.in), ys = activation(s, s.o, s.out), ws = weight(s);
  Plan plan;
  plan.x.user = Desc(xs, type, strides_of(xs, 1, c.x.channels_last));
  plan.y.user = Desc(ys, type, strides_of(ys, 1, c.y.channels_last));
  Dims original = ws;
  if (turned) std::swap(original[0], original[1]);
  Dims w_strides = strides_of(original, s.groups > 1 ? 2 : 1, c.w.channels_last);
  if (turned) std::swap(w_strides[0], w_strides[1]);
  plan.w.user = Desc(ws, type, w_strides);
  const Desc x = as_they_are ? plan.x.user : Desc(xs, type, kAny), y = as_they_are ? plan.y.user : Desc(ys, type, kAny);
  const Desc w(ws, c.pass == ConvPass::BackwardWeight ? Type::f32 : type, kAny), w_forward(ws, type, kAny);
  const Desc bias = c.bias ? Desc({s.o}, Type::f32, dnnl::memory::format_tag::a) : Desc();
  const auto attr = attributes();
  const auto finish = [&](const auto& desc, auto primitive, const Desc& xi, const Desc& wi, const Desc& yi,
                          std::array<int, 3> names) {
    plan.x.inner = xi, plan.w.inner = wi, plan.y.inner = yi;
    join(plan.x, c.pass == ConvPass::BackwardData), join(plan.w, c.pass == ConvPass::BackwardWeight),
        join(plan.y, c.pass == ConvPass::Forward);
    return bind<decltype(primitive)>(desc, std::move(plan), names, c.bias ? &bias : nullptr);
  };
  const auto kind =
      c.pass == ConvPass::Forward ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
  const auto forward = describe<dnnl::convolution_forward>(attr, kind, kDirect, x, w_forward, bias, y, g.stride,
                                                           g.dilation, g.before, g.after);
  if (c.pass == ConvPass::Forward) {
    if (!is_good(forward)) return nullptr;
    return finish(forward, dnnl::convolution_forward(), forward.src_desc(), forward.weights_desc(), forward.dst_desc(),
                  {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST});
  }
  if (c.pass == ConvPass::BackwardData) {
    const auto desc = describe_backward<dnnl::convolution_backward_data>(attr, forward, kDirect, x, w, y, g.stride,
                                                                         g.dilation, g.before, g.after);
    if (!is_good(desc)) return nullptr;
    return finish(desc, dnnl::convolution_backward_data(), desc.diff_src_desc(), desc.weights_desc(),
                  desc.diff_dst_desc(), {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST});
  }
  const auto desc = describe_backward<dnnl::convolution_backward_weights>(attr, forward, kDirect, x, w, bias, y,
                                                                          g.stride, g.dilation, g.before, g.after);
  if (!is_good(desc)) return nullptr;
  return finish(desc, dnnl::convolution_backward_weights(), desc.src_desc(), desc.diff_weights_desc(),
                desc.diff_dst_desc(), {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST});
} catch (const dnnl::error&) {
  return nullptr;
}

/// Measured with 2.6.3 on AVX-512: plain NCHW pays for the few channels of a first layer alone; channels last always but for
/// the forward pass on narrow images.
bool suit_as_they_are(const Conv& c) {
  if (!c.x.channels_last && !c.y.channels_last)
    return c.shape.c / c.shape.groups <= 4 && c.pass != ConvPass::BackwardWeight;
  if (!c.x.channels_last || !c.y.channels_last) return false;
  // 2.6.3: of 1 x 1 with strides and channels that fill no whole registers, it writes past the end of its memory.
  const auto all = [](const int64_t* n) { return n[0] * n[1] * n[2]; };
  if (c.pass == ConvPass::BackwardWeight && c.shape.c % 16 != 0 && all(c.shape.kernel) == 1 && all(c.shape.stride) > 1)
    return false;
  return c.pass != ConvPass::Forward || c.shape.out[c.shape.spatial - 1] > 5;
}

std::unique_ptr<Plan> choose_plan(const Conv& c, bool turned) {
  std::unique_ptr<Plan> plan;
  if (suit_as_they_are(c)) plan = make_plan(c, true, turned);
  if (!plan) plan = make_plan(c, false, turned);
  return plan;
}

void* inner_memory(Context& ctx, Side& side, void* data, bool written) {
  if (!side.reorder) return data;
  void* inner = ctx.scratch(int64_t(side.inner.get_size()));
  if (!written) side.reorder.run(ctx, {data, inner});
  return inner;
}

Key key_of(const Conv& c, int threads, bool turned) {
  Key key;
  const ConvShape& s = c.shape;
  key.add(threads, turned, c.pass, c.dtype, c.x.channels_last, c.w.channels_last, c.y.channels_last, c.bias != nullptr,
          s.n, s.c, s.o, s.groups, s.spatial);
  for (int64_t d = 0; d < s.spatial; ++d)
    key.add(s.in[d], s.out[d], s.kernel[d], s.stride[d], s.padding[d], s.dilation[d]);
  return key;
}

/// 1 where the work, some 10 us, is not worth waking a team; 0: all.
int team_for(const ConvShape& s) {
  double products = double(s.n * s.o) * double(s.c / s.groups);
  for (int64_t d = 0; d < s.spatial; ++d) products *= double(s.out[d] * s.kernel[d]);
  return products < 200e3 ? 1 : 0;
}

bool run(Context& ctx, const Conv& c, bool turned) {
  thread_local Cache<Plan> cache;
  const Session session(team_for(c.shape));
  Plan* plan = cache.find(key_of(c, session.threads(), turned), [&] { return choose_plan(c, turned); });
  if (!plan) return false;
  void* x = inner_memory(ctx, plan->x, c.x.data, c.pass == ConvPass::BackwardData);
  void* w = inner_memory(ctx, plan->w, c.w.data, c.pass == ConvPass::BackwardWeight);
  void* y = inner_memory(ctx, plan->y, c.y.data, c.pass == ConvPass::Forward);
  for (const bool reordered : {x != c.x.data, y != c.y.data})
    if (reordered) count_layout_conversion();
  if (c.bias) plan->call.run(ctx, {x, w, y, c.bias});
  else plan->call.run(ctx, {x, w, y});
  if (x != c.x.data && c.pass == ConvPass::BackwardData) plan->x.reorder.run(ctx, {x, c.x.data});
  if (w != c.w.data && c.pass == ConvPass::BackwardWeight) plan->w.reorder.run(ctx, {w, c.w.data});
  if (y != c.y.data && c.pass == ConvPass::Forward) plan->y.reorder.run(ctx, {y, c.y.data});
  return true;
}

/// With stride 1 the data gradient is itself a convolution, of dy with the weight turned by 180 degrees and O and C swapped, and
/// the library's forward kernels are 10 to 20 % faster than its backward ones. Where dx is larger than dy, padding eats that.
bool gains_as_forward(const Conv& c) {
  const ConvShape& s = c.shape;
  bool fits = c.pass == ConvPass::BackwardData && c.x.channels_last && c.y.channels_last && s.groups == 1 && s.c >= 16;
  for (int64_t d = 0; d < s.spatial; ++d)
    fits = fits && s.stride[d] == 1 && s.in[d] <= s.out[d] && s.padding[d] <= s.dilation[d] * (s.kernel[d] - 1);
  return fits && s.in[s.spatial - 1] > 5;
}

/// The weight's kernel positions in reverse order, the rest as it was.
void* turned_weight(Context& ctx, const Conv& c) {
  const ConvShape& s = c.shape;
  const int64_t positions = s.kernel[0] * s.kernel[1] * s.kernel[2], width = c.w.channels_last ? s.c : 1;
  if (positions == 1) return c.w.data;
  const int64_t blocks = s.o * s.c / width, bytes = width * size_of(c.dtype), block = positions * bytes;
  char* turned = static_cast<char*>(ctx.scratch(blocks * block));
  const char* from = static_cast<const char*>(c.w.data);
  const auto turn = [&]<class T>(T) {
    for (int64_t i = 0; i < blocks; ++i) {
      const T* at = reinterpret_cast<const T*>(from + i * block);
      std::reverse_copy(at, at + positions, reinterpret_cast<T*>(turned + i * block));
    }
  };
  if (bytes == 4) turn(uint32_t());
  else if (bytes == 2) turn(uint16_t());
  else
    for (int64_t i = 0; i < blocks * positions; ++i)
      std::memcpy(turned + i * bytes, from + (i / positions * positions + positions - 1 - i % positions) * bytes,
                  size_t(bytes));
  return turned;
}

bool backward_data_as_forward(Context& ctx, const Conv& c) {
  Conv f{ConvPass::Forward, c.dtype, c.shape, c.y, {turned_weight(ctx, c), c.w.channels_last}, c.x};
  std::swap(f.shape.c, f.shape.o);
  for (int64_t d = 0; d < c.shape.spatial; ++d) {
    std::swap(f.shape.in[d], f.shape.out[d]);
    f.shape.padding[d] = c.shape.dilation[d] * (c.shape.kernel[d] - 1) - c.shape.padding[d];
  }
  return run(ctx, f, true);
}

}  // namespace

bool conv(Context& ctx, const Conv& c) {
  if (gains_as_forward(c) && backward_data_as_forward(ctx, c)) return true;
  if (weight_gradient_as_product(ctx, c)) return true;
  return run(ctx, c, false);
}

}  // namespace tapir::inline v0::cpu::dnn
