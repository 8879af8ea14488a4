#pragma once
#include "module.h"

// Elements around (N, C, ...) or (C, ...). `padding`: one number for all sides, or {left, right, top, bottom, front, back}, the last axis
// first; negative numbers cut.
namespace tapir::inline v0::nn {

struct PadBase : Module {
  Dims padding;  // two numbers for each spatial axis
  const char* mode;
  double value;
  PadBase(const char* name, int64_t spatial, const Dims& padding, const char* mode, double value = 0);
  Tensor forward(const Tensor& x);
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(padding, mode, value)
};

#define TAPIR_PAD(Name, spatial, mode)                                             \
  struct Name : PadBase {                                                          \
    explicit Name(const Dims& padding) : PadBase(#Name, spatial, padding, mode) {} \
    TAPIR_DECLARE_FIELDS_WITH_BASE(PadBase)                                        \
  };
#define TAPIR_PADS(n)                                                                   \
  TAPIR_PAD(ZeroPad##n##d, n, "constant")                                               \
  TAPIR_PAD(ReflectionPad##n##d, n, "reflect")                                          \
  TAPIR_PAD(ReplicationPad##n##d, n, "replicate")                                       \
  TAPIR_PAD(CircularPad##n##d, n, "circular")                                           \
  struct ConstantPad##n##d : PadBase {                                                  \
    ConstantPad##n##d(const Dims& padding, double value)                                \
        : PadBase("ConstantPad" #n "d", n, padding, "constant", value) {}               \
    std::string extra_repr() override {                                                 \
      return tapir::format("padding={}, value={}", padding, detail::float_text(value)); \
    }                                                                                   \
    TAPIR_DECLARE_FIELDS_WITH_BASE(PadBase)                                             \
  };
TAPIR_PADS(1)
TAPIR_PADS(2)
TAPIR_PADS(3)
#undef TAPIR_PAD
#undef TAPIR_PADS

}  // namespace tapir::inline v0::nn
