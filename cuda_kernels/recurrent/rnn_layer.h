#pragma once
#include <vector>

#include "../kernels.h"
#include "../launch.h"
#include "../vendor/blas.h"
#include "rnn_step.h"

namespace tapir::inline v0::cuda_kernels {

constexpr int gates_of(RnnOp op) { return op == RnnOp::Lstm ? 4 : op == RnnOp::Gru ? 3 : 1; }
/// Numbers of a unit in `reserve`.
constexpr int kept_of(RnnOp op) { return op == RnnOp::Lstm ? 5 : op == RnnOp::Gru ? 4 : 0; }

/// Sizes of a layer, and which rows belong to which step; batch_sizes lie on the host.
template <class T> struct RnnLayer {
  using C = Compute<T>;
  Context& ctx;
  const RnnParams& p;
  const TensorView& like;  // device
  bool packed;             // steps have rows of their own number
  int64_t batch, out, hidden, wide;
  std::vector<int64_t> begin;

  RnnLayer(Context& ctx, V w, V h0, V batch_sizes, const RnnParams& p)
      : ctx(ctx), p(p), like(w), packed(batch_sizes.defined()), batch(h0.sizes[0]), out(h0.sizes[1]),
        hidden(w.sizes[0] / gates_of(p.op)), wide(w.sizes[0]), begin(size_t(p.steps) + 1) {
    for (size_t t = 0; t < size_t(p.steps); ++t)
      begin[t + 1] = begin[t] + (packed ? batch_sizes.as<int64_t>()[t] : batch);
  }
  int64_t first(int64_t t) const { return begin[size_t(t)]; }
  int64_t rows(int64_t t) const { return t < 0 || t >= p.steps ? 0 : first(t + 1) - first(t); }
  int64_t total() const { return begin.back(); }
  /// The k-th step in the order of the forward pass.
  int64_t step(int64_t k) const { return p.reverse ? p.steps - 1 - k : k; }
  /// `states` holds `width` numbers of each row, `stride` apart.
  template <class S> Before<S> before(int64_t t, const S* states, int64_t stride, const S* start) const {
    const int64_t s = p.reverse ? t + 1 : t - 1;
    if (rows(s) == 0) return {nullptr, 0, stride, start};
    return {states + first(s) * stride, rows(s), stride, start};
  }
  template <class S> TensorView matrix(const S* data, int64_t rows, int64_t columns, bool transposed = false) const {
    TensorView v = like;
    v.data = const_cast<S*>(data), v.dtype = dtype_of<S>, v.rank = 2;
    v.sizes[0] = transposed ? columns : rows, v.sizes[1] = transposed ? rows : columns;
    v.strides[0] = transposed ? 1 : columns, v.strides[1] = transposed ? columns : 1;
    return v;
  }
  /// A product gives its scratch memory back at once: a context holds only so many pieces.
  void product(V to, V a, V b, double beta = 0) const {
    Context step;
    step.device = ctx.device, step.deterministic = ctx.deterministic, step.stream = ctx.stream, step.table = ctx.table;
    matmul(step, {.out = to, .a = a, .b = b, .params = {.beta = beta}});
  }
  /// Is a step one kernel, of rows of the state `depth` long that begin at these places?
  bool in_one_kernel(int64_t depth, std::initializer_list<const void*> places) const {
    const bool tf32 = std::is_same_v<T, float> && settings->matmul_allow_tf32.load(std::memory_order_relaxed);
    // Multiplications: beyond, the library's rate, which is higher yet in TF32, saves more than a launch costs.
    const int64_t most = int64_t(1) << (tf32 ? 26 : 28);
    for (const void* place : places)
      if (!blas::is_aligned(place)) return false;
    return depth % kPackSize<T> == 0 && batch * wide * out <= most && (sizeof(T) > 2 || has_warp_matrix(ctx.device));
  }
};

/// f.operator()<T, op>() of a call's element type and operation; Tanh stands for Relu too.
template <class F> void for_rnn(DType dtype, RnnOp op, F&& f) {
  const auto typed = [&]<class T>() {
    if (op == RnnOp::Lstm) f.template operator()<T, RnnOp::Lstm>();
    else if (op == RnnOp::Gru) f.template operator()<T, RnnOp::Gru>();
    else f.template operator()<T, RnnOp::Tanh>();
  };
  if (dtype == kFloat64) typed.template operator()<double>();
  else if (dtype == kFloat32) typed.template operator()<float>();
  else if (dtype == kFloat16) typed.template operator()<Half>();
  else typed.template operator()<BFloat16>();
}

}  // namespace tapir::inline v0::cuda_kernels
