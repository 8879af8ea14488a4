#include "norm.h"

namespace tapir::inline v0::cpu {

void norm(Context& ctx, V y, V mean, V rstd, V x, V weight, V bias, V running_mean, V running_var,
          const NormParams& params) {
  const NormOperands operands{y, mean, rstd, x, weight, bias, running_mean, running_var, {}, {}, false};
  for_any_float("norm", x.dtype, [&]<class T>() {
    if (params.op == NormOp::Layer || params.op == NormOp::Rms) norm_rows<T>(ctx, operands, params);
    else norm_channels<T>(ctx, operands, params);
  });
}

void norm_backward(Context& ctx, V dx, V dweight, V dbias, V dy, V x, V weight, V mean, V rstd,
                   const NormParams& params) {
  const NormGradOperands operands{dx, dweight, dbias, dy, x, weight, mean, rstd, {}, {}, {}, false};
  for_any_float("norm", x.dtype, [&]<class T>() {
    if (params.op == NormOp::Layer || params.op == NormOp::Rms) norm_rows_backward<T>(ctx, operands, params);
    else norm_channels_backward<T>(ctx, operands, params);
  });
}

void norm_relu(Context& ctx, V y, V mean, V rstd, V shift, V x, V weight, V bias, V running_mean, V running_var, V add,
               const NormParams& params) {
  const NormOperands operands{y, mean, rstd, x, weight, bias, running_mean, running_var, shift, add, true};
  for_any_float("norm_relu", x.dtype, [&]<class T>() { norm_channels<T>(ctx, operands, params); });
}

void norm_relu_backward(Context& ctx, V dx, V dweight, V dbias, V dadd, V dy, V x, V y, V shift, V weight, V mean,
                        V rstd, const NormParams& params) {
  const NormGradOperands operands{dx, dweight, dbias, dy, x, weight, mean, rstd, dadd, y, shift, true};
  for_any_float("norm_relu", x.dtype, [&]<class T>() { norm_channels_backward<T>(ctx, operands, params); });
}

}  // namespace tapir::inline v0::cpu
