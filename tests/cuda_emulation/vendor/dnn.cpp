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

const char* name_of(Pass pass) {
  return pass == Pass::Forward ? "forward" : pass == Pass::BackwardData ? "backward data" : "backward weight";
}
/// Of one product of the scores' size: half of it where queries see no later keys.
double attention_operations(V q, V k, const AttentionParams& params) {
  const double scores = double(q.sizes[0]) * double(q.sizes[1]) * double(q.sizes[2]) * double(k.sizes[2]);
  return 2 * scores * double(q.sizes[3]) / (params.causal ? 2 : 1);
}

}  // namespace

bool conv(Context& ctx, Pass pass, V x, V w, V y, const ConvParams& params, bool channels_last) {
  check_aligned({&x, &w, &y});
  if (x.dtype == kFloat64 && channels_last) return false;  // as the real one: the caller has another way
  host_call("dnn::conv", ctx, [=](HostCall& call) {
    const auto view = [&](V v, Pass writer) { return pass == writer ? call.write(v) : call.read(v); };
    const TensorView xs = view(x, Pass::BackwardData), ws = view(w, Pass::BackwardWeight), ys = view(y, Pass::Forward);
    Context& c = context(kCPU);
    if (call.counted(tapir::format("conv {}", x.dtype), 2 * double(y.numel()) * double(w.numel() / w.sizes[0]),
                     tapir::format("{} {} by {}", name_of(pass), x.shape(), w.shape())))
      return;
    if (pass == Pass::Forward) host().conv(c, ys, xs, ws, {}, params);
    else if (pass == Pass::BackwardData) host().conv_backward_data(c, xs, ys, ws, params);
    else host().conv_backward_weight(c, ws, {}, ys, xs, params);
  });
  return true;
}

bool attention(Context& ctx, V out, V lse, V q, V k, V v, const AttentionParams& params) {
  check_heads({&out, &q, &k, &v});
  host_call("dnn::attention", ctx, [=](HostCall& call) {
    const TensorView to = call.write(out), sums = call.write(lse), qs = call.read(q), ks = call.read(k),
                     vs = call.read(v);
    if (call.counted(tapir::format("attention {}", q.dtype), 2 * attention_operations(q, k, params),
                     tapir::format("{} to {}", q.shape(), k.shape())))
      return;
    host().attention(context(kCPU), to, sums, qs, ks, vs, {}, params);
  });
  return true;
}

bool attention_backward(Context& ctx, V dq, V dk, V dv, V dout, V out, V lse, V q, V k, V v,
                        const AttentionParams& params) {
  check_heads({&dq, &dk, &dv, &dout, &out, &q, &k, &v});
  host_call("dnn::attention_backward", ctx, [=](HostCall& call) {
    const TensorView dqs = call.write(dq), dks = call.write(dk), dvs = call.write(dv), given = call.read(dout),
                     made = call.read(out), sums = call.read(lse), qs = call.read(q), ks = call.read(k),
                     vs = call.read(v);
    if (call.counted(tapir::format("attention {}", q.dtype), 5 * attention_operations(q, k, params),
                     tapir::format("backward {} to {}", q.shape(), k.shape())))
      return;
    host().attention_backward(context(kCPU), dqs, dks, dvs, given, made, sums, qs, ks, vs, {}, params);
  });
  return true;
}

}  // namespace tapir::inline v0::cuda_kernels::dnn
