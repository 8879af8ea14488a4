#include "ops.h"

namespace conformance {

static Padding padding_of(Args& a) {
  const Value* v = a.find("padding");
  if (!v) return 0;
  return v->kind == Value::Kind::String ? Padding(v->text) : Padding(dims_of(*v));
}
static ConvOptions conv_options(Args& a) {
  return {a.dims("stride", 1), padding_of(a), a.dims("dilation", 1), a.integer("groups", 1)};
}
static ConvTransposeOptions transposed_options(Args& a) {
  return {a.dims("stride", 1), a.dims("padding", 0), a.dims("output_padding", 0), a.integer("groups", 1),
          a.dims("dilation", 1)};
}
static MaxPoolOptions max_pool_options(Args& a) {
  return {a.dims("stride"), a.dims("padding", 0), a.dims("dilation", 1), a.boolean("ceil_mode", false)};
}
static AvgPoolOptions avg_pool_options(Args& a) {
  AvgPoolOptions o{a.dims("stride"), a.dims("padding", 0), a.boolean("ceil_mode", false),
                   a.boolean("count_include_pad", true)};
  if (a.has("divisor_override")) o.divisor_override = a.integer("divisor_override");
  return o;
}
template <class Plain, class WithIndices> static Results max_pool(Args& a, Plain&& plain, WithIndices&& with_indices) {
  const Tensor x = a.tensor("input");
  const Dims kernel = a.dims("kernel_size");
  const MaxPoolOptions o = max_pool_options(a);
  if (!a.boolean("return_indices", false)) return {plain(x, kernel, o)};
  auto [y, places] = with_indices(x, kernel, o);
  return {y, places};
}

#define CONV(name)                                                                                                    \
  table[#name] = {[](Args& a) -> Results {                                                                            \
                    return {name(a.tensor("input"), a.tensor("weight"), a.optional_tensor("bias"), conv_options(a))}; \
                  },                                                                                                  \
                  {}}
#define CONV_TRANSPOSE(name)                                                                                    \
  table[#name] = {                                                                                              \
      [](Args& a) -> Results {                                                                                  \
        return {name(a.tensor("input"), a.tensor("weight"), a.optional_tensor("bias"), transposed_options(a))}; \
      },                                                                                                        \
      {}}
#define MAX_POOL(name)                                                         \
  table[#name] = {[](Args& a) {                                                \
                    return max_pool(                                           \
                        a, [](auto&... x) { return name(x...); },              \
                        [](auto&... x) { return name##_with_indices(x...); }); \
                  },                                                           \
                  {}}
#define AVG_POOL(name) \
  table[#name] = {     \
      [](Args& a) -> Results { return {name(a.tensor("input"), a.dims("kernel_size"), avg_pool_options(a))}; }, {}}
/// None keeps a size.
static Dims output_size(Args& a) {
  const Value& v = a.need("output_size");
  if (v.kind != Value::Kind::List) return dims_of(v);
  Dims d;
  for (const Value& item : v.list) d.push_back(item.none() ? -1 : scalar_of(item).to_int());
  return d;
}
#define ADAPTIVE_AVG(name) \
  table[#name] = {[](Args& a) -> Results { return {name(a.tensor("input"), output_size(a))}; }, {}}

void bind_nn() {
  auto& table = bindings();
  CONV(conv1d);
  CONV(conv2d);
  CONV(conv3d);
  CONV_TRANSPOSE(conv_transpose1d);
  CONV_TRANSPOSE(conv_transpose2d);
  CONV_TRANSPOSE(conv_transpose3d);
  MAX_POOL(max_pool1d);
  MAX_POOL(max_pool2d);
  MAX_POOL(max_pool3d);
  AVG_POOL(avg_pool1d);
  AVG_POOL(avg_pool2d);
  AVG_POOL(avg_pool3d);
  ADAPTIVE_AVG(adaptive_avg_pool1d);
  ADAPTIVE_AVG(adaptive_avg_pool2d);
  ADAPTIVE_AVG(adaptive_avg_pool3d);
  table["batch_norm"] = {
      [](Args& a) -> Results {
        return {batch_norm(a.tensor("input"), a.optional_tensor("running_mean"), a.optional_tensor("running_var"),
                           a.optional_tensor("weight"), a.optional_tensor("bias"),
                           {a.boolean("training", false), a.number("momentum", 0.1), a.number("eps", 1e-5)})};
      },
      {}};
  table["instance_norm"] = {
      [](Args& a) -> Results {
        return {instance_norm(a.tensor("input"), a.optional_tensor("running_mean"), a.optional_tensor("running_var"),
                              a.optional_tensor("weight"), a.optional_tensor("bias"),
                              {a.boolean("use_input_stats", true), a.number("momentum", 0.1), a.number("eps", 1e-5)})};
      },
      {}};
  table["layer_norm"] = {
      [](Args& a) -> Results {
        return {layer_norm(a.tensor("input"), a.dims("normalized_shape"), a.optional_tensor("weight"),
                           a.optional_tensor("bias"), {a.number("eps", 1e-5)})};
      },
      {}};
  table["group_norm"] = {[](Args& a) -> Results {
                           return {group_norm(a.tensor("input"), a.integer("num_groups"), a.optional_tensor("weight"),
                                              a.optional_tensor("bias"), {a.number("eps", 1e-5)})};
                         },
                         {}};
  table["rms_norm"] = {
      [](Args& a) -> Results {
        RmsNormOptions o;
        if (a.has("eps")) o.eps = a.number("eps");
        return {rms_norm(a.tensor("input"), a.dims("normalized_shape"), a.optional_tensor("weight"), o)};
      },
      {}};
  table["dropout"] = {
      [](Args& a) -> Results { return {dropout(a.tensor("input"), a.number("p", 0.5), a.boolean("training", true))}; },
      {}};
}

}  // namespace conformance
