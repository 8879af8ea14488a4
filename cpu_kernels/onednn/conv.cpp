// Convolutions by oneDNN. Channels-last operands are handed over as they are; for others the library chooses blocked layouts,
// and they are reordered into scratch memory and back: cheaper than its kernels for plain NCHW, by a factor of 1.5.
#include <algorithm>

#include "../../core/layout.h"
#include "../conv/conv_gemm.h"
#include "../dnn.h"
#include "conv_columns.h"
#include "conv_pieces.h"
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

/// A piece of c, which it has the strides of.
struct Problem {
  const Conv& c;
  const ConvPiece& piece;
  bool turned;
  bool sums;        // it is a part of a weight's gradient, in float32
  int threads = 1;  // that compute it

  Type type() const { return type_of(c.dtype); }
  /// x or y, as they are.
  Desc user(const Image& image, int64_t ConvShape::*channels, int64_t (ConvShape::*extents)[3], bool& dense) const {
    const ConvShape &s = piece.shape, &whole = c.shape;
    const Dims sizes = activation(s, s.*channels, s.*extents), own = strides_of(sizes, 1, image.channels_last);
    Dims strides = strides_of(activation(whole, whole.*channels, whole.*extents), 1, image.channels_last);
    if (s.n == 1) strides[0] = own[0];
    dense = strides == own;
    return Desc(sizes, type(), strides);
  }
  Desc user_weight() const {
    Dims original = weight(c.shape);
    if (turned) std::swap(original[0], original[1]);
    Dims strides = strides_of(original, c.shape.groups > 1 ? 2 : 1, c.w.channels_last);
    if (turned) std::swap(strides[0], strides[1]);
    return Desc(weight(piece.shape), sums ? Type::f32 : type(), strides);
  }
};

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

std::unique_ptr<Plan> make_plan(const Problem& p, bool as_they_are) try {
  const Conv& c = p.c;
  const ConvShape& s = p.piece.shape;
  const Geometry g(s);
  const Type type = p.type();
  Plan plan;
  bool x_dense, y_dense;
  plan.x.user = p.user(c.x, &ConvShape::c, &ConvShape::in, x_dense);
  plan.y.user = p.user(c.y, &ConvShape::o, &ConvShape::out, y_dense);
  plan.w.user = p.user_weight();
  if (as_they_are && !(x_dense && y_dense)) return nullptr;
  const Dims xs = activation(s, s.c, s.in), ys = activation(s, s.o, s.out), ws = weight(s);
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
} catch (const dnnl::error& e) {
  pass_out_of_memory(e);
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

/// 2.6.3: dilated weight gradients of channels that fill no whole registers take in what lies behind x.
bool is_wrong(const Conv& c) {
  const ConvShape& s = c.shape;
  return c.pass == ConvPass::BackwardWeight && c.dtype == kBFloat16 && volume(s.dilation) > 1 &&
         (s.c / s.groups) % 16 != 0;
}

std::unique_ptr<Plan> choose_plan(const Problem& p) {
  Conv c = p.c;
  c.shape = p.piece.shape;
  std::unique_ptr<Plan> plan;
  if (is_wrong(c)) return plan;
  if (suit_as_they_are(c)) plan = make_plan(p, true);
  if (!plan) plan = make_plan(p, false);
  return plan;
}

void add_shape(Key& key, const ConvShape& s) {
  key.add(s.n, s.c, s.o);
  for (int64_t d = 0; d < s.spatial; ++d) key.add(s.in[d], s.out[d]);
}
Key key_of(const Problem& p) {
  Key key;
  const Conv& c = p.c;
  const ConvShape& s = p.piece.shape;
  key.add(p.turned, p.sums, p.threads, c.pass, c.dtype, c.x.channels_last, c.w.channels_last, c.y.channels_last,
          c.bias != nullptr, s.groups, s.spatial);
  add_shape(key, s), add_shape(key, c.shape);
  for (int64_t d = 0; d < s.spatial; ++d) key.add(s.kernel[d], s.stride[d], s.padding[d], s.dilation[d]);
  return key;
}
Plan* find(const Problem& p) {
  thread_local Cache<Plan> cache;
  return cache.find(key_of(p), [&] { return choose_plan(p); });
}

/// The weight as most pieces want it, where they do not want it as it is.
struct CommonWeight {
  Desc user, inner;
  void* data = nullptr;

  void make(Context& ctx, const Problem& p) {
    thread_local Cache<Call> cache;
    const Session team(0);
    Key key = key_of(p);
    key.add(team.threads());
    Call* const reorder = cache.find(key, [&] { return std::make_unique<Call>(make_reorder(user, inner)); });
    data = ctx.scratch(int64_t(inner.get_size()));
    reorder->run(ctx, {p.c.w.data, data});
  }
};

void* inner_memory(Context& ctx, Side& side, void* data, bool written) {
  if (!side.reorder) return data;
  void* inner = ctx.scratch(int64_t(side.inner.get_size()));
  if (!written) side.reorder.run(ctx, {data, inner});
  return inner;
}
void* move_by(void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * size_of(dtype);
}

/// w: the weight or its gradient, of which the piece is one.
void compute(Context& ctx, const Problem& p, Plan* plan, const CommonWeight& common, void* w_user) {
  check_internal(plan, "[onednn] this thread has no convolution that another one has");
  const Conv& c = p.c;
  const bool backward_weight = c.pass == ConvPass::BackwardWeight;
  void* const user[] = {move_by(c.x.data, p.piece.x, c.dtype), move_by(w_user, p.piece.w, p.sums ? kFloat32 : c.dtype),
                        move_by(c.y.data, p.piece.y, c.dtype)};
  const bool shared = common.data && plan->w.inner == common.inner;
  void* const x = inner_memory(ctx, plan->x, user[0], c.pass == ConvPass::BackwardData);
  void* const w = shared ? common.data : inner_memory(ctx, plan->w, user[1], backward_weight);
  void* const y = inner_memory(ctx, plan->y, user[2], c.pass == ConvPass::Forward);
  if (c.bias) plan->call.run(ctx, {x, w, y, c.bias + p.piece.o});
  else plan->call.run(ctx, {x, w, y});
  if (x != user[0] && c.pass == ConvPass::BackwardData) plan->x.reorder.run(ctx, {x, user[0]});
  if (w != user[1] && backward_weight) plan->w.reorder.run(ctx, {w, user[1]});
  if (y != user[2] && c.pass == ConvPass::Forward) plan->y.reorder.run(ctx, {y, user[2]});
}
void count_conversions(const Plan& plan) {
  for (const Side* side : {&plan.x, &plan.y})
    if (side->reorder) count_layout_conversion();
}

/// 1 where the work, some 10 us, is not worth waking a team; 0: all.
int team_for(const ConvShape& s) {
  return double(s.n * s.o) * double(s.c / s.groups) * double(volume(s.out)) * double(volume(s.kernel)) < 200e3 ? 1 : 0;
}
bool run_whole(Context& ctx, const Conv& c, bool turned) {
  const Session session(team_for(c.shape));
  const ConvPiece whole{.shape = c.shape};
  const Problem p{c, whole, turned, false, session.threads()};
  Plan* const plan = find(p);
  if (!plan) return false;
  count_conversions(*plan);
  compute(ctx, p, plan, {}, c.w.data);
  return true;
}

/// The gradient of the weight is the sum of its parts, in their order.
template <class T> void add_parts(T* dw, const float* parts, int64_t count, int64_t weights) {
  parallel_for(weights, 1 << 14, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      float sum = 0;
      for (int64_t part = 0; part < count; ++part) sum += parts[part * weights + i];
      dw[i] = T(sum);
    }
  });
}

