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
class Tf32 {
 public:
  Tf32(V v, bool rounds) : view_(v) {
    if (!rounds || v.dtype != kFloat32) return;
    const int64_t n = v.numel();
    bits_.resize(size_t(n));
    std::copy_n(static_cast<const uint32_t*>(v.data), n, bits_.begin());
    for (uint32_t& b : bits_)
      if ((b & 0x7f800000) != 0x7f800000) b = (b + 0xfff + ((b >> 13) & 1)) & ~0x1fffu;
    view_.data = bits_.data();
  }
  operator const TensorView&() const { return view_; }

 private:
  TensorView view_;
  std::vector<uint32_t> bits_;
};

}  // namespace

bool conv(Context& ctx, Pass pass, V x, V w, V y, const ConvParams& params, bool channels_last) {
  check_aligned({&x, &w, &y});
  if (x.dtype == kFloat64 && channels_last) return false;  // as the real one: the caller has another way
  if (!is_there("conv")) return false;
  host_call("dnn::conv", ctx, [=, tf32 = settings->cudnn_allow_tf32.load()](HostCall& call) {
    const auto view = [&](V v, Pass writer) { return pass == writer ? call.write(v) : call.read(v); };
    const TensorView xs = view(x, Pass::BackwardData), ws = view(w, Pass::BackwardWeight), ys = view(y, Pass::Forward);
    Context& c = context(kCPU);
    if (pass == Pass::Forward) host().conv(c, ys, Tf32(xs, tf32), Tf32(ws, tf32), {}, params);
    else if (pass == Pass::BackwardData) host().conv_backward_data(c, xs, Tf32(ys, tf32), Tf32(ws, tf32), params);
    else host().conv_backward_weight(c, ws, {}, Tf32(ys, tf32), Tf32(xs, tf32), params);
  });
  return true;
}

bool attention(Context& ctx, V out, V lse, V q, V k, V v, const AttentionParams& params) {
  check_heads({&out, &q, &k, &v});
  if (!is_there("attention")) return false;
  host_call("dnn::attention", ctx, [=](HostCall& call) {
    host().attention(context(kCPU), call.write(out), call.write(lse), call.read(q), call.read(k), call.read(v), {},
                     params);
  });
  return true;
}

bool attention_backward(Context& ctx, V dq, V dk, V dv, V dout, V out, V lse, V q, V k, V v,
                        const AttentionParams& params) {
  check_heads({&dq, &dk, &dv, &dout, &out, &q, &k, &v});
  if (!is_there("attention_backward")) return false;
  host_call("dnn::attention_backward", ctx, [=](HostCall& call) {
    host().attention_backward(context(kCPU), call.write(dq), call.write(dk), call.write(dv), call.read(dout),
                              call.read(out), call.read(lse), call.read(q), call.read(k), call.read(v), {}, params);
  });
  return true;
}

}  // namespace tapir::inline v0::cuda_kernels::dnn
