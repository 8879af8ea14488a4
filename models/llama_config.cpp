#include "../core/error.h"
#include "../io/json_value.h"
#include "llama.h"

namespace tapir::inline v0::models {
namespace {

using io::JsonField;

RopeType rope_type(const JsonField& type) {
  constexpr std::pair<std::string_view, RopeType> known[] = {
      {"default", RopeType::Default}, {"linear", RopeType::Linear}, {"dynamic", RopeType::Dynamic},
      {"yarn", RopeType::Yarn},       {"llama3", RopeType::Llama3}, {"longrope", RopeType::LongRope}};
  for (const auto& [name, value] : known)
    if (type.text() == name) return value;
  type.refuse("\"default\", \"linear\", \"dynamic\", \"yarn\", \"llama3\" or \"longrope\"");
}
std::optional<double> number(const JsonField& field) {
  return field.is_none() ? std::nullopt : std::optional(field.number());
}
std::vector<double> numbers(const JsonField& field) {
  std::vector<double> out;
  if (field.is_none()) return out;
  for (const JsonField& item : field.items()) out.push_back(item.number());
  return out;
}
void check_whole_heads(const JsonField& settings) {
  if (const JsonField part = settings["partial_rotary_factor"]; part.number(1) != 1) part.refuse("1");
}
void read_rope(const JsonField& file, LlamaConfig& config) {
  check_whole_heads(file);
  config.rope_theta = file["rope_theta"].number(config.rope_theta);
  const JsonField old = file["rope_scaling"], rope = old.is_none() ? file["rope_parameters"] : old;
  if (!old.is_none() && !file["rope_parameters"].is_none()) old.refuse("null beside rope_parameters");
  if (rope.is_none()) return;
  rope.only({"rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "low_freq_factor",
             "high_freq_factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate",
             "short_factor", "long_factor", "partial_rotary_factor",
             "finetuned"});  // the last one: of the first YaRN models, without a meaning for what is computed
  config.rope_theta = rope["rope_theta"].number(config.rope_theta);
  RopeScaling& s = config.rope_scaling;
  const JsonField type = rope["rope_type"].is_none() ? rope["type"] : rope["rope_type"];
  if (!type.is_none()) s.rope_type = rope_type(type);
  // Phi-3's files have it outside; transformers prefers that one.
  const JsonField outside = file["original_max_position_embeddings"],
                  original = outside.is_none() ? rope["original_max_position_embeddings"] : outside;
  if (!original.is_none()) s.original_max_position_embeddings = original.integer();
  s.factor = number(rope["factor"]), s.attention_factor = number(rope["attention_factor"]);
  s.low_freq_factor = number(rope["low_freq_factor"]), s.high_freq_factor = number(rope["high_freq_factor"]);
  s.mscale = number(rope["mscale"]), s.mscale_all_dim = number(rope["mscale_all_dim"]);
  s.beta_fast = rope["beta_fast"].number(s.beta_fast), s.beta_slow = rope["beta_slow"].number(s.beta_slow);
  s.truncate = rope["truncate"].flag(s.truncate);
  s.short_factor = numbers(rope["short_factor"]), s.long_factor = numbers(rope["long_factor"]);
  check_whole_heads(rope);
}

}  // namespace

LlamaConfig llama_config(const std::string& path) {
  const io::Value value = io::read_json_file("llama_config", path);
  const std::string where = "[llama_config] " + path;
  const JsonField file{where, "", value};
  for (const auto& [name, only] : {std::pair("model_type", "llama"), std::pair("hidden_act", "silu")})
    if (const JsonField f = file[name]; !f.is_none() && f.text() != only) f.refuse("\"" + std::string(only) + "\"");
  for (const char* name : {"attention_bias", "mlp_bias"})
    if (file[name].flag(false)) file[name].refuse("false");
  if (const JsonField f = file["attention_dropout"]; f.number(0) != 0) f.refuse("0");
  if (const JsonField f = file["quantization_config"]; !f.is_none()) f.refuse("null");
  LlamaConfig c;
  c.vocab_size = file["vocab_size"].integer(c.vocab_size);
  c.hidden_size = file["hidden_size"].integer(c.hidden_size);
  c.intermediate_size = file["intermediate_size"].integer(c.intermediate_size);
  c.num_hidden_layers = file["num_hidden_layers"].integer(c.num_hidden_layers);
  c.num_attention_heads = file["num_attention_heads"].integer(c.num_attention_heads);
  c.num_key_value_heads = file["num_key_value_heads"].integer(c.num_attention_heads);
  if (const JsonField f = file["head_dim"]; !f.is_none()) c.head_dim = f.integer();
  c.max_position_embeddings = file["max_position_embeddings"].integer(c.max_position_embeddings);
  c.rms_norm_eps = file["rms_norm_eps"].number(c.rms_norm_eps);
  c.tie_word_embeddings = file["tie_word_embeddings"].flag(c.tie_word_embeddings);
  read_rope(file, c);
  return c;
}

}  // namespace tapir::inline v0::models
