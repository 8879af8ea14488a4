// Beside what transformers 5.23 computes: references.py writes references/, configurations and results.
#include <tapir/io/safetensors.h>
#include <tapir/models/llama.h>

#include "../io/temporary.h"
#include "filled.h"
#include "source_dir.h"
using namespace tapir;
using namespace tapir_tests;
using models::RopeType;

namespace {

const std::string kFolder = TAPIR_SOURCE_DIR "/tests/models/references/";
const char* const kTiny[] = {"default",     "linear", "dynamic",  "yarn",
                             "yarn_mscale", "llama3", "longrope", "longrope_attention"};

models::LlamaForCausalLM tiny(const std::string& name) {
  models::LlamaForCausalLM llama(models::llama_config(kFolder + name + ".json"));
  fill_weights(llama);
  return llama;
}
Tensor tokens(int64_t count) { return remainder(arange(count) * 5, 11).unsqueeze(0); }
double apart(const Tensor& a, const Tensor& b) { return abs(a.to(kFloat64) - b.to(kFloat64)).max().item(); }
/// The message of a configuration read from this text, or of the model that is made of it.
template <class E> std::string refused(const std::string& text) {
  const TemporaryFolder folder;
  spit(folder / "config.json", text);
  return message_of<E>([&] { models::rotary_embedding(models::llama_config(folder / "config.json")); });
}
std::string with_rope(const std::string& rope) {
  return R"({"hidden_size": 16, "num_attention_heads": 2, )" + rope + "}";
}

}  // namespace

TEST_CASE("review 4: frequencies and attention factors of rope_scaling are those of transformers") {
  const StateDict file = io::load_safetensors(kFolder + "rope.safetensors");
  int compared = 0;
  for (auto& [name, want] : file) {
    const size_t at = name.find(".inv_freq.");
    if (at == std::string::npos) continue;
    INFO(name);
    const models::RotaryEmbedding rotary =
        models::rotary_embedding(models::llama_config(kFolder + name.substr(0, at) + ".json"));
    const Tensor got = rotary.inv_freq(tensor(std::stoll(name.substr(at + 10))));
    REQUIRE(got.shape() == want.shape());
    CHECK(abs(div(got, want.to(kFloat64)) - 1).max().item() < 1e-6);  // float32 there
    CHECK(std::fabs(rotary.attention_factor() - file.at(name.substr(0, at) + ".attention_factor").item()) < 1e-12);
    ++compared;
  }
  CHECK(compared == 19);
}

TEST_CASE("review 4: Llama with rope_scaling gives the scores of transformers, of short texts and long ones") {
  NoGrad guard;
  const StateDict file = io::load_safetensors(kFolder + "rope.safetensors");
  for (const std::string name : kTiny) {
    models::LlamaForCausalLM llama = tiny(name);
    models::LlamaConfig unscaled = llama.model.config;
    unscaled.rope_scaling = {}, unscaled.max_position_embeddings = 64;
    models::LlamaForCausalLM other(unscaled);
    fill_weights(other);
    for (const int64_t length : {12, 24, 12}) {  // a long text between changes nothing for a short one
      INFO(name << ", " << length << " tokens");
      const Tensor want = file.at(name + ".logits." + std::to_string(length));
      CHECK(apart(llama(tokens(length)).squeeze(0), want) < 2e-5);
      const bool scaled = name != "default" && (name != "dynamic" || length > 16);
      CHECK((apart(other(tokens(length)).squeeze(0), want) > 1e-2) == scaled);
    }
  }
}

