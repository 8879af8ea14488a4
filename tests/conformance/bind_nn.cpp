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

#define ADAPTIVE_MAX(name)                                                                     \
  table[#name] = {[](Args& a) -> Results {                                                     \
                    const Tensor x = a.tensor("input");                                        \
                    if (!a.boolean("return_indices", false)) return {name(x, output_size(a))}; \
                    auto [y, places] = name##_with_indices(x, output_size(a));                 \
                    return {y, places};                                                        \
                  },                                                                           \
                  {}}
#define MAX_UNPOOL(name)                                                                            \
  table[#name] = {[](Args& a) -> Results {                                                          \
                    return {name(a.tensor("input"), a.tensor("indices"), a.dims("kernel_size"),     \
                                 {a.dims("stride"), a.dims("padding", 0), a.dims("output_size")})}; \
                  },                                                                                \
                  {}}
#define LP_POOL(name)                                                                             \
  table[#name] = {[](Args& a) -> Results {                                                        \
                    return {name(a.tensor("input"), a.number("norm_type"), a.dims("kernel_size"), \
                                 {a.dims("stride"), a.boolean("ceil_mode", false)})};             \
                  },                                                                              \
                  {}}
static FoldOptions fold_options(Args& a) { return {a.dims("dilation", 1), a.dims("padding", 0), a.dims("stride", 1)}; }

static Results call_interpolate(Args& a) {
  InterpolateOptions o{.size = a.dims("size")};
  if (const Value* v = a.find("scale_factor")) {
    if (v->kind != Value::Kind::List) o.scale_factor = {scalar_of(*v).to_double()};
    else
      for (const Value& item : v->list) o.scale_factor.push_back(scalar_of(item).to_double());
  }
  const std::string mode = a.text("mode", "nearest");
  o.mode = mode;
  if (a.has("align_corners")) o.align_corners = a.boolean("align_corners", false);
  o.recompute_scale_factor = a.boolean("recompute_scale_factor", false);
  o.antialias = a.boolean("antialias", false);
  return {interpolate(a.tensor("input"), o)};
}

static void bind_images(std::map<std::string, Binding>& table) {
  ADAPTIVE_MAX(adaptive_max_pool1d);
  ADAPTIVE_MAX(adaptive_max_pool2d);
  ADAPTIVE_MAX(adaptive_max_pool3d);
  MAX_UNPOOL(max_unpool1d);
  MAX_UNPOOL(max_unpool2d);
  MAX_UNPOOL(max_unpool3d);
  LP_POOL(lp_pool1d);
  LP_POOL(lp_pool2d);
  LP_POOL(lp_pool3d);
  table["im2col"] = {
      [](Args& a) -> Results { return {unfold(a.tensor("input"), a.dims("kernel_size"), fold_options(a))}; }, {}};
  table["fold"] = {[](Args& a) -> Results {
                     return {fold(a.tensor("input"), a.dims("output_size"), a.dims("kernel_size"), fold_options(a))};
                   },
                   {}};
  table["pad"] = {[](Args& a) -> Results {
                    const std::string mode = a.text("mode", "constant");
                    const auto sizes = dims_of(a.need("pad")).vec();
                    return {pad(a.tensor("input"), sizes, {.mode = mode, .value = a.optional_scalar("value")})};
                  },
                  {}};
  table["interpolate"] = {call_interpolate, {}};
  table["grid_sample"] = {
      [](Args& a) -> Results {
        const std::string mode = a.text("mode", "bilinear"), outside = a.text("padding_mode", "zeros");
        return {grid_sample(a.tensor("input"), a.tensor("grid"), {mode, outside, a.boolean("align_corners", false)})};
      },
      {}};
  table["affine_grid"] = {[](Args& a) -> Results {
                            return {affine_grid(a.tensor("theta"), a.dims("size"), a.boolean("align_corners", false))};
                          },
                          {}};
  table["channel_shuffle"] = {
      [](Args& a) -> Results { return {channel_shuffle(a.tensor("input"), a.integer("groups"))}; }, {}};
  table["local_response_norm"] = {
      [](Args& a) -> Results {
        return {local_response_norm(a.tensor("input"), a.integer("size"),
                                    {a.number("alpha", 1e-4), a.number("beta", 0.75), a.number("k", 1.0)})};
      },
      {}};
}

void bind_nn() {
  auto& table = bindings();
  bind_images(table);
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
        return {layer_norm(a.tensor("input"), a.dims("normalized_shape"),
                           {a.optional_tensor("weight"), a.optional_tensor("bias"), a.number("eps", 1e-5)})};
      },
      {}};
  table["group_norm"] = {
      [](Args& a) -> Results {
        return {group_norm(a.tensor("input"), a.integer("num_groups"),
                           {a.optional_tensor("weight"), a.optional_tensor("bias"), a.number("eps", 1e-5)})};
      },
      {}};
  table["rms_norm"] = {[](Args& a) -> Results {
                         RmsNormOptions o{.weight = a.optional_tensor("weight")};
                         if (a.has("eps")) o.eps = a.number("eps");
                         return {rms_norm(a.tensor("input"), a.dims("normalized_shape"), o)};
                       },
                       {}};
  table["scaled_dot_product_attention"] = {
      [](Args& a) -> Results {
        AttentionOptions o{a.optional_tensor("attn_mask"), a.number("dropout_p", 0.0), a.boolean("is_causal", false)};
        if (a.has("scale")) o.scale = a.number("scale");
        o.enable_gqa = a.boolean("enable_gqa", false);
        return {scaled_dot_product_attention(a.tensor("query"), a.tensor("key"), a.tensor("value"), o)};
      },
      {}};
  table["pixel_shuffle"] = {
      [](Args& a) -> Results { return {pixel_shuffle(a.tensor("input"), a.integer("upscale_factor"))}; }, {}};
  table["pixel_unshuffle"] = {
      [](Args& a) -> Results { return {pixel_unshuffle(a.tensor("input"), a.integer("downscale_factor"))}; }, {}};
  table["embedding_bag"] = {
      [](Args& a) -> Results {
        const std::string mode = a.text("mode", "mean");
        EmbeddingBagOptions o{.norm_type = a.number("norm_type", 2.0),
                              .scale_grad_by_freq = a.boolean("scale_grad_by_freq", false),
                              .mode = mode,
                              .per_sample_weights = a.optional_tensor("per_sample_weights"),
                              .include_last_offset = a.boolean("include_last_offset", false)};
        if (a.has("max_norm")) o.max_norm = a.number("max_norm");
        if (a.has("padding_idx")) o.padding_idx = a.integer("padding_idx");
        return {embedding_bag(a.tensor("input"), a.tensor("weight"), a.optional_tensor("offsets"), o)};
      },
      {}};
  table["dropout"] = {
      [](Args& a) -> Results { return {dropout(a.tensor("input"), a.number("p", 0.5), a.boolean("training", true))}; },
      {}};
}

}  // namespace conformance
