#pragma once
// Note [The narrow waist]
// This file is all that a device must provide: a table of typed functions. Everything Tapir computes goes through it, so a
// new device is one folder, the same tests run on every device, and compile() is one more table. `(optional)` beside an
// entry: it may be null, and the operations above then use their composite form.
#include <cstdint>
#include <span>

#include "device.h"
#include "dims.h"
#include "dtype.h"
#include "modes.h"
#include "scalar.h"
#include "tensor.h"

namespace tapir::inline v0 {

/// What a kernel sees of a tensor: no tape, no ownership. A pointwise operand may instead be a number (`is_scalar`).
struct TensorView {
  void* data = nullptr;
  DType dtype = kFloat32;
  bool is_scalar = false;
  Device device;
  int64_t rank = 0;
  Scalar scalar;
  Storage* storage = nullptr;                  // whose memory it is, for a recorder; kernels look at data alone
  int64_t sizes[kMaxRank], strides[kMaxRank];  // strides in elements; only the first `rank` are set

  TensorView() = default;  // absent: defined() is false
  TensorView(const Tensor& t) {
    if (const TensorImpl* p = t.impl_or_null()) {
      data = p->data(), dtype = p->dtype, device = p->device, rank = p->sizes.size(), storage = p->storage.get();
      for (int64_t i = 0; i < rank; ++i) sizes[i] = p->sizes[i], strides[i] = p->strides[i];
    }
    defined_ = t.defined();
  }
  TensorView(Scalar number, DType dtype) : dtype(dtype), is_scalar(true), scalar(number), defined_(true) {}
  bool defined() const { return defined_; }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }
  Shape shape() const { return std::span<const int64_t>(sizes, size_t(rank)); }
  Strides stride_list() const { return std::span<const int64_t>(strides, size_t(rank)); }
  bool is_contiguous() const {
    int64_t step = 1;
    for (int64_t i = rank; i-- > 0;) {
      if (sizes[i] == 0) return true;
      if (sizes[i] != 1 && strides[i] != step) return false;
      step *= sizes[i];
    }
    return true;
  }
  template <class T> T* as() const { return static_cast<T*>(data); }
  /// This view broadcast to `shape` (it must fit): stride 0 along the axes that repeat.
  TensorView expand(const Shape& shape) const {
    TensorView v = *this;
    v.rank = shape.size();
    for (int64_t i = 0; i < v.rank; ++i) {
      const int64_t from = i - (v.rank - rank);
      v.sizes[i] = shape[i];
      v.strides[i] = from < 0 || sizes[from] == 1 ? 0 : strides[from];
    }
    return v;
  }

 private:
  bool defined_ = false;
};

/// The first bad value that a kernel met (an index out of range, a label): the kernel skips it and goes on.
struct ErrorWord {
  bool set = false;
  int64_t position = 0, value = 0, bound = 0;
};

struct BackendTable;

/// What a kernel is given beside its operands. It gets memory in no other way than scratch().
struct Context {
  Device device;
  bool deterministic = false;
  void* stream = nullptr;               // the queue that the kernel joins; the CPU has none
  const BackendTable* table = nullptr;  // the device's own
  ErrorWord error;
  int late_error = 0;  // not 0: where a kernel that runs later will write its ErrorWord, see check_values()
  /// Memory until the kernel returns, aligned to 64 bytes, not initialised.
  void* scratch(int64_t bytes);
  template <class T> T* scratch_of(int64_t count) { return static_cast<T*>(scratch(count * int64_t(sizeof(T)))); }
  void bad_value(int64_t position, int64_t value, int64_t bound);
  void free_scratch();
  ~Context() { free_scratch(); }

 private:
  static constexpr int kMaxScratch = 16;
  void* blocks_[kMaxScratch];
  int64_t bytes_[kMaxScratch];
  int count_ = 0;
};

