#include "../../../cuda_kernels/vendor/dnn.h"

#include "host_call.h"

namespace tapir::inline v0::cuda_kernels::dnn {
namespace {

const BackendTable& host() { return *built_in_backend(DeviceType::CPU); }

/// What the library takes for granted, asked for here.
void check_aligned(std::initializer_list<const TensorView*> views) {
  for (const TensorView* v : views)
    check(reinterpret_cast<uintptr_t>(v->data) % kAlignment == 0, "[cudnn] expected aligned operands, got {}",
          int64_t(reinterpret_cast<uintptr_t>(v->data) % kAlignment));
}
void check_heads(std::initializer_list<const TensorView*> views) {
  check_aligned(views);
  for (const TensorView* v : views)
    for (int64_t d = 0; d < 4; ++d)
      check(v->sizes[d] == 1 || (d == 3 ? v->strides[d] == 1 : v->strides[d] > 0 && v->strides[d] % 8 == 0),
            "[cudnn] expected strides of packs of heads, got {}", v->stride_list());
}

}  // namespace

bool conv(Context& ctx, Pass pass, V x, V w, V y, const ConvParams& params, bool channels_last) {
  check_aligned({&x, &w, &y});
  if (x.dtype == kFloat64 && channels_last) return false;  // as the real one: the caller has another way
  host_call("dnn::conv", ctx, [=](HostCall& call) {
    const auto view = [&](V v, Pass writer) { return pass == writer ? call.write(v) : call.read(v); };
    const TensorView xs = view(x, Pass::BackwardData), ws = view(w, Pass::BackwardWeight), ys = view(y, Pass::Forward);
    Context& c = context(kCPU);
    if (pass == Pass::Forward) host().conv(c, ys, xs, ws, {}, params);
    else if (pass == Pass::BackwardData) host().conv_backward_data(c, xs, ys, ws, params);
    else host().conv_backward_weight(c, ws, {}, ys, xs, params);
  });
  return true;
}

bool attention(Context& ctx, V out, V lse, V q, V k, V v, const AttentionParams& params) {
  check_heads({&out, &q, &k, &v});
  host_call("dnn::attention", ctx, [=](HostCall& call) {
    host().attention(context(kCPU), call.write(out), call.write(lse), call.read(q), call.read(k), call.read(v), {},
                     params);
  });
  return true;
}

bool attention_backward(Context& ctx, V dq, V dk, V dv, V dout, V out, V lse, V q, V k, V v,
                        const AttentionParams& params) {
  check_heads({&dq, &dk, &dv, &dout, &out, &q, &k, &v});
  host_call("dnn::attention_backward", ctx, [=](HostCall& call) {
    host().attention_backward(context(kCPU), call.write(dq), call.write(dk), call.write(dv), call.read(dout),
                              call.read(out), call.read(lse), call.read(q), call.read(k), call.read(v), {}, params);
  });
  return true;
}

}  // namespace tapir::inline v0::cuda_kernels::dnn
