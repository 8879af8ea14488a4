// The models' option `checkpoint`.
#include <tapir/core/allocator.h>
#include <tapir/core/generator.h>
#include <tapir/models/gpt2.h>
#include <tapir/models/llama.h>
#include <tapir/models/resnet.h>
#include <tapir/ops/ops.h>

#include "../catch.h"

using namespace tapir;

namespace {

struct Outcome {
  std::vector<std::vector<float>> gradients, buffers;
  int64_t peak = 0;  // bytes above what was there before
};
/// One training step, with `make(checkpoint)` and the loss of its output.
template <class Make, class Loss> Outcome run(Make make, Loss loss, bool checkpoint) {
  manual_seed(5);
  auto net = make(checkpoint);
  manual_seed(7);
  reset_peak_memory_stats();
  const int64_t before = memory_stats().allocated;
  loss(net).backward();
  Outcome out;
  out.peak = memory_stats().max_allocated - before;
  for (auto& [name, p] : net.named_parameters()) out.gradients.push_back(p.grad().template to_vector<float>());
  for (auto& [name, b] : net.named_buffers()) out.buffers.push_back(b.to(kFloat32).template to_vector<float>());
  return out;
}
template <class Make, class Loss> void check_same(Make make, Loss loss) {
  const Outcome plain = run(make, loss, false), again = run(make, loss, true);
  CHECK(plain.gradients == again.gradients);
  CHECK(plain.buffers == again.buffers);
  CHECK(double(again.peak) < 0.75 * double(plain.peak));
}

}  // namespace

TEST_CASE("a checkpointed ResNet has the same gradients and running statistics, in less memory") {
  const Tensor x = randn({8, 3, 32, 32});
  check_same(
      [](bool on) { return models::resnet18({.num_classes = 10, .width = 8, .small_images = true, .checkpoint = on}); },
      [&](auto& net) { return sum(square(net(x))); });
  check_same(
      [](bool on) { return models::resnet50({.num_classes = 10, .width = 8, .small_images = true, .checkpoint = on}); },
      [&](auto& net) { return sum(square(net(x))); });
}

TEST_CASE("a checkpointed GPT-2 has the same gradients, dropout and all, in less memory") {
  const Tensor tokens = randint(0, 50, {4, 64});
  check_same(
      [](bool on) {
        return models::GPT2LMHeadModel(
            {.vocab_size = 50, .n_positions = 64, .n_embd = 64, .n_layer = 6, .n_head = 4, .checkpoint = on});
      },
      [&](auto& net) {
        return cross_entropy(net(tokens).view({-1, 50}), tokens.view(-1));
      });
}

TEST_CASE("a checkpointed Llama has the same gradients in less memory") {
  const Tensor tokens = randint(0, 50, {4, 64});
  check_same(
      [](bool on) {
        return models::LlamaForCausalLM({.vocab_size = 50,
                                         .hidden_size = 64,
                                         .intermediate_size = 128,
                                         .num_hidden_layers = 6,
                                         .num_attention_heads = 4,
                                         .num_key_value_heads = 2,
                                         .max_position_embeddings = 64,
                                         .checkpoint = on});
      },
      [&](auto& net) {
        return cross_entropy(net(tokens).view({-1, 50}), tokens.view(-1));
      });
}