/// Note [Pieces by shape].
bool run_pieces(Context& ctx, const Conv& c, bool turned) {
  const ConvPieces pieces(c, turned);
  const ConvPiece piece = pieces.common();
  const bool sums = pieces.parts() > 1;
  const Problem usual{c, piece, turned, sums};
  CommonWeight common;
  {
    const Session session(1);
    if (!pieces.each_shape([&](const ConvPiece& p) { return find({c, p, turned, sums}) != nullptr; })) return false;
    const Plan& plan = *find(usual);
    count_conversions(plan);
    if (plan.w.reorder) common.user = plan.w.user, common.inner = plan.w.inner;
  }
  if (c.pass != ConvPass::BackwardWeight && !pieces.cuts_channels() && common.user != common.inner)
    common.make(ctx, usual);
  const int64_t weights = c.shape.o * c.shape.c / c.shape.groups * volume(c.shape.kernel);
  float* const parts = sums ? ctx.scratch_of<float>(pieces.parts() * weights) : nullptr;
  for_each_piece(ctx, pieces.count(), [&](Context& mine, int64_t i) {
    const ConvPiece part = pieces.piece(i);
    const Problem p{c, part, turned, sums};
    compute(mine, p, find(p), common, sums ? parts + part.part * weights : c.w.data);
  });
  if (sums && c.dtype == kBFloat16) add_parts(static_cast<BFloat16*>(c.w.data), parts, pieces.parts(), weights);
  else if (sums) add_parts(static_cast<float*>(c.w.data), parts, pieces.parts(), weights);
  return true;
}

bool run(Context& ctx, const Conv& c, bool turned) {
  return c.by_shape ? run_pieces(ctx, c, turned) : run_whole(ctx, c, turned);
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
  Conv f{ConvPass::Forward, c.dtype, c.by_shape, c.shape, c.y, {turned_weight(ctx, c), c.w.channels_last}, c.x};
  std::swap(f.shape.c, f.shape.o);
  for (int64_t d = 0; d < c.shape.spatial; ++d) {
    std::swap(f.shape.in[d], f.shape.out[d]);
    f.shape.padding[d] = c.shape.dilation[d] * (c.shape.kernel[d] - 1) - c.shape.padding[d];
  }
  return run(ctx, f, true);
}

}  // namespace

bool conv(Context& ctx, const Conv& given) {
  Conv c = given;
  for (int64_t d = 0; d < c.shape.spatial;
       ++d) {  // unused, they keep the library from its good kernels, or overflow in it
    if (c.shape.kernel[d] == 1) c.shape.dilation[d] = 1;
    if (c.shape.out[d] == 1) c.shape.stride[d] = 1;
  }
  if (gains_as_forward(c) && backward_data_as_forward(ctx, c)) return true;
  if (weight_gradient_as_product(ctx, c)) return true;
  return run(ctx, c, false);
}

}  // namespace tapir::inline v0::cpu::dnn
