// Linear maps, convolutions, norms, pooling, embeddings, dropout, containers.
#include "modules.h"

namespace conformance {

static Padding padding_of(Args& a) {
  const Value* v = a.find("padding");
  if (!v) return 0;
  return v->kind == Value::Kind::String ? Padding(v->text) : Padding(dims_of(*v));
}
static nn::Conv2dOptions conv_options(Args& a) {
  return {a.dims("stride", 1),    padding_of(a),           a.dims("dilation", 1),
          a.integer("groups", 1), a.boolean("bias", true), a.text("padding_mode", "zeros")};
}
static nn::BatchNormOptions batch_norm_options(Args& a) {
  nn::BatchNormOptions o{a.number("eps", 1e-5), 0.1, a.boolean("affine", true), a.boolean("track_running_stats", true)};
  if (auto it = a.named.find("momentum"); it != a.named.end())
    o.momentum = a.has("momentum") ? std::optional(a.number("momentum")) : std::nullopt;
  return o;
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
template <class M> static Bound max_pool(ModuleArgs& a) {
  M m(a.dims("kernel_size"),
      {a.dims("stride"), a.dims("padding", 0), a.dims("dilation", 1), a.boolean("ceil_mode", false)});
  if (!a.boolean("return_indices", false)) return bound(std::move(m));
  return {std::move(m), [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            auto [values, places] = static_cast<M&>(held).forward_with_indices(input(in, 0));
            return {values, places};
          }};
}
static Bound sequential(ModuleArgs& a) {
  nn::Sequential s;
  if (a.json.contains("children"))
    for (const Json& child : a.json["children"]) s.items.push_back(std::move(make_module(a.family, child).module));
  return bound(std::move(s));
}

#define BIND(Name, ...) table[#Name] = [](ModuleArgs& a) { return bound(nn::Name(__VA_ARGS__)); }

void bind_module_layers() {
  auto& table = module_makers();
  BIND(Linear, a.integer("in_features"), a.integer("out_features"), {.bias = a.boolean("bias", true)});
  BIND(Conv2d, a.integer("in_channels"), a.integer("out_channels"), a.dims("kernel_size"), conv_options(a));
  table["Identity"] = [](ModuleArgs& a) { return a.use_all(), bound(nn::Identity()); };
  BIND(Flatten, a.integer("start_dim", 1), a.integer("end_dim", -1));
  BIND(BatchNorm1d, a.integer("num_features"), batch_norm_options(a));
  BIND(BatchNorm2d, a.integer("num_features"), batch_norm_options(a));
  BIND(LayerNorm, a.dims("normalized_shape"),
       {a.number("eps", 1e-5), a.boolean("elementwise_affine", true), a.boolean("bias", true)});
  table["MaxPool2d"] = max_pool<nn::MaxPool2d>;
  BIND(AvgPool2d, a.dims("kernel_size"), avg_pool_options(a));
  BIND(AdaptiveAvgPool2d, output_size(a));
  BIND(Dropout, a.number("p", 0.5), {.inplace = a.boolean("inplace", false)});
  table["Embedding"] = [](ModuleArgs& a) {
    EmbeddingOptions o;
    if (a.has("padding_idx")) o.padding_idx = a.integer("padding_idx");
    if (a.has("max_norm")) o.max_norm = a.number("max_norm");
    o.norm_type = a.number("norm_type", 2), o.scale_grad_by_freq = a.boolean("scale_grad_by_freq", false);
    return bound(nn::Embedding(a.integer("num_embeddings"), a.integer("embedding_dim"), o));
  };
  table["Sequential"] = sequential;
}

}  // namespace conformance
