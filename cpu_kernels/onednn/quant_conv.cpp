// 8-bit convolutions by oneDNN. What is multiplied and added for each channel comes as operands of its post-operations, which are the
// same in 2.x and 3.x and may change from call to call; its own scales are neither.
#include "../dnn.h"
#include "library.h"

namespace tapir::inline v0::cpu::dnn {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;

struct QuantPlan {
  Call call, reorder;
  int64_t weight_bytes = 0;
};

Desc channels_last(const ConvShape& s, int64_t channels, const int64_t* extents, Type type) {
  Dims sizes{s.n, channels}, strides(size_t(s.spatial) + 2);
  sizes.insert(sizes.end(), extents, extents + s.spatial);
  strides[1] = 1;
  int64_t step = channels;
  for (size_t d = sizes.size(); d-- > 0;)
    if (d != 1) strides[d] = step, step *= sizes[d];
  return Desc(sizes, type, strides);
}
Desc weight(const ConvShape& s, bool any) {
  Dims d{s.o / s.groups, s.c / s.groups};
  if (s.groups > 1) d.insert(d.begin(), s.groups);
  d.insert(d.end(), s.kernel, s.kernel + s.spatial);
  if (any) return Desc(d, Type::s8, dnnl::memory::format_tag::any);
  Dims strides(d.size());
  int64_t step = 1;
  for (size_t i = d.size(); i-- > 0;) strides[i] = step, step *= d[i];
  return Desc(d, Type::s8, strides);
}

std::unique_ptr<QuantPlan> make_plan(const QuantConv& c) try {
  const ConvShape& s = c.shape;
  Dims stride, dilation, before(size_t(s.spatial), 0), after, channel(size_t(s.spatial) + 2, 1),
      strides(channel.size(), 1);
  for (int64_t d = 0; d < s.spatial; ++d) {
    stride.push_back(s.stride[d]), dilation.push_back(s.dilation[d] - 1);
    after.push_back((s.out[d] - 1) * s.stride[d] + (s.kernel[d] - 1) * s.dilation[d] + 1 - s.in[d]);
  }
  channel[1] = s.o, strides[0] = s.o;
  const Desc x = channels_last(s, s.c, s.in, Type::u8), y = channels_last(s, s.o, s.out, Type::f32),
             each(channel, Type::f32, strides), plain = weight(s, false);
  dnnl::post_ops ops;
  ops.append_binary(dnnl::algorithm::binary_mul, each);
  if (c.bias) ops.append_binary(dnnl::algorithm::binary_add, each);
  // The library's own bias is added first: with -zero there, a sum of zeros is zero, whatever the rest rounds.
  const Desc shift({s.o}, Type::f32, dnnl::memory::format_tag::a);
  const auto desc = describe<dnnl::convolution_forward>(attributes(ops), dnnl::prop_kind::forward_inference,
                                                        dnnl::algorithm::convolution_direct, x, weight(s, true), shift,
                                                        y, stride, dilation, before, after);
  if (!is_good(desc)) return nullptr;
  auto plan = std::make_unique<QuantPlan>();
  plan->call = Call(dnnl::convolution_forward(desc), desc.scratchpad_desc());
  plan->call.argument(DNNL_ARG_SRC, x);
  plan->call.argument(DNNL_ARG_WEIGHTS, desc.weights_desc());
  plan->call.argument(DNNL_ARG_DST, y);
  plan->call.argument(DNNL_ARG_BIAS, shift);
  plan->call.argument(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, each);
  if (c.bias) plan->call.argument(DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, each);
  if (desc.weights_desc() != plain) {
    plan->reorder = make_reorder(plain, desc.weights_desc());
    plan->weight_bytes = int64_t(desc.weights_desc().get_size());
  }
  return plan;
} catch (const dnnl::error&) {
  return nullptr;
}

}  // namespace

bool quant_conv(Context& ctx, const QuantConv& c) {
  if (!has_vnni()) return false;  // products are added in pairs, in 16 bits that saturate
  thread_local Cache<QuantPlan> cache;
  const ConvShape& s = c.shape;
  // oneDNN 2.6.3 gives wrong numbers for groups of, say, 17 channels.
  if (const int64_t each = s.o / s.groups; s.groups > 1 && each > 16 && each % 16) return false;
  const Session session(0);
  Key key;
  key.add(session.threads(), c.bias != nullptr, s.n, s.c, s.o, s.groups, s.spatial);
  for (int64_t d = 0; d < s.spatial; ++d) key.add(s.in[d], s.out[d], s.kernel[d], s.stride[d], s.dilation[d]);
  QuantPlan* plan = cache.find(key, [&] { return make_plan(c); });
  if (!plan) return false;
  void* w = c.w;
  if (plan->reorder) {
    w = ctx.scratch(plan->weight_bytes);
    plan->reorder.run(ctx, {c.w, w});
  }
  float* const shift = ctx.scratch_of<float>(s.o);
  for (int64_t o = 0; o < s.o; ++o) shift[o] = -float(c.zero[o]);
  if (c.bias) plan->call.run(ctx, {c.x, w, c.y, shift, c.multiply, c.bias});
  else plan->call.run(ctx, {c.x, w, c.y, shift, c.multiply});
  return true;
}

}  // namespace tapir::inline v0::cpu::dnn
