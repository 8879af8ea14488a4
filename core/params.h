#pragma once
#include <cstdint>

#include "scalar.h"

// The operations and parameters of kernels: what an entry of core/entries.h is given beside its operands.
namespace tapir::inline v0 {

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
  Lu,  // {lu, order, sign?} <- {a}: P A = L U, both in lu; order (int32): row i of A is row order[i] of P A; sign: det P.
       // Without sign the first pivot that is 0 is a bad value: who asks for none wants an inverse
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
enum class MatmulFinish : uint8_t { None, Relu, GeluTanh, GeluTanhGrad };
/// out = finish(alpha a b + beta out + bias), batched: (B, M, K) x (B, K, N) -> (B, M, N), any strides (a transposed operand is a view).
/// bias, where defined, broadcasts to out. aux, where defined, is written too, and beta is 0: with a finish, what that is applied to (of
/// out's sizes); without one, of rank 2, the sums of a's rows, (M), which of a = dy^T are the gradient of a bias. GeluTanhGrad takes no
/// bias, beta or aux: it multiplies by the derivative of GELU at `before`, of out's sizes. On a GPU out and aux may be float32 where a and
/// b have 16 bits, rank is 2, and there is no finish, beta or bias.
struct MatmulParams {
  double alpha = 1, beta = 0;
  MatmulFinish finish = MatmulFinish::None;
};
struct LinalgParams {
  LinalgOp op;
  bool upper = false, transpose = false, unit = false;
};
/// x (N, C, ...), w (O, C / groups, ...), y (N, O, ...); 1 to 3 spatial axes; the arrays' first `spatial` entries count. relu: of Conv, y
/// is relu(convolution + bias).
struct ConvParams {
  int64_t spatial = 2, groups = 1;
  int64_t stride[3] = {1, 1, 1}, padding[3] = {}, dilation[3] = {1, 1, 1};
  bool relu = false;
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
  MatmulFinish finish = MatmulFinish::None;  // None or GeluTanh, of y
};
/// The formats of 8-bit floats (Micikevicius et al., "FP8 Formats for Deep Learning", 2022), largest 448 and 57344: core/formulas/float8.h.
enum class Float8 : uint8_t { E4M3, E5M2 };
struct ToFloat8Params {
  Float8 format = Float8::E4M3;
};
struct Float8MatmulParams {
  Float8 a = Float8::E4M3, b = Float8::E4M3;
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
  bool causal = false;   // query i sees keys 0 to i; of n keys by such a mask, 0 to n - S + i
  double dropout_p = 0;  // of the weights, (B, H, S, T), as Dropout of such a tensor
  uint64_t seed = 0, offset = 0;
};
struct PutAttentionParams {
  double scale = 1;
  bool causal = false, wrap = true;  // wrap: IndexParams
};
/// Do seed and offset of such parameters count?
template <class P> constexpr bool draws(const P& params) {
  if constexpr (requires { params.dropout_p; }) return params.dropout_p > 0;
  else return requires {
      params.seed, params.offset;
    };
}
/// One recurrent layer in one direction, over rows of all steps: step t has rows offset(t) to offset(t) + batch(t), the first rows of its
/// state (B, ...), and batches never grow with t: `batch_sizes` (steps), int64 on the host; absent: B rows each. G gates of H units
/// (Lstm i f g o, Gru r z n); P is H, or what `projection` (P, H) makes of it (Lstm). Everything is contiguous and of float32 or float64;
/// on a GPU also of 16 bits, but then c0, c, their gradients and `reserve` are float32.
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
struct NormMatmulParams {
  NormOp op;
  double eps = 1e-5;
  MatmulFinish finish = MatmulFinish::None;  // but GeluTanhGrad
  int64_t bits = 8, group = 1;               // of a quantized b: QuantMatmulParams, WeightOnly
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
struct ForeachParams {
  ForeachOp op;
  double p = 2;
};

struct FusedParams;  // core/fused.h

}  // namespace tapir::inline v0