// Operations by family. The comment gives the formula where the name does not.
enum class UnaryOp : uint8_t {
  Neg,
  Abs,
  Sign,
  Exp,
  Expm1,
  Log,
  Log1p,
  Log2,
  Log10,
  Sqrt,
  Rsqrt,
  Exp2,
  Reciprocal,
  Square,
  Sin,
  Cos,
  Tan,
  Asin,
  Acos,
  Atan,
  Sinh,
  Cosh,
  Tanh,
  Asinh,
  Acosh,
  Atanh,
  Sigmoid,
  Logit,  // ln(x / (1 - x)) of x clamped to [a, 1 - a]; a < 0: of x as it is
  Erf,
  Erfc,
  Erfinv,
  Lgamma,
  Digamma,
  Polygamma,  // a: order
  Sinc,       // sin(pi x) / (pi x)
  Floor,
  Ceil,
  Round,
  Trunc,
  Frac,
  RoundTo,  // a: decimals
  Relu,
  Silu,
  Gelu,       // a = 0: x Phi(x); a = 1: tanh approximation
  LeakyRelu,  // a: negative slope
  Elu,        // x > 0 ? b x : a expm1(c x)
  Softplus,   // ln(1 + e^(a x)) / a; x where a x > b
  Mish,       // x tanh(ln(1 + e^x))
  LogSigmoid,
  Hardswish,
  Hardsigmoid,
  Softsign,    // x / (1 + |x|)
  Tanhshrink,  // x - tanh x
  Hardshrink,  // 0 where |x| <= a
  Softshrink,  // x - clamp(x, -a, a)
  Threshold,   // x > a ? x : b
  Clamp,       // a: min, b: max; NaN stays
  NanToNum,    // a: for NaN, b: for inf, c: for -inf
  PowScalar,   // x ^ a
  BitwiseNot,
  LogicalNot,
  IsNan,
  IsInf,
  IsFinite,
  SignBit,  // write bool
  Cube,
  InverseSquare,
  GeluTanh,  // kernels make these of PowScalar and Gelu: core/formulas/unary.h
};
enum class BinaryOp : uint8_t {
  Add,
  Sub,  // a + alpha b, a - alpha b
  Mul,
  Div,
  TruncDiv,
  FloorDiv,
  Remainder,
  Fmod,
  Pow,
  Atan2,
  Hypot,
  LogAddExp,
  LogAddExp2,
  XLogY,      // a ln b, 0 where a is 0
  Copysign,   // |a| with the sign of b
  Heaviside,  // a > 0, b where a is 0
  Glu,        // a sigmoid(b)
  Maximum,
  Minimum,  // NaN wins
  Fmax,
  Fmin,  // NaN loses
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  LogicalAnd,
  LogicalOr,
  LogicalXor,
  IsClose,  // |a - b| <= beta + alpha |b|, or equal; gamma: NaN equals NaN; these write bool
  BitwiseAnd,
  BitwiseOr,
  BitwiseXor,
  ShiftLeft,
  ShiftRight,  // counts that do not fit shift everything out
  // Gradients that are one pass; the first operand is the incoming gradient, alpha, beta and gamma the forward's a, b and c.
  ReluGrad,     // g where y > 0
  SigmoidGrad,  // g y (1 - y)
  TanhGrad,     // g (1 - y^2)
  GeluGrad,
  SiluGrad,       // of x
  LeakyReluGrad,  // of x
  ClampGrad,      // g where alpha <= x <= beta
  HardtanhGrad,   // g where alpha < x < beta
  EluGrad,        // of x, as those that follow
  SoftplusGrad,
  MishGrad,
  LogSigmoidGrad,
  HardswishGrad,
  HardsigmoidGrad,
  SoftsignGrad,
  TanhshrinkGrad,
  ShrinkGrad,     // g where |x| > alpha
  ThresholdGrad,  // 0 where x <= alpha
  SincGrad,
  GeluTanhGrad,  // kernels make it of GeluGrad
};
enum class TernaryOp : uint8_t {
  Where,    // a ? b : c; a is bool
  AddCMul,  // a + alpha b c
  AddCDiv,  // a + alpha b / c
  Lerp,     // a + c (b - a)
  Clamp,    // min(max(a, b), c), NaN wins
  Prelu,    // b > 0 ? a : c a; of (x, x, weight), and its gradient of (g, x, weight)
  GluGrad,  // a b sigmoid(c) (1 - sigmoid(c))
};
enum class ReduceOp : uint8_t { Sum, Mean, Prod, Max, Min, Any, All, NormP, Var, Std, LogSumExp, NanSum };
enum class ArgReduceOp : uint8_t { ArgMax, ArgMin };
enum class ScanOp : uint8_t { CumSum, CumProd, CumMax, CumMin, LogCumSumExp };
enum class RandomOp : uint8_t { Uniform, Normal, Integer, Bernoulli, BernoulliTensor, Permutation };
enum class ScatterOp : uint8_t { Assign, Add, Multiply, Max, Min };  // Max, Min: NaN wins
enum class SortOp : uint8_t { Sort, TopK, Kth, Median, NanMedian };
enum class PoolOp : uint8_t { Max, Avg, AdaptiveAvg, AdaptiveMax };
enum class ResampleOp : uint8_t { Nearest, NearestExact, Linear, Cubic, FilteredLinear, FilteredCubic };
enum class NormOp : uint8_t { Batch, Layer, Group, Rms };
enum class RnnOp : uint8_t { Tanh, Relu, Lstm, Gru };
enum class OptimizerOp : uint8_t {
  Sgd,
  Adam,
  AdamW,
  Adagrad,
  Adadelta,
  Adamax,
  NAdam,
  RAdam,
  RMSprop,
  Rprop,
  ASGD,
  Lion
};  // core/formulas/optimizer.h: states and formulas
/// Leading dimensions are batches. What each takes and gives: outs <- ins.
enum class LinalgOp : uint8_t {
  Cholesky,  // {l, info?} <- {a}: the triangle that `upper` names is read and written; info (int32): 0, or the order of the
             // first leading minor that is not positive; without info that is a bad value
  Lu,  // {lu, order, sign} <- {a}: P A = L U, both in lu; order (int32): row i of A is row order[i] of P A; sign: det P.
       // Bad value: the first pivot that is 0
  LuSolve,          // {x} <- {lu, order, b}: A x = b, or A^T x = b (transpose)
  TriangularSolve,  // {x} <- {a, b}: a x = b, of the triangle that `upper` names; unit: with ones on the diagonal
  Qr,               // {q?, r} <- {a}: the sizes of r say whether reduced or complete
  Eigh,             // {values, vectors?} <- {a}: ascending, of the triangle that `upper` names
  Svd,              // {s, u?, vh?} <- {a}: descending; the sizes of u and vh say whether reduced or full
  MatrixExp,        // {y} <- {a}
};  // Eigh, Svd: a bad value is 0 for an element that is not finite, 1 where the iteration does not converge
enum class ForeachOp : uint8_t { NormP, Scale, ClampValue, Zero };

