#include <limits>
#include <numeric>

#include "../kernels.h"
#include "conv_problem.h"

// Operands and parameters of Note [Convolutions as products].
namespace tapir::inline v0::cuda_kernels {

using dnn::Pass;

namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - 512;  // what kernels count, with a tile to spare

int64_t in_whole_packs(int64_t channels, DType dtype) {
  const int64_t pack = 16 / size_of(dtype);
  return (channels + pack - 1) / pack * pack;
}

/// (N, G C, spatial) as (N, G, C, spatial); for a weight (G O, C, spatial) as (G, O, C, spatial).
TensorView by_groups(V v, int64_t dim, int64_t groups) {
  TensorView parts = v;
  ++parts.rank;
  for (int64_t d = v.rank; d > dim; --d) parts.sizes[d] = v.sizes[d - 1], parts.strides[d] = v.strides[d - 1];
  parts.sizes[dim] = groups, parts.sizes[dim + 1] = v.sizes[dim] / groups;
  parts.strides[dim + 1] = v.strides[dim], parts.strides[dim] = v.strides[dim] * parts.sizes[dim + 1];
  return parts;
}

bool is_in_packs(V v) {
  const int64_t pack = 16 / size_of(v.dtype);
  bool ok = v.sizes[2] % pack == 0 && v.strides[2] == 1 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
  for (int64_t d = 0; d < v.rank; ++d) ok = ok && (d == 2 || v.sizes[d] == 1 || v.strides[d] % pack == 0);
  return ok;
}
/// (outer, inner, channels, spatial) with channels innermost in whole packs: the view itself, or a copy with zeros behind the channels.
TensorView in_packs(Context& ctx, V v) {
  if (is_in_packs(v)) return v;
  TensorView image = v;
  image.sizes[2] = in_whole_packs(v.sizes[2], v.dtype);
  int64_t step = 1;
  const auto next = [&](int64_t d) { image.strides[d] = step, step *= image.sizes[d]; };
  next(2), next(1);
  for (int64_t d = v.rank; d-- > 3;) next(d);
  next(0);
  image.data = ctx.scratch(step * size_of(v.dtype));
  if (image.sizes[2] != v.sizes[2]) fill(ctx, {image, 0.0}), image.sizes[2] = v.sizes[2];
  copy(ctx, {image, v});
  return image;
}

/// False where a kernel's 32 bits do not reach from an image's first element to its last.
bool make_side(Side& side, V v) {
  int64_t reach = 0;
  side.data = v.data, side.outer = v.strides[0], side.inner = v.strides[1];
  for (int64_t d = 3; d < v.rank; ++d) {
    if (v.sizes[d] == 1) continue;
    reach += std::abs(v.strides[d]) * v.sizes[d];
    if (reach > kMost) return false;
    side.axis[6 - v.rank + (d - 3)] = int(v.strides[d]);
  }
  return true;
}
/// Writes `to`: y from x, or dx from dy and a weight whose rows and channels have changed places.
bool write_image(Context& ctx, V from, V weight, V to, V bias, ImageProblem& p) {
  const TensorView image = in_packs(ctx, from), rows = in_packs(ctx, weight);
  const int64_t channels = in_whole_packs(from.sizes[2], from.dtype), pack = 16 / size_of(to.dtype);
  if (!make_side(p.from, image) || !make_side(p.weight, rows) || weight.sizes[1] > kMost) return false;
  p.to = to.data, p.to_image = to.strides[0], p.to_channel = to.strides[1];
  p.packs = weight.sizes[1] % pack == 0 && p.to_channel == 1 && reinterpret_cast<uintptr_t>(to.data) % 16 == 0;
  for (int64_t d = 0; d < to.rank; ++d) {
    if (d >= 2) p.to_axis[5 - to.rank + (d - 2)] = to.strides[d];
    if (d != 1 && to.sizes[d] != 1 && to.strides[d] % pack != 0) p.packs = false;
  }
  p.bias = bias.data, p.bias_stride = bias.defined() ? bias.strides[0] : 0;
  p.images = int(to.sizes[0]), p.channels = int(channels), p.outputs = int(weight.sizes[1]);
  conv_image(ctx, to.dtype, p);
  return true;
}

}  // namespace

