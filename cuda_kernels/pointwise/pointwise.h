#pragma once
#include <array>

#include "../../core/dispatch.h"
#include "../../core/formulas/formula.h"
#include "../any.h"
#include "../launch.h"
#include "../layout.h"

// Note [Pointwise kernels]
// There are two kernels for a family of formulas. packed_kernel takes operands of one dtype. It moves 16 bytes at a time (8 of
// 1-byte types) where the innermost dimension is dense, or repeats one element, in all of them: so whole tensors of any dense
// order (Line), and rows and planes that meet a vector; else, for floats, element by element. general_kernel takes any strides
// and any dtypes. The operation is a switch inside of either (see Note [Formulas]), taken once a pack.
namespace tapir::inline v0::cuda_kernels {

/// An operand: elements in memory, or (data is null) a number.
template <class T> struct Input {
  const void* data = nullptr;
  T number = T(0);
  DType dtype = kFloat32;
  bool repeats = false;  // along the innermost dimension it is one element
};
template <class T, int N> struct Inputs { Input<T> of[N]; };

template <class T> inline constexpr int kWidth = sizeof(T) == 1 ? 8 : kPackSize<T>;

/// f(x[0][j], x[1][j], ...)
template <class F, class T, int N, int W> __device__ __forceinline__ auto apply(const F& f, const T (&x)[N][W], int j) {
  if constexpr (N == 1) return f(x[0][j]);
  else if constexpr (N == 2) return f(x[0][j], x[1][j]);
  else return f(x[0][j], x[1][j], x[2][j]);
}

/// The first `count` of W neighbours; one access where that is all of them.
template <class S, class T, int W> __device__ __forceinline__ void load_pack(const S* p, int count, T (&x)[W]) {
  if (count >= W) {
    const Pack<S, W> pack = *reinterpret_cast<const Pack<S, W>*>(p);
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = T(widen(pack.of[j]));
  } else {
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = j < count ? T(widen(p[j])) : T(0);
  }
}
template <class S, class T, int W> __device__ __forceinline__ void store_pack(S* p, int count, const T (&y)[W]) {
  if (count >= W) {
    Pack<S, W> pack;
#pragma unroll
    for (int j = 0; j < W; ++j) pack.of[j] = narrow<S>(y[j]);
    *reinterpret_cast<Pack<S, W>*>(p) = pack;
  } else {
#pragma unroll
    for (int j = 0; j < W; ++j)
      if (j < count) p[j] = narrow<S>(y[j]);
  }
}

/// Instead of a layout where all operands are dense in one order.
struct Line {
  int64_t numel;
};

/// `l` counts packs, its offsets are of elements; only the last pack of a line may be short. The first input holds elements of
/// type A, the others of type S.
template <class L, class R, class A, class S, int W, int N, class F>
__global__ void packed_kernel(L l, int64_t numel, R* out, Inputs<Compute<S>, N> in, F f) {
  using T = Compute<S>;
  constexpr bool line = std::is_same_v<L, Line>;
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[N + 1];
    if constexpr (!line) l.offsets(i, at);
    const int count = numel - i * W < W ? int(numel - i * W) : W;
    T x[N][W];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const auto load = [&]<class E>(const E* p) {
        if constexpr (line) at[k + 1] = in.of[k].repeats ? 0 : i * W;
        if (!in.of[k].repeats) return load_pack(p + at[k + 1], count, x[k]);
        const T number = p ? T(widen(p[at[k + 1]])) : in.of[k].number;
#pragma unroll
        for (int j = 0; j < W; ++j) x[k][j] = number;
      };
      if (k == 0) load(static_cast<const A*>(in.of[k].data));
      else load(static_cast<const S*>(in.of[k].data));
    }
    Compute<R> y[W];
    f.visit([&](const auto& g) {
#pragma unroll
      for (int j = 0; j < W; ++j) y[j] = apply(g, x, j);
    });
    if constexpr (line) at[0] = i * W;
    store_pack(out + at[0], count, y);
  }
}

template <class R, class T, int N, class F>
__global__ void general_kernel(Layout<N + 1> l, void* out, DType dtype, Inputs<T, N> in, F f) {
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[N + 1];
    l.offsets(i, at);
    T x[N][1];
#pragma unroll
    for (int k = 0; k < N; ++k)
      x[k][0] = in.of[k].data ? load_any<T>(in.of[k].data, at[k + 1], in.of[k].dtype) : in.of[k].number;
    R y{};
    f.visit([&](const auto& g) { y = apply(g, x, 0); });
    store_any(out, at[0], dtype, y);
  }
}

