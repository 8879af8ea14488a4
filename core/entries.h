#pragma once
// Note [Entries]
// A kernel entry is declared once, here: a struct that names its operands, says what it does with each, and ends with its parameters. The
// list at the end of the file makes of it the table of a device (core/backend.h), the declarations of its kernels (`norm(Context&, const
// entry::Norm&)`), tracing, recording, names in profiles, and the rule by which compile() orders calls. A caller writes
//   backend(x).norm(context(x), {.y = y, .x = x, .params = {NormOp::Layer}});
// and a pass of compile() asks `is<entry::Norm>(call)` and `call[&entry::Norm::running_var]`.
// An operand with `= {}` may be left out: then its defined() is false.
#include <initializer_list>
#include <vector>

#include "params.h"
#include "view.h"

namespace tapir::inline v0 {

/// Shapes fit and dtypes are promoted; views may have any strides (0 too); an output never overlaps an input but by being the same view.
/// "(optional)": a device may lack the entry, and the operations above then use their composite form.
/// An entry whose access depends on its parameters has access(as declared, parameters).
namespace entry {

/// What a kernel does with an operand: Write replaces all elements that the view names, Update reads them first.
enum class Access : uint8_t { Read, Write, Update };

/// An operand. `kAccess` is what the kernel does with it.
template <Access A> struct ViewOf : TensorView {
  static constexpr Access kAccess = A;
  ViewOf() {}  // not defaulted: `= {}` would set all of it to zero, sizes and strides too
  ViewOf(const TensorView& v) : TensorView(v) {}
  ViewOf(const Tensor& x) : TensorView(x) {}
};
using In = ViewOf<Access::Read>;
using Out = ViewOf<Access::Write>;
using InOut = ViewOf<Access::Update>;

/// A list of operands, which somebody else holds. Braces live until the end of the full expression: a struct made of them is not kept.
template <Access A> struct ViewsOf : std::span<const TensorView> {
  static constexpr Access kAccess = A;
  ViewsOf() = default;
  ViewsOf(std::span<const TensorView> views) : span(views) {}
  ViewsOf(const std::vector<TensorView>& views) : span(views) {}
  ViewsOf(std::initializer_list<TensorView> views) : span(views.begin(), views.size()) {}
  template <size_t n> ViewsOf(const TensorView (&views)[n]) : span(views) {}
};
using Ins = ViewsOf<Access::Read>;
using Outs = ViewsOf<Access::Write>;
using InOuts = ViewsOf<Access::Update>;

// ---- copies and pointwise ----
struct Copy {  // converts the dtype: floats to integers truncate and saturate, NaN gives 0
  Out out;
  In x;
};
struct Copies {  // (optional) Copy of each x, of which there are as many; no operation calls it, compile() does
  Outs outs;
  Ins xs;
};
struct Fill {
  Out out;
  Scalar value;
};
struct Range {  // out is 1-d
  Out out;
  RangeParams params;
};
struct Random {
  Out out;
  In p = {};     // probabilities, of BernoulliTensor
  In base = {};  // 0-dim int64, added to the offset, for replay
  RandomParams params;
};
struct Unary {
  Out out;
  In x;
  UnaryParams params;
};
struct Binary {
  Out out;
  In a, b;
  BinaryParams params;
};
struct Ternary {
  Out out;
  In a, b, c;
  TernaryParams params;
};
/// (optional) Many of these in one pass: Note [Fused calls]. No operation calls it; compile() makes the calls.
struct Fused {
  Outs outs;
  Ins ins;
  const FusedParams* params;
};

// ---- reductions: out keeps the reduced dimensions with extent 1 ----
struct Reduce {
  Out out;
  In x;
  ReduceParams params;
};
struct ArgReduce {
  Out out;
  In x;
  ArgReduceParams params;
};
struct Scan {
  Out out, indices = {};  // indices: int64, of CumMax and CumMin
  In x;
  ScanParams params;
};
struct Histogram {
  Out out;  // (bins)
  In x, weights = {};
  HistogramParams params;
};
struct Sort {
  Out values = {}, indices;  // values: of x's dtype; indices: int64
  In x;
  SortParams params;
};
/// out (..., m) int64: how many elements of `sorted` (..., n) come before each of `values` (..., m), of one dtype.
struct Search {
  Out out;
  In sorted, values;
  SearchParams params;
};

// ---- indexing: index tensors are int64 ----
struct Gather {
  Out out;
  In x, index;
  GatherParams params;
};
struct Scatter {  // into out, which holds the start values
  InOut out;
  In index, source;
  ScatterParams params;
};
/// out[i..., rest] = x[indices[0][i...], indices[1][i...], ..., rest]: the first `indices.size()` dimensions are indexed by tensors of one
/// shape.
struct Index {
  Out out;
  In x;
  Ins indices;
  IndexParams params;
};
struct IndexPut {
  InOut out;
  In source;
  Ins indices;
  IndexParams params;
};
struct CountNonzero {
  using Result = int64_t;
  In x;
};
struct Nonzero {
  Out out;  // (count, rank) int64
  In x;
};

// ---- linear algebra and networks ----
struct Matmul {
  Out out;
  In a, b, bias = {};
  Out aux = {};
  In before = {};
  MatmulParams params;
  static constexpr Access access(Access declared, const MatmulParams& p) {
    return declared == Access::Write && p.beta != 0 ? Access::Update : declared;  // with a beta there is no aux
  }
};
/// (optional) both, float32; x and y of products may be of 16 bits: y (M, N) = x (M, K) w^T + bias, and a convolution with w (O, C / groups,
/// ...) int8, w_scale (O). x_scale (float32) and x_zero (int32), 0-dim, are those of Static and of convolutions: uint8 = round(x / x_scale) + x_zero.
struct QuantMatmul {
  Out y;
  In x, x_scale = {}, x_zero = {}, w, w_scale, bias = {};
  QuantMatmulParams params;
};
struct QuantConv {
  Out y;
  In x, x_scale = {}, x_zero = {}, w, w_scale, bias = {};
  ConvParams params;
};
/// (optional) both. out (M, K) and transposed (K, M), each where defined: round(x (M, K) / scale) as bytes of 8-bit floats, contiguous;
/// scale (0-dim float32): the largest |x| over the format's largest number; 1 where x is 0. NaN and infinity become NaN.
struct ToFloat8 {
  Out out = {}, transposed = {}, scale;
  In x;
  ToFloat8Params params;
};
/// out (M, N) = a_scale b_scale (a (M, K) b (N, K)^T) + bias (N): a and b are bytes of 8-bit floats, contiguous.
struct Float8Matmul {
  Out out;
  In a, a_scale, b, b_scale, bias = {};
  Float8MatmulParams params;
};
struct Linalg {  // LinalgOp: what each takes and gives
  Outs outs;
  Ins ins;
  LinalgParams params;
};
struct Conv {
  Out y;
  In x, w, bias = {};
  ConvParams params;
};
struct ConvBackwardData {
  Out dx;
  In dy, w;
  ConvParams params;
};
struct ConvBackwardWeight {
  Out dw, dbias = {};
  In dy, x;
  ConvParams params;
};
struct Pool {
  Out y, indices = {};  // indices: int64, flat within the plane, of Max and AdaptiveMax
  In x;
  PoolParams params;
};
struct PoolBackward {
  Out dx;
  In dy, indices = {};
  PoolParams params;
};
/// (optional) both. Nearest, NearestExact: any dtype, else floats. The second is the transposed map, of floats.
struct Resample {
  Out y;
  In x;
  ResampleParams params;
};
struct ResampleBackward {
  Out dx;
  In dy;
  ResampleParams params;
};
struct Softmax {
  Out y;
  In x;
  SoftmaxParams params;
};
struct SoftmaxBackward {
  Out dx;
  In dy, y;
  SoftmaxParams params;
};
/// (optional) both. A query that sees no key gives 0 and lse -inf. lse is float32 or wider; mask of numbers: no gradient. base as
/// in Random; a length of the keys and dropout never meet.
struct Attention {
  Out out, lse = {};
  In q, k, v, mask = {}, base = {};
  AttentionParams params;
};
struct AttentionBackward {
  Out dq, dk, dv;
  In dout, out, lse, q, k, v, mask = {}, base = {};
  AttentionParams params;
};
/// (optional) both. x (N, G H): gates without what the state adds; w (G H, P), bias (G H), h0 (B, P), c0 (B, H), y (N, P), h (B, P),
/// c (B, H). `reserve` is what the second needs: (N, 5 H) of Lstm, (N, 4 H) of Gru, none of Tanh and Relu.
struct Rnn {
  Out y, h, c = {}, reserve = {};
  In x, w, bias = {}, projection = {}, h0, c0 = {}, batch_sizes = {};
  RnnParams params;
};
struct RnnBackward {
  Out dx, dw = {}, dbias = {}, dprojection = {}, dh0, dc0 = {};
  In dy = {}, dh = {}, dc = {}, y, reserve = {}, w, projection = {}, h0, c0 = {}, batch_sizes = {};
  RnnParams params;
};
/// mean and rstd (float32 or wider) are written in training. running_mean, running_var: of Batch.
struct Norm {
  Out y, mean = {}, rstd = {};
  In x, weight = {}, bias = {};
  InOut running_mean = {}, running_var = {};
  NormParams params;
  static constexpr Access access(Access declared, const NormParams& p) {
    return declared == Access::Update && !p.training ? Access::Read : declared;
  }
};
struct NormBackward {
  Out dx = {}, dweight = {}, dbias = {};
  In dy, x, weight = {}, mean = {}, rstd = {};
  NormParams params;
};
/// Of logits (N, C, ...) and int64 labels (N, ...): losses (N, ...), and as lse (2, N, ...) the largest logit and log sum e^(logit - largest).
struct CrossEntropy {
  Out losses, lse;
  In logits, target, weight = {};
  NllParams params;
};
struct CrossEntropyBackward {
  Out dlogits;
  In dlosses, lse, logits, target, weight = {};
  NllParams params;
};
struct Dropout {  // (optional) y = mask x / (1 - p), mask: bool; base as in Random
  Out y, mask = {};
  In x, base = {};
  DropoutParams params;
};

// ---- many tensors in one pass ----
/// One element of each list per parameter; lists that an operation does not need are empty: its states fill first, second, third in order.
/// Scalars change from step to step and are 0-dim, on the device. `step` is raised by the kernel unless found_inf is set; where it was 0,
/// SGD's momentum buffers are not read. Where there are twice as many values as gradients, the first half are float32 copies of the
/// second, the parameters: a step goes on from the copy, or from the parameter where the copy does not round to it, and writes both.
struct OptimizerStep {
  InOuts values;
  Ins grads;
  InOuts first = {}, second = {}, third = {};
  In lr;               // float64
  InOut step;          // int64
  In inv_scale = {};   // float32 or float64: gradients are multiplied by it
  In found_inf = {};   // float32: not 0 skips the step
  In beta1 = {};       // float64: takes params.beta1's place, which then only says whether there is a buffer: 1 or 0
  InOut numbers = {};  // float32 (2), updated by NAdam (mu_product, unused) and ASGD (eta, mu)
  OptimizerParams params;
};
struct Foreach {
  Out out = {};  // 0-dim, of NormP
  InOuts xs;
  In factor = {};
  ForeachParams params;
  static constexpr Access access(Access declared, const ForeachParams& p) {
    if (declared != Access::Update) return declared;
    return p.op == ForeachOp::NormP ? Access::Read : p.op == ForeachOp::Zero ? Access::Write : Access::Update;
  }
};

// ---- several calls in one: no operation calls these, compile() does. (optional) ----
/// Both for Batch alone. y = relu(norm(x) + add), where `add`, of y's sizes, may be absent; `shift`, of mean's sizes, may be absent:
/// y = relu((x - mean) scale + shift + add). The second: g, which is dy where y > 0, goes to dadd where that is defined, and then on as dy
/// of NormBackward. One of y and shift is absent; without y there was no `add`.
struct NormRelu {
  Out y = {}, mean, rstd, shift = {};
  In x, weight = {}, bias = {};
  InOut running_mean = {}, running_var = {};
  In add = {};
  NormParams params;
  static constexpr Access access(Access declared, const NormParams& p) { return Norm::access(declared, p); }
};
struct NormReluBackward {
  Out dx = {}, dweight = {}, dbias = {}, dadd = {};
  In dy, x, y = {}, shift = {}, weight = {}, mean, rstd;
  NormParams params;
};
/// NormBackward of Layer or Rms, with dx = the norm's gradient + add, where that is defined, in float32; `rounded` gets dx in 16 bits, dy's
/// dtype is float32 or, as that of `rounded`, of 16 bits. dx may be add.
struct NormAddBackward {
  Out dx, rounded = {}, dweight = {}, dbias = {};
  In dy, x, add = {}, weight = {}, mean = {}, rstd;
  NormParams params;
};
/// out (M, N) = finish(norm(x + add) b + bias) of at most 8 rows, for Layer and Rms over the last dimension: x (M, K) and add, where that is
/// defined, b (K, N); `sum` gets x + add. All of one dtype, of 16 or 32 bits, rounded where single calls round. With a b_scale, b is the
/// quantized weight of a QuantMatmul, WeightOnly, and b_scale its w_scale.
struct NormMatmul {
  Out out, sum = {};
  In x, add = {}, weight = {}, norm_bias = {}, b, b_scale = {}, bias = {};
  NormMatmulParams params;
};
/// table[index] = source, of one index (int64, one element), and then the attention of one query a head whose k and v are views of the
/// table; `keys` (0-dim int64) is how many keys there are, the new one included. No dropout.
struct PutAttention {
  Out out;
  InOut table;
  In source, index, q, k, v, keys;
  PutAttentionParams params;
};

// Every entry, by the name of its kernels and its declaration above.
// clang-format off
#define TAPIR_ENTRIES(X)                                                                                               \
  X(copy, Copy) X(copies, Copies) X(fill, Fill) X(range, Range) X(random, Random) X(unary, Unary) X(binary, Binary)    \
  X(ternary, Ternary) X(fused, Fused) X(reduce, Reduce) X(arg_reduce, ArgReduce) X(scan, Scan)                         \
  X(histogram, Histogram) X(sort, Sort) X(search, Search) X(gather, Gather) X(scatter, Scatter) X(index, Index)        \
  X(index_put, IndexPut) X(count_nonzero, CountNonzero) X(nonzero, Nonzero) X(matmul, Matmul)                          \
  X(quant_matmul, QuantMatmul) X(quant_conv, QuantConv) X(linalg, Linalg) X(conv, Conv)                                \
  X(conv_backward_data, ConvBackwardData) X(conv_backward_weight, ConvBackwardWeight) X(pool, Pool)                    \
  X(pool_backward, PoolBackward) X(resample, Resample) X(resample_backward, ResampleBackward) X(softmax, Softmax)      \
  X(softmax_backward, SoftmaxBackward) X(attention, Attention) X(attention_backward, AttentionBackward) X(rnn, Rnn)    \
  X(rnn_backward, RnnBackward) X(norm, Norm) X(norm_backward, NormBackward) X(cross_entropy, CrossEntropy)             \
  X(cross_entropy_backward, CrossEntropyBackward) X(dropout, Dropout) X(optimizer_step, OptimizerStep)                 \
  X(foreach, Foreach) X(norm_relu, NormRelu) X(norm_relu_backward, NormReluBackward)                     \
  X(norm_add_backward, NormAddBackward) X(norm_matmul, NormMatmul) X(put_attention, PutAttention)                      \
  X(to_float8, ToFloat8) X(float8_matmul, Float8Matmul)
// clang-format on

/// BackendTable::copy_bytes, which stands beside the entries in programs: views of uint8.
struct CopyBytes {
  Out to;
  In from;
};
struct CustomCall;  // of host code, likewise: compile/custom_call.h

/// An entry as a value: its place in the list.
enum class Id : uint8_t {
#define TAPIR_X(name, E) name,
  TAPIR_ENTRIES(TAPIR_X)
#undef TAPIR_X
      copy_bytes,
  custom_call
};
const char* name_of(Id id);

template <class E> inline constexpr Id id_of = E::is_no_entry;
#define TAPIR_X(name, E) template <> inline constexpr Id id_of<E> = Id::name;
TAPIR_ENTRIES(TAPIR_X) TAPIR_X(copy_bytes, CopyBytes) TAPIR_X(custom_call, CustomCall)
#undef TAPIR_X

}  // namespace entry

}  // namespace tapir::inline v0
