#include "../../../cuda_kernels/vendor/dnn.h"

#include <vector>

#include "../../../cuda_kernels/vendor/libraries.h"
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

/// As the real one counts: no library, no call.
bool is_there(const char* call) {
  const std::string& why = why_not(Vendor::Cudnn);
  Tally& tally = tally_of(Vendor::Cudnn, call);
  if (!why.empty()) return count_refusal(tally, why), false;
  return ++tally.served, true;
}

/// An operand of the host's kernels as tensor cores see it under cudnn_allow_tf32: 10 bits of mantissa. Its copy fills memory in the same order.
class Tf32 : public TensorView {
 public:
  Tf32(V v, bool rounds) : TensorView(v) {
    if (!rounds || v.dtype != kFloat32) return;
    const int64_t n = v.numel();
    bits_.resize(size_t(n));
    std::copy_n(static_cast<const uint32_t*>(v.data), n, bits_.begin());
    for (uint32_t& b : bits_)
      if ((b & 0x7f800000) != 0x7f800000) b = (b + 0xfff + ((b >> 13) & 1)) & ~0x1fffu;
    data = bits_.data();
  }

 private:
  std::vector<uint32_t> bits_;
};

const char* name_of(Pass pass) {
  return pass == Pass::Forward ? "forward" : pass == Pass::BackwardData ? "backward data" : "backward weight";
}
/// Of one product of the scores' size: half of it where queries see no later keys.
double attention_operations(V q, V k, const AttentionParams& params) {
  const double scores = double(q.sizes[0]) * double(q.sizes[1]) * double(q.sizes[2]) * double(k.sizes[2]);
  return 2 * scores * double(q.sizes[3]) / (params.causal ? 2 : 1);
}

}  // namespace

bool conv(Context& ctx, Pass pass, V x, V w, V y, V bias, const ConvParams& params, bool channels_last) {
  check_aligned({&x, &w, &y, &bias});
  check(!bias.defined() || (pass == Pass::Forward && (bias.sizes[0] == 1 || bias.strides[0] == 1)),
        "[cudnn] expected a bias without gaps, of the forward pass alone, got strides {}", bias.stride_list());
  if (x.dtype == kFloat64 && channels_last) return false;  // as the real one: the caller has another way
  if (!is_there("conv")) return false;
  host_call("dnn::conv", ctx, [=, tf32 = settings->cudnn_allow_tf32.load()](HostCall& call) {
    const auto view = [&](V v, Pass writer) { return pass == writer ? call.write(v) : call.read(v); };
    const TensorView xs = view(x, Pass::BackwardData), ws = view(w, Pass::BackwardWeight), ys = view(y, Pass::Forward),
                     bs = call.read(bias);
    Context& c = context(kCPU);
    if (call.counted(tapir::format("conv {}", x.dtype), 2 * double(y.numel()) * double(w.numel() / w.sizes[0]),
                     tapir::format("{} {} by {}", name_of(pass), x.shape(), w.shape())))
      return;
    if (pass == Pass::Forward)
      host().conv(c, {.y = ys, .x = Tf32(xs, tf32), .w = Tf32(ws, tf32), .bias = bs, .params = params});
    else if (pass == Pass::BackwardData) host().conv_backward_data(c, {xs, Tf32(ys, tf32), Tf32(ws, tf32), params});
    else host().conv_backward_weight(c, {.dw = ws, .dy = Tf32(ys, tf32), .x = Tf32(xs, tf32), .params = params});
  });
  return true;
}

bool attention(Context& ctx, V out, V lse, V q, V k, V v, const AttentionParams& params) {
  check_heads({&out, &q, &k, &v});
  if (!is_there("attention")) return false;
  host_call("dnn::attention", ctx, [=](HostCall& call) {
    const TensorView to = call.write(out), sums = call.write(lse), qs = call.read(q), ks = call.read(k),
                     vs = call.read(v);
    if (call.counted(tapir::format("attention {}", q.dtype), 2 * attention_operations(q, k, params),
                     tapir::format("{} to {}", q.shape(), k.shape())))
      return;
    host().attention(context(kCPU), {.out = to, .lse = sums, .q = qs, .k = ks, .v = vs, .params = params});
  });
  return true;
}

bool attention_backward(Context& ctx, V dq, V dk, V dv, V dout, V out, V lse, V q, V k, V v,
                        const AttentionParams& params) {
  check_heads({&dq, &dk, &dv, &dout, &out, &q, &k, &v});
  if (!is_there("attention_backward")) return false;
  host_call("dnn::attention_backward", ctx, [=](HostCall& call) {
    const TensorView dqs = call.write(dq), dks = call.write(dk), dvs = call.write(dv), given = call.read(dout),
                     made = call.read(out), sums = call.read(lse), qs = call.read(q), ks = call.read(k),
                     vs = call.read(v);
    if (call.counted(tapir::format("attention {}", q.dtype), 5 * attention_operations(q, k, params),
                     tapir::format("backward {} to {}", q.shape(), k.shape())))
      return;
    host().attention_backward(context(kCPU), {.dq = dqs,
                                              .dk = dks,
                                              .dv = dvs,
                                              .dout = given,
                                              .out = made,
                                              .lse = sums,
                                              .q = qs,
                                              .k = ks,
                                              .v = vs,
                                              .params = params});
  });
  return true;
}

}  // namespace tapir::inline v0::cuda_kernels::dnn
