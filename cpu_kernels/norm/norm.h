#pragma once
#include "../kernels.h"
#include "../moments.h"
#include "../stage.h"

namespace tapir::inline v0::cpu {

struct NormOperands {
  const TensorView &y, &mean, &rstd, &x, &weight, &bias, &running_mean, &running_var;
  TensorView shift = {}, add = {};  // of norm_relu
  bool relu = false;
};
struct NormGradOperands {
  const TensorView &dx, &dweight, &dbias, &dy, &x, &weight, &mean, &rstd;
  TensorView dadd = {}, y = {}, shift = {};  // of norm_relu_backward
  bool relu = false;
};

#define TAPIR_EACH_FLOAT(X) X(float) X(double) X(Half) X(BFloat16)

/// Layer and Rms, for T of float, double, Half, BFloat16 (norm_rows.cpp).
template <class T> void norm_rows(Context& ctx, const entry::Norm& c);
template <class T> void norm_rows_backward(Context& ctx, const entry::NormBackward& c);
/// Batch and Group (norm_channels.cpp).
template <class T> void norm_channels(Context& ctx, const NormOperands& o, const NormParams& params);
template <class T> void norm_channels_backward(Context& ctx, const NormGradOperands& o, const NormParams& params);

}  // namespace tapir::inline v0::cpu