struct UnaryParams {
  UnaryOp op;
  double a = 0, b = 0, c = 0;
};
struct BinaryParams {
  BinaryOp op;
  Scalar alpha = 1, beta = 0, gamma = 0;
};
struct TernaryParams {
  TernaryOp op;
  Scalar alpha = 1;
};
struct ReduceParams {
  ReduceOp op;
  uint32_t dims = 0;      // bit d: dimension d is reduced; `out` keeps it with extent 1
  double p = 2;           // NormP
  double correction = 0;  // Var, Std
};
struct ArgReduceParams {
  ArgReduceOp op;
  int64_t dim = 0;
};  // out: int64, extent 1 along dim
struct ScanParams {
  ScanOp op;
  int64_t dim = 0;
};
/// Equal bins over [low, high], which belongs to the last one; what lies outside, or is a NaN, is not counted.
struct HistogramParams {
  double low = 0, high = 1;
};
struct RangeParams {
  Scalar start, step;
};  // out[i] = start + i step, computed in int64 or double
struct RandomParams {
  RandomOp op;
  uint64_t seed = 0,
           offset = 0;  // element i: Philox(seed, offset + base + i / 4), lane i mod 4, in row-major order of `out`
  double a = 0, b = 1;  // Uniform [a, b), Normal mean a std b, Bernoulli p = a
  int64_t low = 0, high = 0;  // Integer [low, high)
};
enum class MatmulFinish : uint8_t { None, Relu, GeluTanh };
/// out = finish(alpha a b + beta out + bias), batched: (B, M, K) x (B, K, N) -> (B, M, N), any strides (a transposed operand is a view).
/// bias, where defined, broadcasts to out. aux, where defined, is written too, and beta is 0: with a finish, what that is applied to (of
/// out's sizes); without one, of rank 2, the sums of a's rows, (M), which of a = dy^T are the gradient of a bias.
struct MatmulParams {
  double alpha = 1, beta = 0;
  MatmulFinish finish = MatmulFinish::None;
};
struct LinalgParams {
  LinalgOp op;
  bool upper = false, transpose = false, unit = false;
};
/// x (N, C, ...), w (O, C / groups, ...), y (N, O, ...); 1 to 3 spatial axes; the arrays' first `spatial` entries count.
struct ConvParams {
  int64_t spatial = 2, groups = 1;
  int64_t stride[3] = {1, 1, 1}, padding[3] = {}, dilation[3] = {1, 1, 1};
};
struct PoolParams {
  PoolOp op;
  int64_t spatial = 2;
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {}, dilation[3] = {1, 1, 1};
  bool ceil_mode = false, count_include_pad = true;
  int64_t divisor = 0;  // 0: the window's size
};
/// What becomes of the activations of a product with quantized weights: they stay floats; they are quantized to 8 bits with a scale and
/// zero point of each row; with those that are given. Formulas: core/formulas/quantize.h.
enum class QuantOp : uint8_t { WeightOnly, Dynamic, Static };
/// bits 8: w (N, K) int8. bits 4: w (N, K / 2) uint8, element 2 i in the lower half of a byte, 8 added. `group` elements of a row share a
/// scale: w_scale (N, K / group). Dynamic and Static: bits 8, group K.
struct QuantMatmulParams {
  QuantOp op;
  int64_t bits = 8, group = 1;
};
/// x (N, C, ...) to y (N, C, ...), 1 to 3 spatial axes: Note [Resampling] in core/resample.h.
struct ResampleParams {
  ResampleOp op;
  int64_t spatial = 2;
  double scale[3] = {};  // what the caller multiplied the sizes by; 0: that follows from the sizes
  bool align_corners = false;
};
struct SoftmaxParams {
  int64_t dim = 0;
  bool log = false;
};
/// q (B, H, S, D), k (B, G, T, D), v (B, G, T, E), out (B, H, S, E), lse (B, H, S): query head h reads head h / (H / G) of k and v.
/// mask (optional): (B, H, S, T), stride 0 where it repeats, bool (false hides) or added; or 0-dim int64, how many keys there are, <= T.
struct AttentionParams {
  double scale = 1;
  bool causal = false;  // query i sees keys 0 to i; of n keys by such a mask, 0 to n - S + i
};
/// One recurrent layer in one direction, over rows of all steps: step t has rows offset(t) to offset(t) + batch(t), the first rows of its
/// state (B, ...), and batches never grow with t: `batch_sizes` (steps), int64 on the host; absent: B rows each. G gates of H units
/// (Lstm i f g o, Gru r z n); P is H, or what `projection` (P, H) makes of it (Lstm). Everything is contiguous, float32 or float64.
struct RnnParams {
  RnnOp op;
  bool reverse = false;  // from the last step to the first
  int64_t steps = 1;
};
/// Batch: statistics over all but dimension 1 (training) or the running ones (eval). Layer, Rms: over the last `axes` dimensions.
struct NormParams {
  NormOp op;
  double eps = 1e-5, momentum = 0.1;
  int64_t axes = 1, groups = 1;
  bool training = true;
};
struct GatherParams {
  int64_t dim = 0;
};
struct ScatterParams {
  int64_t dim = 0;
  ScatterOp op = ScatterOp::Assign;
};
struct IndexParams {
  bool accumulate = false;  // index_put: add instead of write
  bool wrap = true;         // negative positions count from the end; else they are bad values
};
/// NaN is the largest; equal elements come in the order of their positions. Along dim the outputs have extent n (Sort), k (TopK: the
/// first k of Sort) or 1: the element that Sort would put at position k (Kth), the lower one in the middle (Median: the first NaN where
/// there is one; NanMedian: of those that are no NaN).
struct SortParams {
  SortOp op;
  int64_t dim = 0, k = 0;
  bool descending = false;
};
struct SearchParams {
  bool right = false;  // behind equal elements instead of before them
};
struct NllParams {
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};
struct DropoutParams {
  double p;
  uint64_t seed, offset;
};
/// beta1, beta2, a, b by operation: SGD momentum, dampening; Adagrad a: lr_decay; Adadelta beta2: rho; NAdam a: momentum_decay; RMSprop
/// momentum, alpha; Rprop its etas, a and b: the step sizes; ASGD lambd, alpha, a: t0.
struct OptimizerParams {
  OptimizerOp op;
  double weight_decay = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool nesterov = false, amsgrad = false, maximize = false;
  bool decoupled = false;  // NAdam, RAdam: weight decay shrinks the parameter instead (always so in AdamW, Lion)
  bool centered = false;   // RMSprop
  double a = 0, b = 0;
};
/// What changes from step to step: views on the device, 0-dim but `numbers`. `step` is raised by the kernel unless found_inf is set;
/// where it was 0, SGD's momentum buffers are not read.
struct OptimizerScalars {
  TensorView lr;         // float64
  TensorView step;       // int64
  TensorView inv_scale;  // (optional) float32: gradients are multiplied by it
  TensorView found_inf;  // (optional) float32: not 0 skips the step
  TensorView beta1 =
      {};  // (optional) float64: takes params.beta1's place, which then only says whether there is a buffer: 1 or 0
  TensorView numbers = {};  // float32 (2), updated by NAdam (mu_product, unused) and ASGD (eta, mu); else absent
};
/// Per parameter one entry in each list; lists that an operation does not need are empty: its states fill the lists in order.
struct OptimizerLists {
  std::span<const TensorView> params, grads, first, second, third;
};
struct ForeachParams {
  ForeachOp op;
  double p = 2;
};

