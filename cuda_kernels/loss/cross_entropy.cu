#include "../../core/dispatch.h"
#include "../any.h"
#include "../kernels.h"
#include "../layout.h"
#include "../norm/softmax_state.h"
#include "../rows.h"
#include "../stage.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

// loss = (1 - s) w_t (lse - x_t) + s / C sum_c w_c (lse - x_c), s = label_smoothing, lse = log sum_c e^x_c.
// dx_c = p e^(x_c - lse) - w_c uniform - (picked at c = t). lse is kept as its parts top + rest, for x - top is exact where it is small.

constexpr int kLossThreads = 256, kRowThreads = 512;

struct Samples {
  Layout<5>
      at;  // all dimensions of logits but the classes, row-major: logits, target, losses or their gradient, top, dlogits
  int64_t classes, step, dstep;
  const int64_t* target;
  int64_t ignore;
  LateError* error;  // null: the forward call has reported
  /// The label of sample i, or -1 where it is ignored or (reported) out of range.
  __device__ int64_t label(int64_t i, int64_t offset) const {
    const int64_t t = target[offset];
    if (t == ignore) return -1;
    if (uint64_t(t) < uint64_t(classes)) return t;
    if (error) report_bad_value(error, i, t, classes);
    return -1;
  }
};

template <class C> struct ClassWeights {
  Flat each;           // absent: all 1
  const C* sum;        // of each, where that is needed
  C smoothing, share;  // share = smoothing / classes
  __device__ C of(int64_t c) const { return each.data ? load_float<C>(each.data, c, each.dtype) : C(1); }
};

/// What stands for each sample: losses, or their gradient, and top and rest.
template <class C> struct SampleData {
  void* losses;
  DType losses_dtype;
  C *top, *rest;
};

template <class T, class C> __device__ void write_loss(const Samples& s, const ClassWeights<C>& w, int64_t sample,
                                                       const int64_t (&at)[5], const T* x, C top, C rest, C smooth,
                                                       const SampleData<C>& out) {
  const int64_t t = s.label(sample, at[1]);
  C loss = 0;
  if (t >= 0) loss = (C(1) - w.smoothing) * w.of(t) * (top - widen(x[t * s.step]) + rest) + w.share * smooth;
  store_float(out.losses, at[2], out.losses_dtype, loss), out.top[at[3]] = top, out.rest[at[3]] = rest;
}

template <class T> __global__ void __launch_bounds__(kRowThreads, sizeof(T) == 8 ? 1 : 2)
    loss_rows(const T* logits, const Samples s, const ClassWeights<Compute<T>> w, const SampleData<Compute<T>> out,
              int lanes) {
  using C = Compute<T>;
  using State = ExpSum<C>;
  constexpr int V = kPackSize<T>;
  __shared__ State shared[32];
  __shared__ C sums[32];
  for (RowGroups g(lanes); g.base < s.at.numel; g.next()) {
    const bool live = g.row() < s.at.numel;
    int64_t at[5] = {};
    if (live) s.at.offsets(g.row(), at);
    const T* const x = logits + at[0];
    const int64_t n = live ? s.classes : 0, head = lanes < 8 ? -1 : head_of(x);
    State e = State::nothing();
    for_packs<V>(n, head, g.lane, lanes, [&]<int W>(int64_t i) {
      C v[W];
      load_pack<W>(x + i, v);
      e.add(v);
    });
    e = group_fold(e, State::nothing(), shared, lanes, typename State::Join());
    const C rest = e.log_rest();
    C smooth = 0;
    if (w.smoothing != C(0)) {
      for_packs<V>(n, head, g.lane, lanes, [&]<int W>(int64_t i) {
        C v[W];
        load_pack<W>(x + i, v);
        for (int k = 0; k < W; ++k) smooth += w.of(i + k) * (e.most - v[k] + rest);
      });
      smooth = group_fold(smooth, C(0), sums, lanes, Plus());
    }
    if (live && g.lane == 0) write_loss(s, w, g.row(), at, x, e.most, rest, smooth, out);
  }
}

