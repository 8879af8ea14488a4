// Checkpoints that transformers 5.23 wrote (huggingface.py), and such that it reads. The second test needs Python with torch, transformers
// and safetensors: $TAPIR_PYTHON, else python3.
#include <tapir/io/pt.h>
#include <tapir/io/safetensors.h>
#include <tapir/models/bert.h>
#include <tapir/models/gpt2.h>
#include <tapir/tapir.h>

#include <cstdlib>

#include "../catch.h"
#include "../io/temporary.h"
#include "source_dir.h"
using namespace tapir;

namespace {

const std::string kFolder = TAPIR_SOURCE_DIR "/tests/models/";
const Tensor kTokens = tensor({{1, 4, 2, 9, 0}});

models::GPT2LMHeadModel tiny_gpt2() {
  models::GPT2LMHeadModel gpt({.vocab_size = 11, .n_positions = 8, .n_embd = 8, .n_layer = 2, .n_head = 2});
  gpt.load_pretrained(io::load_safetensors(kFolder + "tiny_gpt2.safetensors"));
  gpt.eval();
  return gpt;
}
models::BertModel tiny_bert() {
  models::BertModel bert({.vocab_size = 11,
                          .hidden_size = 8,
                          .num_hidden_layers = 1,
                          .num_attention_heads = 2,
                          .intermediate_size = 12,
                          .max_position_embeddings = 8});
  bert.load_pretrained(io::load_safetensors(kFolder + "tiny_bert.safetensors"));
  bert.eval();
  return bert;
}
void check_values(const Tensor& got, const std::vector<double>& want) {
  const std::vector<double> v = got.to_vector<double>();
  REQUIRE(v.size() == want.size());
  for (size_t i = 0; i < v.size(); ++i) CHECK(std::abs(v[i] - want[i]) < 1e-5);
}

}  // namespace

TEST_CASE("Checkpoints as Hugging Face publishes them load, and give its results") {
  NoGrad guard;
  const StateDict file = io::load_safetensors(kFolder + "tiny_gpt2.safetensors");
  CHECK(file.contains("transformer.h.0.attn.bias"));  // a mask, which is no weight
  CHECK(!file.contains("lm_head.weight"));            // tied
  models::GPT2LMHeadModel gpt = tiny_gpt2();
  check_values(gpt(kTokens).select(0, 0).select(0, 4), {1.431251, 0.6966779, 0.564263, 0.5471514, -0.7356168, 2.956129,
                                                        -0.6069976, -1.5113, -1.047419, 0.2577423, -0.465295});
  CHECK(gpt.lm_head.weight.is_same(gpt.transformer.wte.weight));
  models::BertModel bert = tiny_bert();  // of a file with the heads of pre-training
  check_values(bert(kTokens).pooler_output.select(0, 0),
               {-0.3287347, 0.3381756, -0.7462856, -0.9299887, -0.9251779, -0.9460777, -0.5088645, 0.9493876});
  StateDict cut = file;
  cut.set("transformer.h.0.ln_1.weight", ones(7));
  CHECK_THROWS_AS(gpt.load_pretrained(cut), ValueError);
}

TEST_CASE("What Tapir saves loads in safetensors, torch.load(weights_only=True) and transformers") {
  const char* given = std::getenv("TAPIR_PYTHON");
  const std::string python = given && *given ? given : "python3";
  if (std::system((python + " -c 'import torch, transformers, safetensors.torch' > /dev/null 2>&1").c_str()) != 0)
    SKIP_TEST("no Python with torch, transformers and safetensors");
  NoGrad guard;
  const tapir_tests::TemporaryFolder folder;
  models::GPT2LMHeadModel gpt = tiny_gpt2();
  models::BertModel bert = tiny_bert();
  for (const auto& [name, state] : {std::pair("gpt2", gpt.state_dict()), std::pair("bert", bert.state_dict())}) {
    io::save_safetensors(folder / (std::string(name) + ".safetensors"), state);
    io::save_pt(folder / (std::string(name) + ".pt"), state);
  }
  io::save_safetensors(folder / "results.safetensors",
                       StateDict{{"gpt2", gpt(kTokens)}, {"bert", bert(kTokens).pooler_output}});
  const std::string command = python + " " + kFolder + "huggingface.py check " + folder.path + " 2>&1";
  CHECK(std::system(command.c_str()) == 0);
}