struct DeviceTable;
struct FusedParams;  // core/fused.h

/// The functions of one device. `copy`, `unary`, ... take operands whose shapes fit; views may have any strides (0 too).
struct BackendTable {
  using V = const TensorView&;

  const char* name;

  // Memory. Where a device has queues (`stream`), a block belongs to the one it was allocated for, and copies and kernels are ordered
  // within one alone; the CPU ignores it.
  void* (*allocate)(int64_t bytes, Device device, void* stream);  // null when there is none left
  void (*release)(void* data, int64_t bytes, Device device);
  void (*copy_bytes)(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, void* stream);
  void (*synchronize)(Device device, void* stream);  // waits for the queue; throws what its kernels met
  const DeviceTable* device;                         // (optional) queues, events, statistics: core/device_table.h

  // Copies and pointwise.
  void (*copy)(Context&, V out, V x);  // converts the dtype: floats to integers truncate and saturate, NaN gives 0
  void (*fill)(Context&, V out, Scalar value);
  void (*range)(Context&, V out, const RangeParams&);  // out is 1-d
  // p: probabilities of BernoulliTensor, else absent. base: (optional) 0-dim int64, added to the offset, for replay.
  void (*random)(Context&, V out, V p, V base, const RandomParams&);
  void (*unary)(Context&, V out, V x, const UnaryParams&);
  void (*binary)(Context&, V out, V a, V b, const BinaryParams&);
  void (*ternary)(Context&, V out, V a, V b, V c, const TernaryParams&);
  // (optional) Many of these in one pass: Note [Fused calls]. No operation calls it; compile() makes the calls.
  void (*fused)(Context&, std::span<const TensorView> outs, std::span<const TensorView> ins, const FusedParams&);