TEST_CASE("review 4: decoding with rope_scaling is that of transformers, across the original length, by one program") {
  NoGrad guard;
  const StateDict file = io::load_safetensors(kFolder + "rope.safetensors");
  for (const std::string name : kTiny) {
    INFO(name);
    models::LlamaForCausalLM llama = tiny(name);
    const Tensor want = file.at(name + ".decoded"), text = tokens(24);
    models::KVCache cache = llama.new_cache(1, 24), replayed = llama.new_cache(1, 24);
    auto step = compile([&](const Tensor& token) {
      NoGrad inside;
      return llama(token, replayed).select(1, -1);
    });
    CHECK(apart(llama(text.narrow(1, 0, 12), cache).select(1, -1).squeeze(0), want.select(0, 0)) < 2e-5);
    llama(text.narrow(1, 0, 12), replayed);
    for (int64_t i = 12; i < 24; ++i) {
      const Tensor token = text.narrow(1, i, 1).clone();
      REQUIRE(apart(llama(token, cache).select(1, -1).squeeze(0), want.select(0, i - 11)) < 2e-5);
      REQUIRE(apart(step(token).squeeze(0), want.select(0, i - 11)) < 2e-5);
    }
    CHECK(step.programs() == 1);
    CHECK(models::generate(llama, {1, 4}, {.max_new_tokens = 20}).size() == 20);
  }
}

TEST_CASE("review 4: config.json is read, in both spellings") {
  const models::LlamaConfig big = models::llama_config(kFolder + "llama_3.1_8b.json");
  CHECK(big.hidden_size == 4096);
  CHECK(big.vocab_size == 32000);
  CHECK(big.num_key_value_heads == 32);
  CHECK(big.rope_theta == 500000);
  CHECK(big.rope_scaling.rope_type == RopeType::Llama3);
  CHECK(big.rope_scaling.high_freq_factor == 4);
  CHECK(big.rope_scaling.original_max_position_embeddings == 8192);
  const models::LlamaConfig yarn = models::llama_config(kFolder + "yarn_mscale.json");
  CHECK(yarn.rope_theta == 10);
  CHECK(yarn.rope_scaling.rope_type == RopeType::Yarn);
  CHECK(!yarn.rope_scaling.factor);
  CHECK(!yarn.rope_scaling.truncate);
  CHECK(yarn.num_key_value_heads == 2);
  const models::LlamaConfig phi = models::llama_config(kFolder + "longrope.json");
  CHECK(phi.rope_scaling.original_max_position_embeddings == 16);
  CHECK(phi.rope_scaling.long_factor == std::vector<double>{1, 2, 4, 8});
  CHECK(models::rotary_embedding(phi).max_length() == 64);
  CHECK(models::rotary_embedding(models::llama_config(kFolder + "linear.json")).max_length() == 64);
  CHECK(models::llama_config(kFolder + "llama_3.2_1b.json").head_dim == 64);

  models::LlamaForCausalLM wide({.vocab_size = 11,
                                 .hidden_size = 8,
                                 .intermediate_size = 12,
                                 .num_hidden_layers = 1,
                                 .num_attention_heads = 2,
                                 .num_key_value_heads = 1,
                                 .head_dim = 6});
  CHECK(wide.state_dict().at("model.layers.0.self_attn.q_proj.weight").shape() == Shape{12, 8});
  CHECK(models::generate(wide, {1, 4}, {.max_new_tokens = 3}).size() == 3);
}

