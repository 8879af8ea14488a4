// gpu_model_steps WORKLOAD eager|compiled [--batch B] [--size S]: one step on the CUDA device behind a few of warm-up, between two waits
// for the device; tools/gpu_model runs it where launches are counted. Prints one JSON line about the host's side of the step.
// WORKLOAD: resnet50, resnet18_cifar (--size: of the images), gpt2_124m, gpt2_124m_dropout, gpt2_124m_chunks, gpt2_124m_master, gpt2_124m_float8,
// gpt_mini (--size: tokens of a sequence), gpt2_decode, gpt2_decode_int8 and _int4 (--size: tokens in the cache), mlp (--size: numbers of a row),
// lstm (--size: words of a sequence). resnet50, gpt2_124m* and names that end with _bf16 train under autocast, the others in float32.
#include <tapir/core/recording.h>
#include <tapir/models/gpt2.h>
#include <tapir/models/resnet.h>
#include <tapir/tapir.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

using namespace tapir;

/// Eager steps under the profiler: it counts kernel calls, each of which costs the host some time, and names them in the counts.
template <class F> static int64_t recorded(F&& step, bool compiled) {
  if (compiled) return step(), cuda::synchronize(), 0;
  profiler::start_recording({.profile_memory = false});
  for (int i = 0; i < 2; ++i) {  // the first one has a wait of the profiler's own
    step();
    cuda::synchronize();
  }
  int64_t calls = 0;
  for (const profiler::ThreadRecording& thread : profiler::stop_recording().threads)
    for (const profiler::Event& event : thread.events) calls += event.kind == profiler::Kind::Kernel;
  return calls / 2;
}

template <class F> static void one_step(F step, bool compiled, const char* unit, int64_t units) {
  for (int i = 0; i < (compiled ? 5 : 1); ++i) step();
  cuda::reset_peak_memory_stats();
  cuda::synchronize();
  const int64_t calls = recorded(step, compiled);
  std::printf(R"({"calls": %lld, "peak": %lld, "unit": "%s", "units": %lld})"
              "\n",
              static_cast<long long>(calls), static_cast<long long>(cuda::max_memory_allocated()), unit,
              static_cast<long long>(units));
}

template <class F, class Optimizer> static void train_step(F&& loss_of, Optimizer optimizer, const Tensor& x,
                                                           const Tensor& labels, bool compiled, bool bf16,
                                                           const char* unit, int64_t units) {
  const auto step = [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      amp::Autocast autocast(kCUDA, {.dtype = kBFloat16, .enabled = bf16});
      loss = loss_of(x, labels);
    }
    loss.backward();
    optimizer.step();
  };
  auto program = compile(step, {.enabled = compiled, .verify = 0, .background = false});
  one_step([&] { program(); }, compiled, unit, units);
}

/// From the scores, or, for a model whose own loss never has all of them, by that.
template <class Net> static auto loss_of_scores(Net& net) {
  return [&net](const Tensor& x, const Tensor& labels) {
    const Tensor scores = net(x);
    return cross_entropy(flatten(scores, 0, scores.dim() - 2), labels);
  };
}