  // Reductions: out keeps the reduced dimensions with extent 1.
  void (*reduce)(Context&, V out, V x, const ReduceParams&);
  void (*arg_reduce)(Context&, V out, V x, const ArgReduceParams&);
  void (*scan)(Context&, V out, V indices, V x,
               const ScanParams&);  // indices: of CumMax and CumMin, int64; else absent
  void (*histogram)(Context&, V out, V x, V weights, const HistogramParams&);  // out: (bins); weights may be absent
  void (*sort)(Context&, V values, V indices, V x,
               const SortParams&);  // values, of x's dtype, may be absent; indices: int64
  // How many elements of `sorted` (..., n) come before each of `values` (..., m), of one dtype: out (..., m) int64.
  void (*search)(Context&, V out, V sorted, V values, const SearchParams&);

  // Indexing. Index tensors are int64.
  void (*gather)(Context&, V out, V x, V index, const GatherParams&);
  void (*scatter)(Context&, V out, V index, V source, const ScatterParams&);  // into out, which holds the start values
  // out[i..., rest] = x[indices[0][i...], indices[1][i...], ..., rest]: the first `indices.size()` dimensions are indexed by
  // tensors of one shape.
  void (*index)(Context&, V out, V x, std::span<const TensorView> indices, const IndexParams&);
  void (*index_put)(Context&, V out, V source, std::span<const TensorView> indices, const IndexParams&);
  int64_t (*count_nonzero)(Context&, V x);
  void (*nonzero)(Context&, V out, V x);  // out: (count, rank) int64

