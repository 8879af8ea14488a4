#include "../../../cuda_kernels/vendor/dnn.h"

#include "host_call.h"

namespace tapir::inline v0::cuda_kernels::dnn {

bool conv(Context& ctx, Pass pass, V x, V w, V y, const ConvParams& params, bool) {
  HostCall call("dnn::conv", ctx);
  const auto view = [&](V v, Pass writer) { return pass == writer ? call.write(v) : call.read(v); };
  const TensorView xs = view(x, Pass::BackwardData), ws = view(w, Pass::BackwardWeight), ys = view(y, Pass::Forward);
  const BackendTable& host = *built_in_backend(DeviceType::CPU);
  Context& c = context(kCPU);
  if (pass == Pass::Forward) host.conv(c, ys, xs, ws, {}, params);
  else if (pass == Pass::BackwardData) host.conv_backward_data(c, xs, ys, ws, params);
  else host.conv_backward_weight(c, ws, {}, ys, xs, params);
  call.end();
  return true;
}

}  // namespace tapir::inline v0::cuda_kernels::dnn
