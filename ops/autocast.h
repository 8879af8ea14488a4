#pragma once
// Note [Autocast]
// In an amp::Autocast region an operation casts its floating-point tensors (float64 ones excepted) by its line in the table below,
// and runs with autocast off; operations without a line run in the dtypes of their inputs, and what they are made of casts for
// itself. The casts are recorded `to` operations. Those of leaves that require a gradient (weights) are kept until the outermost
// region ends, one for each dtype, as long as the weight is not written. The rules are those of PyTorch, per device.
#include <span>
#include <string_view>
#include <vector>

#include "../core/error.h"
#include "../core/modes.h"
#include "../core/tensor.h"
#include "cast.h"

namespace tapir::inline v0 {

/// Plain: as the inputs are, also inside. None: as the inputs are; what the operation is made of casts by its own rules.
enum class CastPolicy : uint8_t { None, Plain, Lower, Float32, Widest, Refused };

struct CastRule {
  std::string_view op;
  CastPolicy cpu, cuda;
  constexpr CastPolicy on(DeviceType device) const { return device == DeviceType::CPU ? cpu : cuda; }
  constexpr bool any() const { return cpu != CastPolicy::None || cuda != CastPolicy::None; }
};

namespace cast_rules {
inline constexpr CastPolicy None = CastPolicy::None, Plain = CastPolicy::Plain, Lower = CastPolicy::Lower,
                            Fp32 = CastPolicy::Float32, Widest = CastPolicy::Widest, Refused = CastPolicy::Refused;
// clang-format off
inline constexpr CastRule all[] = {
  // op                              CPU      CUDA
  {"addbmm",                         Lower,   Lower},
  {"addmm",                          Lower,   Lower},
  {"addmv",                          None,    Lower},
  {"addr",                           None,    Lower},
  {"baddbmm",                        Lower,   Lower},
  {"bmm",                            Lower,   Lower},
  {"chain_matmul",                   None,    Lower},
  {"conv1d",                         Lower,   Lower},
  {"conv2d",                         Lower,   Lower},
  {"conv3d",                         Lower,   Lower},
  {"conv_transpose1d",               Lower,   Lower},
  {"conv_transpose2d",               Lower,   Lower},
  {"conv_transpose3d",               Lower,   Lower},
  {"einsum",                         None,    Lower},
  {"linear",                         Lower,   Lower},
  {"linear_gelu",                    Lower,   Lower},
  {"matmul",                         Lower,   Lower},
  {"mm",                             Lower,   Lower},
  {"multi_dot",                      None,    Lower},
  {"mv",                             Plain,   Lower},
  {"prelu",                          Lower,   Lower},
  {"scaled_dot_product_attention",   Lower,   Lower},
  {"vecdot",                         Lower,   Lower},

  {"acos",                           None,    Fp32},
  {"asin",                           None,    Fp32},
  {"cosh",                           None,    Fp32},
  {"erfinv",                         None,    Fp32},
  {"exp",                            None,    Fp32},
  {"expm1",                          None,    Fp32},
  {"log",                            None,    Fp32},
  {"log10",                          None,    Fp32},
  {"log1p",                          None,    Fp32},
  {"log2",                           None,    Fp32},
  {"pow",                            None,    Fp32},
  {"reciprocal",                     None,    Fp32},
  {"rsqrt",                          None,    Fp32},
  {"sinh",                           None,    Fp32},
  {"softplus",                       None,    Fp32},
  {"tan",                            None,    Fp32},

  {"cumprod",                        None,    Fp32},  // these with a dtype of their own: as the caller says
  {"cumsum",                         None,    Fp32},
  {"log_softmax",                    None,    Fp32},
  {"logsumexp",                      None,    Fp32},
  {"matrix_norm",                    None,    Fp32},
  {"norm",                           None,    Fp32},
  {"prod",                           Fp32,    Fp32},
  {"softmax",                        None,    Fp32},
  {"sum",                            None,    Fp32},
  {"vector_norm",                    None,    Fp32},

  {"adaptive_avg_pool3d",            Fp32,    None},
  {"adaptive_max_pool3d",            Fp32,    None},
  {"adaptive_max_pool3d_with_indices", Fp32,  None},
  {"avg_pool3d",                     Fp32,    None},
  {"cdist",                          Fp32,    Fp32},
  {"cosine_similarity",              None,    Fp32},
  {"dist",                           None,    Fp32},
  {"group_norm",                     None,    Fp32},
  {"interpolate",                    None,    Fp32},
  {"layer_norm",                     None,    Fp32},
  {"max_unpool1d",                   Fp32,    None},
  {"max_unpool2d",                   Fp32,    None},
  {"max_unpool3d",                   Fp32,    None},
  {"nanquantile",                    Fp32,    None},
  {"pdist",                          None,    Fp32},
  {"quantile",                       Fp32,    None},
  {"renorm",                         None,    Fp32},
  {"rms_norm",                       None,    Fp32},
  {"trace",                          Fp32,    None},

  {"binary_cross_entropy",           Fp32,    Refused},
  {"binary_cross_entropy_with_logits", Fp32,  Fp32},
  {"cosine_embedding_loss",          Fp32,    Fp32},
  {"cross_entropy",                  Fp32,    Fp32},
  {"ctc_loss",                       Fp32,    None},
  {"hinge_embedding_loss",           Fp32,    Fp32},
  {"huber_loss",                     Fp32,    Fp32},
  {"kl_div",                         Fp32,    Fp32},
  {"l1_loss",                        Fp32,    Fp32},
  {"margin_ranking_loss",            Fp32,    Fp32},
  {"mse_loss",                       Fp32,    Fp32},
  {"multi_margin_loss",              Fp32,    Fp32},
  {"multilabel_margin_loss",         Fp32,    Fp32},
  {"nll_loss",                       Fp32,    Fp32},
  {"poisson_nll_loss",               Fp32,    Fp32},
  {"smooth_l1_loss",                 Fp32,    Fp32},
  {"soft_margin_loss",               Fp32,    Fp32},
  {"triplet_margin_loss",            Fp32,    Fp32},

  {"cholesky",                       Fp32,    None},
  {"cholesky_inverse",               Fp32,    None},
  {"cholesky_solve",                 Fp32,    None},
  {"eigh",                           Fp32,    None},
  {"eigvalsh",                       Fp32,    None},
  {"inv",                            Fp32,    None},
  {"lstsq",                          Fp32,    None},
  {"matrix_rank",                    Fp32,    None},
  {"qr",                             Fp32,    None},
  {"solve",                          Fp32,    None},
  {"solve_triangular",               Fp32,    None},
  {"svd",                            Fp32,    None},
  {"svdvals",                        Fp32,    None},

  {"addcdiv",                        None,    Widest},
  {"addcmul",                        None,    Widest},
  {"atan2",                          None,    Widest},
  {"bilinear",                       None,    Widest},
  {"cat",                            Widest,  None},
  {"cross",                          None,    Widest},
  {"dot",                            Plain,   Widest},
  {"grid_sample",                    Fp32,    Widest},
  {"index_copy",                     Widest,  None},
  {"index_put",                      None,    Widest},
  {"scatter_add",                    None,    Widest},
  {"stack",                          Widest,  None},
  {"tensordot",                      None,    Widest},  // CPU: dot's rule or mm's, by what it comes to
};
// clang-format on
}  // namespace cast_rules

constexpr CastRule cast_rule(std::string_view op) {
  for (const CastRule& rule : cast_rules::all)
    if (rule.op == op) return rule;
  return {op, CastPolicy::None, CastPolicy::None};
}

/// What a product casts a tensor of that dtype to: the region's dtype, in an autocast region for the device.
DType product_type(DType dtype, Device device);

struct CastCache;
/// What amp::Autocast switches: per device type, on or off and the lower dtype.
struct AutocastRegion {
  bool on[kNumDeviceTypes] = {};
  DType dtype[kNumDeviceTypes] = {kBFloat16, kFloat16};
  CastCache* cache = nullptr;  // casts of weights; null: none are kept
};
CastCache* new_cast_cache();
void delete_cast_cache(CastCache* cache);

namespace detail {

/// One call's casts, with autocast off in its scope.
class CastScope {
 public:
  /// ValueError where the rule refuses. False: nothing is to be done.
  template <class... A> CastScope(const CastRule& rule, const A&... arguments) {
    (see(arguments), ...);
    decide(rule);
  }
  /// Casts to `dtype`, where autocast is on for the arguments' device.
  template <class... A> CastScope(DType dtype, const A&... arguments) {
    (see(arguments), ...);
    decide(dtype);
  }
  explicit operator bool() const { return region_; }