bool make_axes(Axis (&axes)[3], V x, V w, V y, const ConvParams& p, bool phases) {
  int64_t pixels = std::max(x.sizes[0], int64_t(1)), outputs = pixels;
  for (int64_t d = 0; d < p.spatial; ++d) {
    const int64_t kernel = w.sizes[2 + d], reach = p.dilation[d] * kernel + p.padding[d];
    pixels *= x.sizes[2 + d], outputs *= y.sizes[2 + d];
    if (pixels > kMost || outputs > kMost || reach > kMost / 4 || p.stride[d] > kMost / 4 ||
        x.sizes[2 + d] + reach > kMost / 4 || y.sizes[2 + d] * p.stride[d] > kMost / 2)
      return false;
    Axis& a = axes[3 - p.spatial + d];
    a.x = int(x.sizes[2 + d]), a.y = int(y.sizes[2 + d]), a.kernel = int(kernel);
    a.stride = int(p.stride[d]), a.padding = int(p.padding[d]), a.dilation = int(p.dilation[d]);
    a.kernel_step = a.stride / std::gcd(a.stride, a.dilation);
  }
  for (Axis& a : axes) {
    a.kernels = Divider(uint32_t(a.kernel));
    const int count = phases ? a.x / a.stride : a.y;
    for (int more : {0, 1}) a.pixels[more] = Divider(uint32_t(std::max(1, count + more)));
  }
  return true;
}

bool product_conv(Context& ctx, Pass pass, V x, V w, V y, V bias, const ConvParams& params) {
  if ((x.dtype != kFloat32 && x.dtype != kFloat16 && x.dtype != kBFloat16) || !has_warp_matrix(ctx.device))
    return false;
  Axis axes[3];
  if (!make_axes(axes, x, w, y, params, pass == Pass::BackwardData)) return false;
  const int64_t groups = params.groups;
  int64_t positions = 1;
  for (const Axis& a : axes) positions *= a.kernel;
  if (positions * in_whole_packs(std::max(w.sizes[1], y.sizes[1] / groups), w.dtype) > kMost / 2) return false;
  if (pass != Pass::BackwardWeight) {
    ImageProblem p{};
    p.groups = int(groups), p.backward = pass == Pass::BackwardData;
    std::copy(axes, axes + 3, p.axes);
    TensorView weight = by_groups(w, 0, groups);
    p.relu = params.relu;
    if (!p.backward) return write_image(ctx, by_groups(x, 1, groups), weight, y, bias, p);
    std::swap(weight.sizes[1], weight.sizes[2]), std::swap(weight.strides[1], weight.strides[2]);
    return write_image(ctx, by_groups(y, 1, groups), weight, x, {}, p);
  }
  WeightProblem p{};
  std::copy(axes, axes + 3, p.axes);
  const TensorView xs = in_packs(ctx, by_groups(x, 1, groups)), dys = in_packs(ctx, by_groups(y, 1, groups));
  if (!make_side(p.x, xs) || !make_side(p.dy, dys)) return false;
  p.images = int(x.sizes[0]), p.groups = int(groups), p.outputs = int(y.sizes[1] / groups);
  p.channels = int(in_whole_packs(w.sizes[1], w.dtype)), p.by_channels = Divider(uint32_t(p.channels));
  p.columns = int(positions) * p.channels, p.pixels = int(y.numel() / y.sizes[1]);
  conv_weight(ctx, x.dtype, p);
  add_splits(ctx, w, p.sums, p.splits, p.channels);
  return true;
}

void add_splits(Context& ctx, V dw, const float* sums, int64_t splits, int64_t channels) {
  TensorView from = dw, to = dw;
  from.rank = to.rank = dw.rank + 1;
  from.data = const_cast<float*>(sums), from.dtype = kFloat32;
  for (int64_t d = dw.rank; d > 0; --d)
    from.sizes[d] = to.sizes[d] = dw.sizes[d - 1], to.strides[d] = dw.strides[d - 1];
  int64_t step = channels;
  for (int64_t d = dw.rank; d > 2; --d) from.strides[d] = step, step *= from.sizes[d];
  from.strides[2] = 1, from.strides[1] = step;
  from.sizes[0] = splits, from.strides[0] = step * from.sizes[1];
  to.sizes[0] = 1, to.strides[0] = 0;
  reduce(ctx, {to, from, {ReduceOp::Sum, 1}});
}

}  // namespace tapir::inline v0::cuda_kernels
