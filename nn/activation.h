#pragma once
#include <string>

#include "module.h"

// Activations, with the defaults of the functions of that name (ops/activation.h, where their definitions and sources stand).
namespace tapir::inline v0::nn {

struct InplaceOptions {
  bool inplace = false;  // overwrites the input
};
using ReLUOptions = InplaceOptions;

namespace detail {
inline std::string with_inplace(std::string text, bool inplace) {
  return inplace ? text + (text.empty() ? "inplace=True" : ", inplace=True") : text;
}
}  // namespace detail

// Without options; with {.inplace = true}; with one or two numbers; with numbers and {.inplace = true}.
#define TAPIR_PLAIN(Name)            \
  struct Name : Module {             \
    Tensor forward(const Tensor& x); \
    TAPIR_DECLARE_FIELDS()           \
  };
#define TAPIR_INPLACE(Name)                                                         \
  struct Name : Module {                                                            \
    bool inplace;                                                                   \
    explicit Name(const InplaceOptions& options = {}) : inplace(options.inplace) {} \
    Tensor forward(const Tensor& x);                                                \
    std::string extra_repr() override { return detail::with_inplace("", inplace); } \
    TAPIR_DECLARE_FIELDS(inplace)                                                   \
  };
#define TAPIR_ONE_NUMBER(Name, type, a, default_a) \
  struct Name : Module {                           \
    type a;                                        \
    explicit Name(type a default_a) : a(a) {}      \
    Tensor forward(const Tensor& x);               \
    TAPIR_DECLARE_FIELDS(a)                        \
  };
#define TAPIR_ONE_NUMBER_INPLACE(Name, a, default_a)                                                            \
  struct Name : Module {                                                                                        \
    double a;                                                                                                   \
    bool inplace;                                                                                               \
    explicit Name(double a = default_a, const InplaceOptions& options = {}) : a(a), inplace(options.inplace) {} \
    Tensor forward(const Tensor& x);                                                                            \
    std::string extra_repr() override { return detail::with_inplace(detail::plain_text(#a, a), inplace); }      \
    TAPIR_DECLARE_FIELDS(a, inplace)                                                                            \
  };
#define TAPIR_TWO_NUMBERS_INPLACE(Name, a, default_a, b, default_b)                                       \
  struct Name : Module {                                                                                  \
    double a, b;                                                                                          \
    bool inplace;                                                                                         \
    explicit Name(double a default_a, double b default_b, const InplaceOptions& options = {})             \
        : a(a), b(b), inplace(options.inplace) {}                                                         \
    Tensor forward(const Tensor& x);                                                                      \
    std::string extra_repr() override {                                                                   \
      return detail::with_inplace(detail::plain_text(#a, a) + ", " + detail::plain_text(#b, b), inplace); \
    }                                                                                                     \
    TAPIR_DECLARE_FIELDS(a, b, inplace)                                                                   \
  };

TAPIR_PLAIN(Sigmoid)
TAPIR_PLAIN(Tanh)
TAPIR_PLAIN(Softsign)
TAPIR_PLAIN(Tanhshrink)
TAPIR_PLAIN(LogSigmoid)
/// softmax over the channels of (N, C, H, W) or (C, H, W).
TAPIR_PLAIN(Softmax2d)
TAPIR_INPLACE(ReLU)
TAPIR_INPLACE(ReLU6)
TAPIR_INPLACE(SELU)
TAPIR_INPLACE(SiLU)
TAPIR_INPLACE(Mish)
TAPIR_INPLACE(Hardsigmoid)
TAPIR_INPLACE(Hardswish)
TAPIR_ONE_NUMBER(Softmax, int64_t, dim, )
TAPIR_ONE_NUMBER(LogSoftmax, int64_t, dim, )
TAPIR_ONE_NUMBER(Softmin, int64_t, dim, )
TAPIR_ONE_NUMBER(GLU, int64_t, dim, = -1)
TAPIR_ONE_NUMBER_INPLACE(LeakyReLU, negative_slope, 0.01)
TAPIR_ONE_NUMBER_INPLACE(ELU, alpha, 1)
TAPIR_ONE_NUMBER_INPLACE(CELU, alpha, 1)
TAPIR_TWO_NUMBERS_INPLACE(Hardtanh, min_val, = -1, max_val, = 1)
TAPIR_TWO_NUMBERS_INPLACE(Threshold, threshold, , value, )
/// In training the slope of negative elements is drawn from [lower, upper).
TAPIR_TWO_NUMBERS_INPLACE(RReLU, lower, = 1.0 / 8, upper, = 1.0 / 3)
#undef TAPIR_PLAIN
#undef TAPIR_INPLACE
#undef TAPIR_ONE_NUMBER
#undef TAPIR_ONE_NUMBER_INPLACE
#undef TAPIR_TWO_NUMBERS_INPLACE

/// approximate: "none" or "tanh".
struct GELU : Module {
  std::string approximate;
  explicit GELU(std::string approximate = "none") : approximate(std::move(approximate)) {}
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(approximate)
};
struct Softplus : Module {
  double beta, threshold;
  explicit Softplus(double beta = 1, double threshold = 20) : beta(beta), threshold(threshold) {}
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(beta, threshold)
};
#define TAPIR_SHRINK(Name)                                                  \
  struct Name : Module {                                                    \
    double lambd;                                                           \
    explicit Name(double lambd = 0.5) : lambd(lambd) {}                     \
    Tensor forward(const Tensor& x);                                        \
    std::string extra_repr() override { return detail::float_text(lambd); } \
    TAPIR_DECLARE_FIELDS(lambd)                                             \
  };
TAPIR_SHRINK(Hardshrink)
TAPIR_SHRINK(Softshrink)
#undef TAPIR_SHRINK
struct PReLUOptions {
  double init = 0.25;
};
/// x where x > 0, else weight x with a learned weight: one, or one for each channel.
struct PReLU : Module {
  int64_t num_parameters;
  Parameter weight;
  explicit PReLU(int64_t num_parameters = 1, const PReLUOptions& options = {});
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(num_parameters, weight)
};

}  // namespace tapir::inline v0::nn