  // Linear algebra and networks.
  void (*matmul)(Context&, V out, V a, V b, V bias, V aux, const MatmulParams&);
  // (optional) both, float32: y (M, N) = x (M, K) w^T + bias, and a convolution with w (O, C / groups, ...) int8, w_scale (O). x_scale
  // (float32) and x_zero (int32), 0-dim, are those of Static and of convolutions: uint8 = round(x / x_scale) + x_zero.
  void (*quant_matmul)(Context&, V y, V x, V x_scale, V x_zero, V w, V w_scale, V bias, const QuantMatmulParams&);
  void (*quant_conv)(Context&, V y, V x, V x_scale, V x_zero, V w, V w_scale, V bias, const ConvParams&);
  void (*linalg)(Context&, std::span<const TensorView> outs, std::span<const TensorView> ins, const LinalgParams&);
  void (*conv)(Context&, V y, V x, V w, V bias, const ConvParams&);
  void (*conv_backward_data)(Context&, V dx, V dy, V w, const ConvParams&);
  void (*conv_backward_weight)(Context&, V dw, V dbias, V dy, V x, const ConvParams&);  // dbias may be absent
  void (*pool)(Context&, V y, V indices, V x,
               const PoolParams&);  // indices (Max, AdaptiveMax: int64, flat within the plane) may be absent
  void (*pool_backward)(Context&, V dx, V dy, V indices, const PoolParams&);
  // (optional) both. Nearest, NearestExact: any dtype, else floats. The second is the transposed map, of floats.
  void (*resample)(Context&, V y, V x, const ResampleParams&);
  void (*resample_backward)(Context&, V dx, V dy, const ResampleParams&);
  void (*softmax)(Context&, V y, V x, const SoftmaxParams&);
  void (*softmax_backward)(Context&, V dx, V dy, V y, const SoftmaxParams&);
  // (optional) both. A query that sees no key gives 0 and lse -inf. lse is float32 or wider; mask of numbers: no gradient.
  void (*attention)(Context&, V out, V lse, V q, V k, V v, V mask, const AttentionParams&);
  void (*attention_backward)(Context&, V dq, V dk, V dv, V dout, V out, V lse, V q, V k, V v, V mask,
                             const AttentionParams&);
  // (optional) both. rnn: {y (N, P), h (B, P), c? (B, H), reserve?} <- {x (N, G H): gates without what the state adds, w (G H, P),
  // bias? (G H), projection?, h0 (B, P), c0? (B, H), batch_sizes?}; reserve is what the second needs: (N, 5 H) of Lstm, (N, 4 H) of Gru,
  // none of Tanh and Relu. {dx, dw, dbias?, dprojection?, dh0, dc0?} <- {dy?, dh?, dc?, y, reserve?, w, projection?, h0, c0?, batch_sizes?}.
  void (*rnn)(Context&, std::span<const TensorView> outs, std::span<const TensorView> ins, const RnnParams&);
  void (*rnn_backward)(Context&, std::span<const TensorView> outs, std::span<const TensorView> ins, const RnnParams&);
  // Batch: weight, bias, running_mean, running_var may be absent; mean and rstd (float32 or wider) are written in training.
  void (*norm)(Context&, V y, V mean, V rstd, V x, V weight, V bias, V running_mean, V running_var, const NormParams&);
  void (*norm_backward)(Context&, V dx, V dweight, V dbias, V dy, V x, V weight, V mean, V rstd, const NormParams&);
  // Cross entropy of logits (N, C, ...) and int64 labels (N, ...): per-element losses (N, ...) and log-sum-exp (N, ...).
  void (*cross_entropy)(Context&, V losses, V lse, V logits, V target, V weight, const NllParams&);
  void (*cross_entropy_backward)(Context&, V dlogits, V dlosses, V lse, V logits, V target, V weight, const NllParams&);
  // (optional) y = mask x / (1 - p), mask: bool; base as in random.
  void (*dropout)(Context&, V y, V mask, V x, V base, const DropoutParams&);

