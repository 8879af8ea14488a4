#include "../kernel.h"
#include "../launch.h"
#include "conv.h"

// Convolutions as plain loops over what meets in one element of the result. Sums of integers wrap.
namespace tapir::inline v0::cuda_kernels {
namespace {

/// An image or weight with three spatial axes, missing ones of extent 1.
struct Field {
  void* data;
  int64_t sizes[5], strides[5];
};
struct Shape3 {
  Field x, w, y;
  int64_t in_group, out_group, stride[3], padding[3], dilation[3];
  const void* bias;
  int64_t bias_stride;
  bool relu;  // of y, where that is of floats
};

/// The place of an element, from its row-major number.
__device__ inline void locate(const Field& f, int64_t i, int64_t (&at)[5]) {
  for (int d = 4; d >= 0; --d) at[d] = i % f.sizes[d], i /= f.sizes[d];
}
__device__ inline int64_t numel(const Field& f) {
  return f.sizes[0] * f.sizes[1] * f.sizes[2] * f.sizes[3] * f.sizes[4];
}
template <class T> __device__ T& element(const Field& f, const int64_t (&at)[5]) {
  int64_t offset = 0;
  for (int d = 0; d < 5; ++d) offset += at[d] * f.strides[d];
  return static_cast<T*>(f.data)[offset];
}
/// Which input pixel output pixel `to` sees at kernel position q; false where that is padding.
__device__ inline bool source_of(const Shape3& s, const int64_t (&to)[5], const int64_t (&q)[5], int64_t (&from)[5]) {
  for (int d = 0; d < 3; ++d) {
    from[d + 2] = to[d + 2] * s.stride[d] - s.padding[d] + q[d + 2] * s.dilation[d];
    if (from[d + 2] < 0 || from[d + 2] >= s.x.sizes[d + 2]) return false;
  }
  return true;
}
/// Which output pixel used input pixel `from` at kernel position q.
__device__ inline bool target_of(const Shape3& s, const int64_t (&from)[5], const int64_t (&q)[5], int64_t (&to)[5]) {
  for (int d = 0; d < 3; ++d) {
    const int64_t up = from[d + 2] + s.padding[d] - q[d + 2] * s.dilation[d];
    to[d + 2] = up / s.stride[d];
    if (up < 0 || up % s.stride[d] != 0 || to[d + 2] >= s.y.sizes[d + 2]) return false;
  }
  return true;
}

template <class T> __global__ void direct_forward_kernel(Shape3 s) {
  using Sum = typename ProductSumOf<T>::type;
  for (const int64_t i : grid_stride(numel(s.y))) {
    int64_t at[5], from[5], q[5];
    locate(s.y, i, at);
    from[0] = at[0], q[0] = at[1];
    const int64_t first = at[1] / s.out_group * s.in_group;
    Sum sum = s.bias ? Sum(static_cast<const T*>(s.bias)[at[1] * s.bias_stride]) : Sum(0);
    for (q[2] = 0; q[2] < s.w.sizes[2]; ++q[2])
      for (q[3] = 0; q[3] < s.w.sizes[3]; ++q[3])
        for (q[4] = 0; q[4] < s.w.sizes[4]; ++q[4]) {
          if (!source_of(s, at, q, from)) continue;
          for (q[1] = 0; q[1] < s.in_group; ++q[1]) {
            from[1] = first + q[1];
            sum += Sum(element<T>(s.x, from)) * Sum(element<T>(s.w, q));
          }
        }
    if constexpr (std::is_floating_point_v<Sum>)
      if (s.relu && sum < 0) sum = 0;
    element<T>(s.y, at) = T(sum);
  }
}

template <class T> __global__ void direct_data_kernel(Shape3 s) {
  using Sum = typename ProductSumOf<T>::type;
  for (const int64_t i : grid_stride(numel(s.x))) {
    int64_t at[5], to[5], q[5];
    locate(s.x, i, at);
    to[0] = at[0], q[1] = at[1] % s.in_group;
    const int64_t first = at[1] / s.in_group * s.out_group;
    Sum sum = Sum(0);
    for (q[2] = 0; q[2] < s.w.sizes[2]; ++q[2])
      for (q[3] = 0; q[3] < s.w.sizes[3]; ++q[3])
        for (q[4] = 0; q[4] < s.w.sizes[4]; ++q[4]) {
          if (!target_of(s, at, q, to)) continue;
          for (int64_t o = 0; o < s.out_group; ++o) {
            to[1] = q[0] = first + o;
            sum += Sum(element<T>(s.y, to)) * Sum(element<T>(s.w, q));
          }
        }
    element<T>(s.x, at) = T(sum);
  }
}

/// One block for each weight: its threads share out the pixels of all images.
template <class T> __global__ void direct_weight_kernel(Shape3 s) {
  using Sum = typename ProductSumOf<T>::type;
  __shared__ Sum shared[32];
  const int64_t pixels = numel(s.y) / s.y.sizes[1];
  for (int64_t i = blockIdx.x; i < numel(s.w); i += gridDim.x) {
    int64_t q[5];
    locate(s.w, i, q);
    Sum sum = Sum(0);
    for (int64_t j = threadIdx.x; j < pixels; j += blockDim.x) {
      int64_t at[5], from[5], rest = j;
      for (int d = 4; d >= 2; --d) at[d] = rest % s.y.sizes[d], rest /= s.y.sizes[d];
      at[0] = from[0] = rest, at[1] = q[0];
      if (!source_of(s, at, q, from)) continue;
      from[1] = q[0] / s.out_group * s.in_group + q[1];
      sum += Sum(element<T>(s.y, at)) * Sum(element<T>(s.x, from));
    }
    sum = block_fold(sum, Sum(0), shared, Plus());
    if (threadIdx.x == 0) element<T>(s.w, q) = T(sum);
  }
}

Field field(V v) {
  Field f{v.data, {1, 1, 1, 1, 1}, {0, 0, 0, 0, 0}};
  for (int64_t d = 0; d < v.rank; ++d) {
    const int64_t to = d < 2 ? d : 5 - v.rank + d;
    f.sizes[to] = v.sizes[d], f.strides[to] = v.strides[d];
  }
  return f;
}

template <class T> void run(Context& ctx, dnn::Pass pass, const Shape3& s, V x, V w, V y) {
  if (pass == dnn::Pass::Forward) launch(ctx, "conv", grid_of(y.numel(), 128), direct_forward_kernel<T>, s);
  else if (pass == dnn::Pass::BackwardData)
    launch(ctx, "conv_backward_data", grid_of(x.numel(), 128), direct_data_kernel<T>, s);
  else launch(ctx, "conv_backward_weight", Grid{grid_of(w.numel(), 1).blocks, dim3(128)}, direct_weight_kernel<T>, s);
}

}  // namespace

void direct_conv(Context& ctx, dnn::Pass pass, V x, V w, V y, V bias, const ConvParams& p) {
  Shape3 s{field(x),  field(w),  field(y), w.sizes[1], y.sizes[1] / p.groups, {1, 1, 1}, {0, 0, 0},
           {1, 1, 1}, bias.data, 0,        p.relu};
  if (bias.defined()) s.bias_stride = bias.strides[0];
  for (int64_t d = 0; d < p.spatial; ++d) {
    const int64_t to = 3 - p.spatial + d;
    s.stride[to] = p.stride[d], s.padding[to] = p.padding[d], s.dilation[to] = p.dilation[d];
  }
  switch (x.dtype) {
    case kFloat32: return run<float>(ctx, pass, s, x, w, y);
    case kFloat64: return run<double>(ctx, pass, s, x, w, y);
    case kFloat16: return run<Half>(ctx, pass, s, x, w, y);
    case kBFloat16: return run<BFloat16>(ctx, pass, s, x, w, y);
    case kInt64: return run<uint64_t>(ctx, pass, s, x, w, y);
    case kInt32: return run<uint32_t>(ctx, pass, s, x, w, y);
    case kInt16: return run<uint16_t>(ctx, pass, s, x, w, y);
    default: return run<uint8_t>(ctx, pass, s, x, w, y);
  }
}

}  // namespace tapir::inline v0::cuda_kernels