/// The layout in packs of W elements; false where it has none. `size[k]`: bytes of an element of operand k.
template <int K> bool pack_layout(Layout<K>& l, int width, const void* const (&data)[K], const int64_t (&size)[K]) {
  if (l.rank == 0 || (l.rank > 1 && l.sizes[0] % width != 0)) return false;
  for (int k = 0; k < K; ++k) {
    if (l.strides[k][0] == 0 && k > 0) continue;
    if (l.strides[k][0] != 1 || reinterpret_cast<uintptr_t>(data[k]) % uintptr_t(width * size[k]) != 0) return false;
    for (int d = 1; d < l.rank; ++d)
      if (l.strides[k][d] % width != 0) return false;
  }
  l.numel = (l.numel + width - 1) / width, l.sizes[0] = (l.sizes[0] + width - 1) / width;
  for (int k = 0; k < K; ++k) l.strides[k][0] *= width;
  l.small = l.numel < (int64_t(1) << 31);
  if (l.small)
    for (int d = 0; d < l.rank; ++d) l.dividers[d] = Divider(uint32_t(l.sizes[d]));
  return true;
}

/// Runs f over all elements of out; the inputs are broadcast to it and taken as T. kPacks: whether packed_kernel is wanted;
/// A: how the first input is stored where it is not stored as the others are.
template <class T, bool kPacks = true, class A = void, int N, class F>
void run_pointwise(Context& ctx, const char* op, V out, const TensorView* const (&given)[N], const F& f) {
  using R = typename F::R;
  TensorView expanded[N];
  const TensorView* views[N + 1] = {&out};
  const void* data[N + 1] = {out.data};
  int64_t size[N + 1] = {size_of(out.dtype)};
  Inputs<T, N> in;
  for (int k = 0; k < N; ++k) {
    const TensorView& v = *given[k];
    views[k + 1] = &v, in.of[k].dtype = v.dtype, size[k + 1] = size_of(v.dtype);
    if (v.is_scalar) {
      in.of[k].number = cast<T>(v.scalar);
    } else {
      expanded[k] = v.expand(out.shape());
      views[k + 1] = &expanded[k], data[k + 1] = in.of[k].data = v.data;
    }
  }
  Layout<N + 1> l = layout_of(views);
  const int64_t numel = l.numel;
  if (numel == 0) return;
  const auto packed = [&]<class S>() {
    using First = std::conditional_t<std::is_void_v<A>, S, A>;
    using Out = std::conditional_t<std::is_same_v<R, T>, S, R>;
    constexpr int width = kWidth<S>;
    bool fits = out.dtype == dtype_of<Out>;
    for (int k = 0; k < N; ++k)
      fits &= given[k]->is_scalar || given[k]->dtype == (k == 0 ? dtype_of<First> : dtype_of<S>);
    const auto run = [&]<int kW>(const auto& layout) {
      using L = std::remove_cvref_t<decltype(layout)>;
      launch(ctx, op, grid_of(l.numel), packed_kernel<L, Out, First, S, kW, N, F>, layout, numel, out.as<Out>(), in, f);
      return true;
    };
    if (!fits) return false;
    if (pack_layout(l, width, data, size)) {
      for (int k = 0; k < N; ++k) in.of[k].repeats = l.strides[k + 1][0] == 0;
      return l.rank == 1 ? run.template operator()<width>(Line{l.numel}) : run.template operator()<width>(l);
    }
    if constexpr (formulas::kReal<T>) {
      for (int k = 0; k < N; ++k) in.of[k].repeats = !in.of[k].data;
      return run.template operator()<1>(l);
    }
    return false;
  };
  if constexpr (kPacks) {
    if (packed.template operator()<T>()) return;
    if constexpr (std::is_same_v<T, float>)
      if (packed.template operator()<Half>() || packed.template operator()<BFloat16>()) return;
  }
  launch(ctx, op, grid_of(numel), general_kernel<R, T, N, F>, l, out.data, out.dtype, in, f);
}

/// Families of operations whose formulas one kernel has, with packs of 16 bytes or without.
template <bool kPacks, formulas::Family... kFamilies> struct FamilyGroup {
  static constexpr bool has(formulas::Family family) { return ((family == kFamilies) || ...); }
};
/// run(group) for the one of these groups that has the family; false where none has.
template <class... Groups, class F> bool run_group_of(formulas::Family family, F&& run) {
  return ((Groups::has(family) && (run(Groups()), true)) || ...);
}

}  // namespace tapir::inline v0::cuda_kernels