template <class T> __global__ void __launch_bounds__(kLossThreads)
    loss_columns(const T* logits, const Samples s, const ClassWeights<Compute<T>> w, const SampleData<Compute<T>> out) {
  using C = Compute<T>;
  using State = ExpSum<C>;
  __shared__ State shared[kLossThreads];
  __shared__ C sums[kLossThreads];
  for (int64_t base = int64_t(blockIdx.x) * blockDim.x; base < s.at.numel; base += int64_t(gridDim.x) * blockDim.x) {
    const int64_t sample = base + threadIdx.x;
    const bool live = sample < s.at.numel;
    int64_t at[5] = {};
    if (live) s.at.offsets(sample, at);
    const T* const x = logits + at[0];
    const int64_t n = live ? s.classes : 0;
    State e = State::nothing();
    for (int64_t c = threadIdx.y; c < n; c += blockDim.y) {
      const C v[1] = {widen(x[c * s.step])};
      e.add(v);
    }
    e = column_fold(e, shared, typename State::Join());
    const C rest = e.log_rest();
    C smooth = 0;
    if (w.smoothing != C(0)) {
      for (int64_t c = threadIdx.y; c < n; c += blockDim.y) smooth += w.of(c) * (e.most - widen(x[c * s.step]) + rest);
      smooth = column_fold(smooth, sums, Plus());
    }
    if (live && threadIdx.y == 0) write_loss(s, w, sample, at, x, e.most, rest, smooth, out);
  }
}

/// Of one sample, from its label and the gradient of its loss.
template <class C> struct Slope {
  C top, rest, p, uniform, picked;
  int64_t label;

  __device__ Slope(const Samples& s, const ClassWeights<C>& w, int64_t sample, const int64_t (&at)[5],
                   const SampleData<C>& in) {
    label = s.label(sample, at[1]);
    const C g = label < 0 ? C(0) : load_float<C>(in.losses, at[2], in.losses_dtype);
    picked = label < 0 ? C(0) : g * (C(1) - w.smoothing) * w.of(label);
    uniform = g * w.share;
    p = picked + uniform * (w.sum ? *w.sum : C(s.classes));
    top = in.top[at[3]], rest = in.rest[at[3]];
    if (label < 0) top = std::numeric_limits<C>::infinity(), rest = 0;  // an ignored row of -inf has no NaN gradient
  }
  /// Logits of the classes from c on become gradients.
  template <int W> __device__ __forceinline__ void apply(C (&v)[W], int64_t c, const ClassWeights<C>& w) const {
    C shift[W] = {};
    if (uniform != C(0))
#pragma unroll
      for (int k = 0; k < W; ++k) shift[k] = w.of(c + k) * uniform;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const C y = p * exponential(v[k] - top - rest) - shift[k];
      v[k] = c + k == label ? y - picked : y;
    }
  }
};

template <class T> __global__ void __launch_bounds__(kRowThreads, sizeof(T) == 8 ? 1 : 2)
    loss_grad_rows(T* dlogits, const T* logits, const Samples s, const ClassWeights<Compute<T>> w,
                   const SampleData<Compute<T>> in, int lanes) {
  using C = Compute<T>;
  constexpr int V = kPackSize<T>;
  for (RowGroups g(lanes); g.base < s.at.numel; g.next()) {
    if (g.row() >= s.at.numel) continue;
    int64_t at[5];
    s.at.offsets(g.row(), at);
    const Slope<C> slope(s, w, g.row(), at, in);
    const T* const x = logits + at[0];
    T* const dx = dlogits + at[4];
    const bool packs = same_alignment(x, dx);
    for_packs<V>(s.classes, lanes >= 8 ? head_of(dx) : -1, g.lane, lanes, [&]<int W>(int64_t i) {
      C v[W];
      if (packs) load_pack<W>(x + i, v);
      else
#pragma unroll
        for (int k = 0; k < W; ++k) v[k] = widen(x[i + k]);
      slope.apply(v, i, w);
      store_pack<W>(dx + i, v);
    });
  }
}

template <class T> __global__ void __launch_bounds__(kLossThreads)
    loss_grad_columns(T* dlogits, const T* logits, const Samples s, const ClassWeights<Compute<T>> w,
                      const SampleData<Compute<T>> in) {
  using C = Compute<T>;
  for (const int64_t sample : grid_stride(s.at.numel)) {
    int64_t at[5];
    s.at.offsets(sample, at);
    const Slope<C> slope(s, w, sample, at, in);
    for (int64_t c = threadIdx.y; c < s.classes; c += blockDim.y) {
      C v[1] = {widen(logits[at[0] + c * s.step])};
      slope.apply(v, c, w);
      dlogits[at[4] + c * s.dstep] = narrow<T>(v[0]);
    }
  }
}