  // Many tensors in one pass.
  void (*optimizer_step)(Context&, const OptimizerLists&, const OptimizerScalars&, const OptimizerParams&);
  void (*foreach)(Context&, V out, std::span<const TensorView> xs, V factor,
                  const ForeachParams&);  // out: 0-dim result of NormP

  // Several calls in one: no operation calls these, compile() does. (optional)
  // Both for Batch alone. y = relu(norm(x) + add), where `add`, of y's sizes, may be absent; `shift`, of
  // mean's sizes, may be absent: y = relu((x - mean) scale + shift + add). The second: g, which is dy where y > 0, goes to dadd where
  // that is defined, and then on as dy of norm_backward. One of y and shift is absent; without y there was no `add`.
  void (*norm_relu)(Context&, V y, V mean, V rstd, V shift, V x, V weight, V bias, V running_mean, V running_var, V add,
                    const NormParams&);
  void (*norm_relu_backward)(Context&, V dx, V dweight, V dbias, V dadd, V dy, V x, V y, V shift, V weight, V mean,
                             V rstd, const NormParams&);
};

/// The table built in for that kind of device, or null; written by CMake (backends.cpp).
const BackendTable* built_in_backend(DeviceType type);
const BackendTable& load_backend(Device device);

/// The table that this thread uses for that device.
inline const BackendTable& backend(Device device) {
  const BackendTable* table = modes.tables[int(device.type)];
  if (!table) [[unlikely]]
    return load_backend(device);
  return *table;
}
inline const BackendTable& backend(const Tensor& x) { return backend(x.device()); }

/// The context for the next kernel on x's device in this thread; valid until the next call.
Context& context(Device device);
inline Context& context(const Tensor& x) { return context(x.device()); }
/// The queue of that device that this thread's kernels join.
inline void* current_stream(Device device) { return device.is_cpu() ? nullptr : modes.streams[device.index]; }
/// After a kernel that checks values: throws ValueError with the first bad one, at once or, on a device that runs later, at the next
/// synchronisation. text: "[embedding] index {value} at position {position} is out of range for {bound} rows"
inline void check_values(const Context& ctx, std::string_view text);
[[noreturn]] void fail_values(const ErrorWord& error, std::string_view text);
void name_late_error(const Context& ctx, std::string_view text);
inline void check_values(const Context& ctx, std::string_view text) {
  if (ctx.error.set) [[unlikely]]
    fail_values(ctx.error, text);
  if (ctx.late_error) [[unlikely]]
    name_late_error(ctx, text);
}

}  // namespace tapir::inline v0