TEST_CASE("review 4: what a configuration asks for and Llama does not compute is refused") {
  const auto file_error = [](const std::string& text, const std::string& part) {
    const std::string message = refused<RuntimeError>(text);
    INFO(text << "\n" << message);
    CHECK((message.starts_with("[llama_config] ") && mentions(message, {"config.json", part.c_str()})));
  };
  file_error(with_rope(R"("rope_scaling": {"type": "ntk", "factor": 2})"), "as rope_scaling.type, got \"ntk\"");
  file_error(with_rope(R"("rope_scaling": {"type": 3, "factor": 2})"), "rope_scaling.type");
  file_error(with_rope(R"("rope_scaling": {"rope_type": "linear", "factor": "2"})"), "a number as rope_scaling.factor");
  file_error(with_rope(R"("rope_scaling": {"rope_type": "linear", "facto": 2})"), "facto");
  file_error(with_rope(R"("rope_scaling": {"rope_type": "linear", "factor": 2, "factor": 3})"), "keys that differ");
  file_error(with_rope(R"("rope_parameters": {"rope_type": "longrope", "long_factor": [1, "2"]})"), "long_factor[1]");
  file_error(with_rope(R"("rope_scaling": 4)"), "rope_scaling");
  file_error(with_rope(R"("rope_parameters": {"rope_theta": 1e999})"), "a double can hold");
  file_error(with_rope(R"("partial_rotary_factor": 0.5)"), "partial_rotary_factor");
  file_error(with_rope(R"("model_type": "gpt2")"), "model_type, got \"gpt2\"");
  file_error(with_rope(R"("hidden_act": "gelu")"), "hidden_act");
  file_error(with_rope(R"("attention_bias": true)"), "attention_bias");
  file_error(with_rope(R"("quantization_config": {"bits": 4})"), "quantization_config");
  file_error(R"({"hidden_size": -16})", "hidden_size");
  file_error("[]", "");
  file_error("{} {}", "");

  const auto value_error = [](const std::string& rope, const std::string& part) {
    const std::string message = refused<ValueError>(with_rope(R"("rope_scaling": {)" + rope + "}"));
    INFO(rope << "\n" << message);
    CHECK((message.starts_with("[RotaryEmbedding] ") && mentions(message, {part.c_str()})));
  };
  const std::string llama3 = R"("type": "llama3", "factor": 8, "original_max_position_embeddings": 8)";
  const std::string longrope = R"("type": "longrope", "factor": 8, "short_factor": [1, 1, 1, 1])";
  value_error(R"("type": "linear")", "factor, got none");
  value_error(R"("type": "linear", "factor": 0.5)", "factor");
  value_error(R"("type": "dynamic")", "factor");
  value_error(R"("type": "yarn")", "factor");
  value_error(R"("factor": 4)", "factor");  // of which kind?
  value_error(R"("type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2)", "beta_fast");
  value_error(R"("type": "yarn", "factor": 4, "attention_factor": -1)", "attention_factor");
  value_error(R"("type": "yarn", "factor": 4, "rope_theta": 1)", "rope_theta");
  value_error(R"("type": "yarn", "factor": 4, "original_max_position_embeddings": 0)", "original_max");
  value_error(llama3, "low_freq_factor, got none");
  value_error(llama3 + R"(, "low_freq_factor": 1)", "high_freq_factor");
  value_error(llama3 + R"(, "low_freq_factor": 2, "high_freq_factor": 2)", "high_freq_factor");
  value_error(longrope, "long_factor");
  value_error(longrope + R"(, "long_factor": [1, 2, 3])", "4 numbers above 0 as long_factor, got 3");
  value_error(longrope + R"(, "long_factor": [1, 2, 3, 0])", "long_factor");
  value_error(longrope + R"(, "long_factor": [1, 2, 3, 4], "original_max_position_embeddings": 1)", "more than 1");
  CHECK(refused<ValueError>(with_rope(R"("rope_theta": 0)")) != "");
  CHECK(refused<ValueError>(
            R"({"hidden_size": 4, "num_attention_heads": 2, "rope_scaling": {"type": "dynamic", "factor": 2}})") != "");
  CHECK(refused<ValueError>(with_rope(R"("rope_scaling": null)")) == "");
  CHECK_THROWS_AS(models::LlamaForCausalLM({.vocab_size = 11,
                                            .hidden_size = 8,
                                            .intermediate_size = 12,
                                            .num_hidden_layers = 1,
                                            .num_attention_heads = 2,
                                            .num_key_value_heads = 2,
                                            .rope_scaling = {.rope_type = RopeType::Llama3, .factor = 8}}),
                  ValueError);

  NoGrad guard;
  models::LlamaForCausalLM linear = tiny("linear");  // 16 positions, stretched four times
  CHECK(linear(tokens(64)).size(1) == 64);
  CHECK_THROWS_AS(linear(tokens(65)), ValueError);
  CHECK_THROWS_AS(linear.new_cache(1, 65), ValueError);
}