// ---- host ----

TensorView without(int64_t dim, V v) {
  TensorView s = v;
  for (int64_t d = dim + 1; d < v.rank; ++d) s.sizes[d - 1] = v.sizes[d], s.strides[d - 1] = v.strides[d];
  return s.rank = v.rank - 1, s;
}

template <class C> SampleData<C> data_of(V losses, V lse) {
  return {losses.data, losses.dtype, lse.as<C>(), lse.as<C>() + lse.strides[0]};
}

Samples samples_of(V logits, V target, V losses, V lse, V dlogits, const NllParams& params, LateError* error) {
  const TensorView rows = without(1, logits), drows = without(1, dlogits), top = without(0, lse);
  return {layout_of<5>({&rows, &target, &losses, &top, &drows}, false),
          logits.sizes[1],
          logits.strides[1],
          dlogits.strides[1],
          target.as<int64_t>(),
          params.ignore_index,
          error};
}

template <class C> ClassWeights<C> weights_of(Context& ctx, V weight, const NllParams& params, int64_t classes) {
  ClassWeights<C> w{staged(ctx, weight), nullptr, C(params.label_smoothing),
                    classes ? C(params.label_smoothing / double(classes)) : C(0)};
  if (!weight.defined() || params.label_smoothing == 0) return w;
  TensorView sum = weight;
  sum.sizes[0] = sum.strides[0] = 1, sum.dtype = dtype_of<C>, sum.data = ctx.scratch_of<C>(1);
  w.sum = sum.as<C>();
  return reduce(ctx, {sum, weight, {.op = ReduceOp::Sum, .dims = 1}}), w;
}

Grid loss_grid(int64_t samples, int64_t classes) {
  int down = 1;
  while (down < kLossThreads / 32 && down * 16 < classes) down *= 2;
  Grid grid = grid_of(samples, kLossThreads / down);
  return grid.threads = dim3(unsigned(kLossThreads / down), unsigned(down)), grid;
}

}  // namespace

void cross_entropy(Context& ctx, const entry::CrossEntropy& c) {
  const TensorView& logits = c.logits;
  const Samples s = samples_of(logits, c.target, c.losses, c.lse, logits, c.params, late_error(ctx));
  for_any_float("cross_entropy", logits.dtype, [&]<class T>() {
    const auto out = data_of<Compute<T>>(c.losses, c.lse);
    const auto w = weights_of<Compute<T>>(ctx, c.weight, c.params, s.classes);
    const int lanes = lanes_for(s.classes, 16, kRowThreads);
    if (s.step == 1)
      launch(ctx, "cross_entropy", row_grid(s.at.numel, lanes), loss_rows<T>, logits.as<T>(), s, w, out, lanes);
    else launch(ctx, "cross_entropy", loss_grid(s.at.numel, s.classes), loss_columns<T>, logits.as<T>(), s, w, out);
  });
}

void cross_entropy_backward(Context& ctx, const entry::CrossEntropyBackward& c) {
  const TensorView& logits = c.logits;
  const Samples s = samples_of(logits, c.target, c.dlosses, c.lse, c.dlogits, c.params, nullptr);
  const char* const op = "cross_entropy_backward";
  for_any_float(op, logits.dtype, [&]<class T>() {
    const auto in = data_of<Compute<T>>(c.dlosses, c.lse);
    const auto w = weights_of<Compute<T>>(ctx, c.weight, c.params, s.classes);
    const int lanes = lanes_for(s.classes, 16, kRowThreads);
    T* const dx = c.dlogits.as<T>();
    if (s.step == 1 && s.dstep == 1)
      launch(ctx, op, row_grid(s.at.numel, lanes), loss_grad_rows<T>, dx, logits.as<T>(), s, w, in, lanes);
    else launch(ctx, op, loss_grid(s.at.numel, s.classes), loss_grad_columns<T>, dx, logits.as<T>(), s, w, in);
  });
}

}  // namespace tapir::inline v0::cuda_kernels
