#pragma once
#include "../ops/fractional_pool.h"
#include "../ops/pool.h"
#include "module.h"

// Pooling of (N, C, ...) or (C, ...) over one to three spatial axes.
namespace tapir::inline v0::nn {

#define TAPIR_POOL_BASE(Name, Options)                                  \
  struct Name : Module {                                                \
    Dims kernel_size;                                                   \
    Options options;                                                    \
    explicit Name(const Dims& kernel_size, const Options& options = {}) \
        : kernel_size(kernel_size), options(options) {}                 \
    std::string extra_repr() override;                                  \
    TAPIR_DECLARE_FIELDS(kernel_size, options)                          \
  };
TAPIR_POOL_BASE(MaxPoolBase, MaxPoolOptions)
TAPIR_POOL_BASE(AvgPoolBase, AvgPoolOptions)
#undef TAPIR_POOL_BASE
struct AdaptivePoolBase : Module {
  Dims output_size;  // -1 keeps an extent
  explicit AdaptivePoolBase(const Dims& output_size) : output_size(output_size) {}
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(output_size)
};
struct LPPoolBase : Module {
  double norm_type;
  Dims kernel_size;
  LpPoolOptions options;
  LPPoolBase(double norm_type, const Dims& kernel_size, const LpPoolOptions& options = {})
      : norm_type(norm_type), kernel_size(kernel_size), options(options) {}
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(norm_type, kernel_size, options)
};
struct MaxUnpoolOptions {
  Dims stride = {};  // none: the kernel's size
  Dims padding = 0;
};
struct MaxUnpoolBase : Module {
  Dims kernel_size, stride, padding;
  explicit MaxUnpoolBase(const Dims& kernel_size, const MaxUnpoolOptions& options = {})
      : kernel_size(kernel_size), stride(options.stride.empty() ? kernel_size : options.stride),
        padding(options.padding) {}
  TAPIR_DECLARE_FIELDS(kernel_size, stride, padding)

 protected:
  std::string repr_of(int64_t spatial) const;
};

#define TAPIR_POOLS(n)                                                                            \
  /** The largest element of each window. */                                                      \
  struct MaxPool##n##d : MaxPoolBase {                                                            \
    using MaxPoolBase::MaxPoolBase;                                                               \
    Tensor forward(const Tensor& x) { return max_pool##n##d(x, kernel_size, options); }           \
    /** PyTorch's return_indices: the maxima, and their positions in the flattened plane. */      \
    std::pair<Tensor, Tensor> forward_with_indices(const Tensor& x) {                             \
      return max_pool##n##d_with_indices(x, kernel_size, options);                                \
    }                                                                                             \
    TAPIR_DECLARE_FIELDS_WITH_BASE(MaxPoolBase)                                                   \
  };                                                                                              \
  /** The mean of each window. */                                                                 \
  struct AvgPool##n##d : AvgPoolBase {                                                            \
    using AvgPoolBase::AvgPoolBase;                                                               \
    Tensor forward(const Tensor& x) { return avg_pool##n##d(x, kernel_size, options); }           \
    TAPIR_DECLARE_FIELDS_WITH_BASE(AvgPoolBase)                                                   \
  };                                                                                              \
  /** Means of windows such that the result has `output_size`. */                                 \
  struct AdaptiveAvgPool##n##d : AdaptivePoolBase {                                               \
    using AdaptivePoolBase::AdaptivePoolBase;                                                     \
    Tensor forward(const Tensor& x) { return adaptive_avg_pool##n##d(x, output_size); }           \
    TAPIR_DECLARE_FIELDS_WITH_BASE(AdaptivePoolBase)                                              \
  };                                                                                              \
  /** The largest elements of the same windows. */                                                \
  struct AdaptiveMaxPool##n##d : AdaptivePoolBase {                                               \
    using AdaptivePoolBase::AdaptivePoolBase;                                                     \
    Tensor forward(const Tensor& x) { return adaptive_max_pool##n##d(x, output_size); }           \
    std::pair<Tensor, Tensor> forward_with_indices(const Tensor& x) {                             \
      return adaptive_max_pool##n##d_with_indices(x, output_size);                                \
    }                                                                                             \
    TAPIR_DECLARE_FIELDS_WITH_BASE(AdaptivePoolBase)                                              \
  };                                                                                              \
  /** (sum of x^p)^(1/p) over each window. */                                                     \
  struct LPPool##n##d : LPPoolBase {                                                              \
    using LPPoolBase::LPPoolBase;                                                                 \
    Tensor forward(const Tensor& x) { return lp_pool##n##d(x, norm_type, kernel_size, options); } \
    TAPIR_DECLARE_FIELDS_WITH_BASE(LPPoolBase)                                                    \
  };                                                                                              \
  /** Zeros with x at the positions that max pooling gave. */                                     \
  struct MaxUnpool##n##d : MaxUnpoolBase {                                                        \
    using MaxUnpoolBase::MaxUnpoolBase;                                                           \
    Tensor forward(const Tensor& x, const Tensor& indices, const Dims& output_size = {}) {        \
      return max_unpool##n##d(x, indices, kernel_size, {stride, padding, output_size});           \
    }                                                                                             \
    std::string extra_repr() override { return repr_of(n); }                                      \
    TAPIR_DECLARE_FIELDS_WITH_BASE(MaxUnpoolBase)                                                 \
  };
TAPIR_POOLS(1)
TAPIR_POOLS(2)
TAPIR_POOLS(3)
#undef TAPIR_POOLS

template <> inline constexpr bool plain_field<FractionalMaxPoolOptions> = true;  // whose own samples are none

/// The largest elements of windows whose steps are drawn anew at each call, unless options.random_samples fixes them. Graham 2014,
/// arXiv 1412.6071.
#define TAPIR_FRACTIONAL_POOL(Name, op)                                                                       \
  struct Name : Module {                                                                                      \
    Dims kernel_size;                                                                                         \
    FractionalMaxPoolOptions options;                                                                         \
    Buffer _random_samples;                                                                                   \
    Name(const Dims& kernel_size, const FractionalMaxPoolOptions& o)                                          \
        : kernel_size(kernel_size), options(o), _random_samples(std::exchange(options.random_samples, {})) {} \
    Tensor forward(const Tensor& x) { return op(x, kernel_size, with_samples()); }                            \
    std::pair<Tensor, Tensor> forward_with_indices(const Tensor& x) {                                         \
      return op##_with_indices(x, kernel_size, with_samples());                                               \
    }                                                                                                         \
    std::string extra_repr() override { return ""; }                                                          \
    TAPIR_DECLARE_FIELDS(kernel_size, options, _random_samples)                                               \
                                                                                                              \
   private:                                                                                                   \
    FractionalMaxPoolOptions with_samples() const {                                                           \
      return {options.output_size, options.output_ratio, _random_samples};                                    \
    }                                                                                                         \
  };
TAPIR_FRACTIONAL_POOL(FractionalMaxPool2d, fractional_max_pool2d)
TAPIR_FRACTIONAL_POOL(FractionalMaxPool3d, fractional_max_pool3d)
#undef TAPIR_FRACTIONAL_POOL

}  // namespace tapir::inline v0::nn