  Tensor operator()(const Tensor& x);
  Operand operator()(const Operand& x);
  std::span<const Tensor> operator()(std::span<const Tensor> x);
  /// Options: their weight, pos_weight and attn_mask are cast; anything else stays as it is.
  template <class T> T operator()(const T& x) {
    T out = x;
    if constexpr (requires { x.weight; }) out.weight = (*this)(x.weight);
    if constexpr (requires { x.pos_weight; }) out.pos_weight = (*this)(x.pos_weight);
    if constexpr (requires { x.attn_mask; }) out.attn_mask = (*this)(x.attn_mask);
    return out;
  }

 private:
  void see(const Tensor& x);
  void see(const Operand& x) {
    if (x.is_tensor()) see(x.tensor());
  }
  void see(std::span<const Tensor> list) {
    for (const Tensor& x : list) see(x);
  }
  template <class T> void see(const T&) {}
  void decide(const CastRule& rule);
  void decide(DType dtype);
  bool is_cast(const Tensor& x) const;

  ScopedMode<AutocastRegion*> off_{modes.autocast, modes.autocast};
  AutocastRegion* region_ = nullptr;
  const Tensor* first_ = nullptr;
  bool casts_ = false;
  DType target_ = kFloat32;
  DType widest_ = kBool;  // of the arguments that are cast; float32 where they differ
  Tensor held_[3];        // of operands
  int num_held_ = 0;
  std::vector<Tensor> list_;  // of a list
};

}  // namespace detail

/// First line of a function with a line in the table: in an autocast region, the call with its arguments cast.
#define TAPIR_AUTOCAST(op, ...)                                       \
  if constexpr (constexpr CastRule rule = cast_rule(#op); rule.any()) \
    if (modes.autocast) [[unlikely]]                                  \
      if (detail::CastScope cast(rule, __VA_ARGS__); cast)            \
  return [&](const auto&... a) { return op(cast(a)...); }(__VA_ARGS__)

}  // namespace tapir::inline v0
