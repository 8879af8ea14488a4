// Linear maps, convolutions, norms, pooling, embeddings, dropout, containers.
#include "modules.h"

namespace conformance {

static Padding padding_of(Args& a) {
  const Value* v = a.find("padding");
  if (!v) return 0;
  return v->kind == Value::Kind::String ? Padding(v->text) : Padding(dims_of(*v));
}
static nn::ConvOptions conv_options(Args& a) {
  return {a.dims("stride", 1),    padding_of(a),           a.dims("dilation", 1),
          a.integer("groups", 1), a.boolean("bias", true), a.text("padding_mode", "zeros")};
}
static nn::ConvTransposeOptions conv_transpose_options(Args& a) {
  return {a.dims("stride", 1),    a.dims("padding", 0),    a.dims("output_padding", 0),
          a.integer("groups", 1), a.boolean("bias", true), a.dims("dilation", 1)};
}
/// An explicit None is not the default.
static std::optional<double> momentum_of(Args& a) {
  if (!a.named.contains("momentum")) return 0.1;
  return a.has("momentum") ? std::optional(a.number("momentum")) : std::nullopt;
}
template <class O> static O running_norm_options(Args& a, bool on) {
  return {a.number("eps", 1e-5), momentum_of(a), a.boolean("affine", on), a.boolean("track_running_stats", on),
          a.boolean("bias", true)};
}
static std::optional<double> optional_number(Args& a, const char* name) {
  return a.has(name) ? std::optional(a.number(name)) : std::nullopt;
}
static std::vector<double> numbers(Args& a, const char* name) {
  const Value* v = a.find(name);
  if (!v) return {};
  if (v->kind != Value::Kind::List) return {scalar_of(*v).to_double()};
  std::vector<double> out;
  for (const Value& item : v->list) out.push_back(scalar_of(item).to_double());
  return out;
}
/// None keeps a size.
static Dims output_size(Args& a) {
  const Value& v = a.need("output_size");
  if (v.kind != Value::Kind::List) return dims_of(v);
  Dims d;
  for (const Value& item : v.list) d.push_back(item.none() ? -1 : scalar_of(item).to_int());
  return d;
}
static AvgPoolOptions avg_pool_options(Args& a) {
  AvgPoolOptions o{a.dims("stride"), a.dims("padding", 0), a.boolean("ceil_mode", false),
                   a.boolean("count_include_pad", true)};
  if (a.has("divisor_override")) o.divisor_override = a.integer("divisor_override");
  return o;
}
/// m, and with return_indices the positions as a second output.
template <class M> static Bound with_indices(ModuleArgs& a, M m) {
  if (!a.boolean("return_indices", false)) return bound(std::move(m));
  return {std::move(m), [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            auto [values, places] = static_cast<M&>(held).forward_with_indices(input(in, 0));
            return {values, places};
          }};
}
template <class M> static Bound max_unpool(ModuleArgs& a) {
  return {M(a.dims("kernel_size"), {a.dims("stride"), a.dims("padding", 0)}),
          [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            return {static_cast<M&>(held)(input(in, 0), input(in, 1), in.dims("output_size"))};
          }};
}
template <class M> static Bound conv_transpose(ModuleArgs& a) {
  return {M(a.integer("in_channels"), a.integer("out_channels"), a.dims("kernel_size"), conv_transpose_options(a)),
          [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            return {static_cast<M&>(held)(input(in, 0), in.dims("output_size"))};
          }};
}
static FractionalMaxPoolOptions fractional_options(Args& a) {
  return {a.dims("output_size"), numbers(a, "output_ratio"), a.optional_tensor("_random_samples")};
}
static Bound sequential(ModuleArgs& a) {
  nn::Sequential s;
  if (a.json.contains("children"))
    for (const Json& child : a.json["children"]) s.items.push_back(std::move(make_module(a.family, child).module));
  return bound(std::move(s));
}
static Bound embedding(ModuleArgs& a) {
  EmbeddingOptions o{.max_norm = optional_number(a, "max_norm"), .norm_type = a.number("norm_type", 2)};
  if (a.has("padding_idx")) o.padding_idx = a.integer("padding_idx");
  o.scale_grad_by_freq = a.boolean("scale_grad_by_freq", false);
  a.boolean("sparse", false);  // gradients are dense: the values are the same
  return bound(nn::Embedding(a.integer("num_embeddings"), a.integer("embedding_dim"), o));
}
static Bound embedding_bag(ModuleArgs& a) {
  nn::EmbeddingBagOptions o{optional_number(a, "max_norm"),          a.number("norm_type", 2),
                            a.boolean("scale_grad_by_freq", false),  a.text("mode", "mean"),
                            a.boolean("include_last_offset", false), {}};
  if (a.has("padding_idx")) o.padding_idx = a.integer("padding_idx");
  a.boolean("sparse", false);
  return {nn::EmbeddingBag(a.integer("num_embeddings"), a.integer("embedding_dim"), o),
          [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            const Tensor offsets = in.named.contains("offsets") ? in.optional_tensor("offsets") : input(in, 1);
            const Tensor weights =
                in.named.contains("per_sample_weights") ? in.optional_tensor("per_sample_weights") : input(in, 2);
            return {static_cast<nn::EmbeddingBag&>(held)(input(in, 0), offsets, weights)};
          }};
}
static Bound adaptive_softmax(ModuleArgs& a) {
  return {nn::AdaptiveLogSoftmaxWithLoss(a.integer("in_features"), a.integer("n_classes"), a.dims("cutoffs").vec(),
                                         {a.number("div_value", 4), a.boolean("head_bias", false)}),
          [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            auto [output, loss] = static_cast<nn::AdaptiveLogSoftmaxWithLoss&>(held)(input(in, 0), input(in, 1));
            return {output, loss};
          }};
}
static Bound upsample(ModuleArgs& a) {
  nn::UpsampleOptions o{a.dims("size"),
                        numbers(a, "scale_factor"),
                        a.text("mode", "nearest"),
                        {},
                        a.boolean("recompute_scale_factor", false)};
  if (a.has("align_corners")) o.align_corners = a.boolean("align_corners", false);
  return bound(nn::Upsample(o));
}

#define BIND(Name, ...) table[#Name] = []([[maybe_unused]] ModuleArgs& a) { return bound(nn::Name(__VA_ARGS__)); }
#define BIND2(Name, ...) table[#Name] = []([[maybe_unused]] ModuleArgs& a) { return bound<2>(nn::Name(__VA_ARGS__)); }
#define BIND_WITH_INDICES(Name, ...) table[#Name] = [](ModuleArgs& a) { return with_indices(a, nn::Name(__VA_ARGS__)); }

#define BIND_SPATIAL(n)                                                                                                \
  BIND(Conv##n##d, a.integer("in_channels"), a.integer("out_channels"), a.dims("kernel_size"), conv_options(a));       \
  table["ConvTranspose" #n "d"] = conv_transpose<nn::ConvTranspose##n##d>;                                             \
  BIND(BatchNorm##n##d, a.integer("num_features"), running_norm_options<nn::BatchNormOptions>(a, true));               \
  BIND(InstanceNorm##n##d, a.integer("num_features"), running_norm_options<nn::InstanceNormOptions>(a, false));        \
  BIND_WITH_INDICES(MaxPool##n##d, a.dims("kernel_size"),                                                              \
                    {a.dims("stride"), a.dims("padding", 0), a.dims("dilation", 1), a.boolean("ceil_mode", false)});   \
  BIND(AvgPool##n##d, a.dims("kernel_size"), avg_pool_options(a));                                                     \
  BIND(AdaptiveAvgPool##n##d, output_size(a));                                                                         \
  BIND_WITH_INDICES(AdaptiveMaxPool##n##d, output_size(a));                                                            \
  BIND(LPPool##n##d, a.number("norm_type"), a.dims("kernel_size"), {a.dims("stride"), a.boolean("ceil_mode", false)}); \
  table["MaxUnpool" #n "d"] = max_unpool<nn::MaxUnpool##n##d>;                                                         \
  BIND(ZeroPad##n##d, a.dims("padding"));                                                                              \
  BIND(ReflectionPad##n##d, a.dims("padding"));                                                                        \
  BIND(ReplicationPad##n##d, a.dims("padding"));                                                                       \
  BIND(CircularPad##n##d, a.dims("padding"));                                                                          \
  BIND(ConstantPad##n##d, a.dims("padding"), a.number("value"));                                                       \
  BIND(Dropout##n##d, a.number("p", 0.5), {a.boolean("inplace", false)})

static void bind_images(std::map<std::string, Make>& table) {
  BIND_SPATIAL(1);
  BIND_SPATIAL(2);
  BIND_SPATIAL(3);
  BIND_WITH_INDICES(FractionalMaxPool2d, a.dims("kernel_size"), fractional_options(a));
  BIND_WITH_INDICES(FractionalMaxPool3d, a.dims("kernel_size"), fractional_options(a));
  table["Upsample"] = upsample;
  BIND(UpsamplingNearest2d, {a.dims("size"), numbers(a, "scale_factor")});
  BIND(UpsamplingBilinear2d, {a.dims("size"), numbers(a, "scale_factor")});
  BIND(Unfold, a.dims("kernel_size"), {a.dims("dilation", 1), a.dims("padding", 0), a.dims("stride", 1)});
  BIND(Fold, a.dims("output_size"), a.dims("kernel_size"),
       {a.dims("dilation", 1), a.dims("padding", 0), a.dims("stride", 1)});
  BIND(PixelShuffle, a.integer("upscale_factor"));
  BIND(PixelUnshuffle, a.integer("downscale_factor"));
  BIND(ChannelShuffle, a.integer("groups"));
}

void bind_module_layers() {
  auto& table = module_makers();
  bind_images(table);
  BIND(Linear, a.integer("in_features"), a.integer("out_features"), {.bias = a.boolean("bias", true)});
  BIND2(Bilinear, a.integer("in1_features"), a.integer("in2_features"), a.integer("out_features"),
        {.bias = a.boolean("bias", true)});
  table["Identity"] = [](ModuleArgs& a) { return a.use_all(), bound(nn::Identity()); };
  BIND(Flatten, a.integer("start_dim", 1), a.integer("end_dim", -1));
  BIND(Unflatten, a.integer("dim"), a.dims("unflattened_size"));
  BIND(LayerNorm, a.dims("normalized_shape"),
       {a.number("eps", 1e-5), a.boolean("elementwise_affine", true), a.boolean("bias", true)});
  BIND(GroupNorm, a.integer("num_groups"), a.integer("num_channels"),
       {a.number("eps", 1e-5), a.boolean("affine", true), a.boolean("bias", true)});
  BIND(RMSNorm, a.dims("normalized_shape"), {optional_number(a, "eps"), a.boolean("elementwise_affine", true)});
  BIND(LocalResponseNorm, a.integer("size"), {a.number("alpha", 1e-4), a.number("beta", 0.75), a.number("k", 1)});
  BIND(Dropout, a.number("p", 0.5), {a.boolean("inplace", false)});
  BIND(AlphaDropout, a.number("p", 0.5), {a.boolean("inplace", false)});
  BIND(FeatureAlphaDropout, a.number("p", 0.5), {a.boolean("inplace", false)});
  BIND2(CosineSimilarity, {a.integer("dim", 1), a.number("eps", 1e-8)});
  BIND2(PairwiseDistance, {a.number("p", 2), a.number("eps", 1e-6), a.boolean("keepdim", false)});
  table["Embedding"] = embedding;
  table["EmbeddingBag"] = embedding_bag;
  table["AdaptiveLogSoftmaxWithLoss"] = adaptive_softmax;
  table["Sequential"] = sequential;
}

}  // namespace conformance