template <class Block> static void images(models::ResNet<Block> net, int64_t classes, double decay, bool compiled,
                                          bool bf16, int64_t batch, int64_t size) {
  net.to(kCUDA), net.to(kChannelsLast);
  train_step(loss_of_scores(net), optim::SGD(net.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = decay}),
             zeros({batch, 3, size, size}, {.device = kCUDA}).to(kChannelsLast), randint(0, classes, {batch}).to(kCUDA),
             compiled, bf16, "images", batch);
}
static void resnet50(bool compiled, int64_t batch, int64_t size) {
  images(models::resnet50(), 1000, 1e-4, compiled, true, batch, size);
}
template <bool bf16> static void resnet18_cifar(bool compiled, int64_t batch, int64_t size) {
  images(models::resnet18({.num_classes = 10, .small_images = true}), 10, 5e-4, compiled, bf16, batch, size);
}
/// narrow: weights of bfloat16 with float32 copies, in place of autocast. float8: products of the blocks in 8-bit floats.
static void gpt2(const models::GPT2Config& config, double lr, double beta2, bool compiled, bool bf16, int64_t batch,
                 bool by_chunks = false, bool narrow = false, bool float8 = false) {
  models::GPT2LMHeadModel net(config);
  net.to(kCUDA);
  if (float8) quant::float8_training_(net);
  if (narrow) net.to(kBFloat16);
  const int64_t words = config.vocab_size, tokens = config.n_positions;
  const auto loss = [&](const Tensor& x, const Tensor& labels) {
    return by_chunks ? net.loss(x, view(labels, x.shape())) : loss_of_scores(net)(x, labels);
  };
  const optim::AdamWOptions options{
      .lr = lr, .betas = {0.9, beta2}, .weight_decay = 0.1, .low_precision = narrow ? "master" : "nearest"};
  train_step(loss, optim::AdamW(net.parameters(), options), randint(0, words, {batch, tokens}).to(kCUDA),
             randint(0, words, {batch * tokens}).to(kCUDA), compiled, bf16, "tokens", batch * tokens);
}
template <int percent, bool by_chunks = false> static void gpt2_124m(bool compiled, int64_t batch, int64_t tokens) {
  gpt2({.n_positions = tokens, .dropout = percent / 100.}, 6e-4, 0.95, compiled, true, batch, by_chunks);
}
static void gpt2_124m_master(bool compiled, int64_t batch, int64_t tokens) {
  gpt2({.n_positions = tokens, .dropout = 0}, 6e-4, 0.95, compiled, false, batch, false, true);
}
static void gpt2_124m_float8(bool compiled, int64_t batch, int64_t tokens) {
  gpt2({.n_positions = tokens, .dropout = 0}, 6e-4, 0.95, compiled, true, batch, false, false, true);
}
template <bool bf16> static void gpt_mini(bool compiled, int64_t batch, int64_t tokens) {
  gpt2({.vocab_size = 65, .n_positions = tokens, .n_embd = 384, .n_layer = 6, .n_head = 6, .dropout = 0}, 1e-3, 0.99,
       compiled, bf16, batch);
}
static void mlp(bool compiled, int64_t batch, int64_t size) {
  nn::Sequential net(nn::Linear(size, 512), nn::ReLU(), nn::Linear(512, 256), nn::ReLU(), nn::Linear(256, 10));
  net.to(kCUDA);
  train_step(loss_of_scores(net), optim::Adam(net.parameters(), {.lr = 1e-3}), randn({batch, size}).to(kCUDA),
             randint(0, 10, {batch}).to(kCUDA), compiled, false, "rows", batch);
}
struct Words : nn::Module {  // (T, B, 512) -> (T, B, 10)
  nn::LSTM lstm{512, 512, {.num_layers = 2}};
  nn::Linear out{512, 10};
  Tensor forward(const Tensor& x) { return out(lstm(x).output); }
  TAPIR_FIELDS(lstm, out)
};
template <bool bf16> static void lstm(bool compiled, int64_t batch, int64_t words) {
  Words net;
  net.to(kCUDA);
  train_step(loss_of_scores(net), optim::SGD(net.parameters(), {.lr = 0.1}), randn({words, batch, 512}).to(kCUDA),
             randint(0, 10, {words * batch}).to(kCUDA), compiled, bf16, "words", words * batch);
}
/// Greedy, in bfloat16; bits: of the weights of the blocks.
template <int bits = 16> static void gpt2_decode(bool compiled, int64_t batch, int64_t length) {
  models::GPT2LMHeadModel net({.dropout = 0});
  net.to(kBFloat16), net.eval();
  if (bits < 16) quant::quantize_weights_(net, {.bits = bits});
  net.to(kCUDA);
  models::KVCache cache = net.new_cache(batch, length + 16);
  InferenceMode guard;
  const auto next = [&](const Tensor& tokens) {
    InferenceMode inside;
    return models::next_token(net(tokens, cache).select(1, -1)).unsqueeze(1);
  };
  Tensor token = next(zeros({batch, length}, {.dtype = kInt64, .device = kCUDA}));
  auto program = compile(next, {.enabled = compiled, .verify = 0, .background = false});
  one_step([&] { token = program(token); }, compiled, "tokens", batch);
}

struct Workload {
  const char* name;
  void (*run)(bool compiled, int64_t batch, int64_t size);
  int64_t batch, size;
};
static constexpr Workload workloads[] = {
    {"resnet50", resnet50, 256, 224},
    {"gpt2_124m", gpt2_124m<0>, 16, 1024},
    {"gpt2_124m_dropout", gpt2_124m<10>, 16, 1024},
    {"gpt2_124m_chunks", gpt2_124m<0, true>, 16, 1024},
    {"gpt2_124m_master", gpt2_124m_master, 16, 1024},
    {"gpt2_124m_float8", gpt2_124m_float8, 16, 1024},
    {"gpt2_decode", gpt2_decode<>, 1, 128},
    {"gpt2_decode_int8", gpt2_decode<8>, 1, 128},
    {"gpt2_decode_int4", gpt2_decode<4>, 1, 128},
    {"mlp", mlp, 64, 784},
    {"lstm", lstm<false>, 64, 100},
    {"lstm_bf16", lstm<true>, 64, 100},
    {"resnet18_cifar", resnet18_cifar<false>, 64, 32},
    {"resnet18_cifar_bf16", resnet18_cifar<true>, 64, 32},
    {"gpt_mini", gpt_mini<false>, 16, 256},
    {"gpt_mini_bf16", gpt_mini<true>, 16, 256},
};

int main(int argc, char** argv) {
  std::string name, variant;
  int64_t batch = 0, size = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const int64_t value = i + 1 < argc ? std::atoll(argv[i + 1]) : 0;
    if (word == "--batch") batch = value, ++i;
    else if (word == "--size") size = value, ++i;
    else (name.empty() ? name : variant) = word;
  }
  const Workload* found = nullptr;
  for (const Workload& w : workloads)
    if (name == w.name) found = &w;
  if (!found || (variant != "eager" && variant != "compiled")) {
    std::fprintf(stderr, "usage: gpu_model_steps WORKLOAD eager|compiled [--batch B] [--size S]\nWORKLOAD:");
    for (const Workload& w : workloads) std::fprintf(stderr, " %s", w.name);
    return std::fprintf(stderr, "\n"), 2;
  }
  try {
    found->run(variant == "compiled", batch ? batch : found->batch, size ? size : found->size);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_model_steps: %s\n", e.what());
    return 1;
  }
}
