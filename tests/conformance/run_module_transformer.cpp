// Attention and transformers.
#include "modules.h"

namespace conformance {

namespace {
nn::TransformerLayerOptions layer_options(ModuleArgs& a) {
  return {a.integer("dim_feedforward", 2048),
          a.number("dropout", 0.1),
          a.text("activation", "relu"),
          a.number("layer_norm_eps", 1e-5),
          a.boolean("batch_first", false),
          a.boolean("norm_first", false),
          a.boolean("bias", true)};
}
template <class M> M layer(ModuleArgs& a) { return M(a.integer("d_model"), a.integer("nhead"), layer_options(a)); }
/// A mask by name; `mask` is what a stack of layers calls a layer's src_mask.
Tensor mask(Args& in, const std::string& name) { return in.optional_tensor(name); }
nn::EncoderMasks encoder_masks(Args& in) {
  const Tensor attn = in.has("src_mask") ? mask(in, "src_mask") : mask(in, "mask");
  return {attn, mask(in, "src_key_padding_mask"), in.boolean("is_causal", false)};
}
nn::DecoderMasks decoder_masks(Args& in) {
  return {mask(in, "tgt_mask"),
          mask(in, "memory_mask"),
          mask(in, "tgt_key_padding_mask"),
          mask(in, "memory_key_padding_mask"),
          in.boolean("tgt_is_causal", false),
          in.boolean("memory_is_causal", false)};
}
template <class M> Bound encoding(M m) {
  return {std::move(m), [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            return {static_cast<M&>(held)(input(in, 0), encoder_masks(in))};
          }};
}
template <class M> Bound decoding(M m) {
  return {std::move(m), [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            return {static_cast<M&>(held)(input(in, 0), input(in, 1), decoder_masks(in))};
          }};
}
template <class M, class L> M stack_of(ModuleArgs& a, const char* layer) {
  a.find("enable_nested_tensor"), a.find("mask_check");
  std::optional<nn::LayerNorm> norm;
  if (a.has("norm")) norm = take<nn::LayerNorm>(a.module("norm"));
  return M(take<L>(a.module(layer)), a.integer("num_layers"), std::move(norm));
}
Bound attention(ModuleArgs& a) {
  nn::MultiheadAttentionOptions o{a.number("dropout", 0.0), a.boolean("bias", true), a.boolean("add_bias_kv", false),
                                  a.boolean("add_zero_attn", false)};
  if (a.has("kdim")) o.kdim = a.integer("kdim");
  if (a.has("vdim")) o.vdim = a.integer("vdim");
  o.batch_first = a.boolean("batch_first", false);
  return {nn::MultiheadAttention(a.integer("embed_dim"), a.integer("num_heads"), o),
          [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            const nn::AttentionMasks masks{mask(in, "key_padding_mask"), in.boolean("need_weights", true),
                                           mask(in, "attn_mask"), in.boolean("average_attn_weights", true),
                                           in.boolean("is_causal", false)};
            auto [output, weights] =
                static_cast<nn::MultiheadAttention&>(held)(input(in, 0), input(in, 1), input(in, 2), masks);
            return {output, weights};
          }};
}
Bound transformer(ModuleArgs& a) {
  const nn::TransformerLayerOptions o = layer_options(a);
  nn::Transformer m(a.integer("d_model", 512), a.integer("nhead", 8),
                    {a.integer("num_encoder_layers", 6), a.integer("num_decoder_layers", 6), o.dim_feedforward,
                     o.dropout, o.activation, o.layer_norm_eps, o.batch_first, o.norm_first, o.bias});
  return {std::move(m), [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            nn::TransformerMasks m;
            m.src_mask = mask(in, "src_mask"), m.tgt_mask = mask(in, "tgt_mask");
            m.memory_mask = mask(in, "memory_mask"), m.src_key_padding_mask = mask(in, "src_key_padding_mask");
            m.tgt_key_padding_mask = mask(in, "tgt_key_padding_mask");
            m.memory_key_padding_mask = mask(in, "memory_key_padding_mask");
            m.src_is_causal = in.boolean("src_is_causal", false), m.tgt_is_causal = in.boolean("tgt_is_causal", false);
            m.memory_is_causal = in.boolean("memory_is_causal", false);
            return {static_cast<nn::Transformer&>(held)(input(in, 0), input(in, 1), m)};
          }};
}
}  // namespace

void bind_module_transformer() {
  auto& table = module_makers();
  table["MultiheadAttention"] = attention;
  table["TransformerEncoderLayer"] = [](ModuleArgs& a) { return encoding(layer<nn::TransformerEncoderLayer>(a)); };
  table["TransformerDecoderLayer"] = [](ModuleArgs& a) { return decoding(layer<nn::TransformerDecoderLayer>(a)); };
  table["TransformerEncoder"] = [](ModuleArgs& a) {
    return encoding(stack_of<nn::TransformerEncoder, nn::TransformerEncoderLayer>(a, "encoder_layer"));
  };
  table["TransformerDecoder"] = [](ModuleArgs& a) {
    return decoding(stack_of<nn::TransformerDecoder, nn::TransformerDecoderLayer>(a, "decoder_layer"));
  };
  table["Transformer"] = transformer;
}

}  // namespace conformance
