// gpu_model_steps WORKLOAD eager|compiled [--batch B] [--size S]: one step on the CUDA device behind a few of warm-up, between two waits
// for the device; tools/gpu_model runs it where launches are counted. Prints one JSON line about the host's side of the step.
// WORKLOAD: resnet50 (--size: of the images), gpt2_124m (--size: tokens of a sequence), gpt2_decode (--size: tokens in the cache).
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
  for (int i = 0; i < (compiled ? 4 : 1); ++i) step();
  cuda::reset_peak_memory_stats();
  cuda::synchronize();
  const int64_t calls = recorded(step, compiled);
  std::printf(R"({"calls": %lld, "peak": %lld, "unit": "%s", "units": %lld})"
              "\n",
              static_cast<long long>(calls), static_cast<long long>(cuda::max_memory_allocated()), unit,
              static_cast<long long>(units));
}

template <class Net, class Optimizer> static void train_step(Net& net, Optimizer optimizer, const Tensor& x,
                                                             const Tensor& labels, bool compiled, const char* unit,
                                                             int64_t units) {
  const auto step = [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      amp::Autocast autocast(kCUDA, {.dtype = kBFloat16});
      const Tensor out = net(x);
      loss = cross_entropy(flatten(out, 0, out.dim() - 2), labels);
    }
    loss.backward();
    optimizer.step();
  };
  auto program = compile(step, {.enabled = compiled, .background = false});
  one_step([&] { program(); }, compiled, unit, units);
}

static void resnet50(bool compiled, int64_t batch, int64_t size) {
  models::ResNet net = models::resnet50();
  net.to(kCUDA), net.to(kChannelsLast);
  train_step(net, optim::SGD(net.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4}),
             zeros({batch, 3, size, size}, {.device = kCUDA}).to(kChannelsLast), randint(0, 1000, {batch}).to(kCUDA),
             compiled, "images", batch);
}
static void gpt2_124m(bool compiled, int64_t batch, int64_t tokens) {
  models::GPT2LMHeadModel net({.n_positions = tokens, .dropout = 0});
  net.to(kCUDA);
  const int64_t words = net.config.vocab_size;
  train_step(net, optim::AdamW(net.parameters(), {.lr = 6e-4, .betas = {0.9, 0.95}, .weight_decay = 0.1}),
             randint(0, words, {batch, tokens}).to(kCUDA), randint(0, words, {batch * tokens}).to(kCUDA), compiled,
             "tokens", batch * tokens);
}
/// Greedy, in bfloat16.
static void gpt2_decode(bool compiled, int64_t batch, int64_t length) {
  models::GPT2LMHeadModel net({.dropout = 0});
  net.to(kCUDA), net.to(kBFloat16), net.eval();
  models::KVCache cache = net.new_cache(batch, length + 16);
  InferenceMode guard;
  const auto next = [&](const Tensor& tokens) {
    InferenceMode inside;
    return models::next_token(net(tokens, cache).select(1, -1)).unsqueeze(1);
  };
  Tensor token = next(zeros({batch, length}, {.dtype = kInt64, .device = kCUDA}));
  auto program = compile(next, {.enabled = compiled, .background = false});
  one_step([&] { token = program(token); }, compiled, "tokens", batch);
}

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
  const auto run = name == "resnet50"      ? resnet50
                   : name == "gpt2_124m"   ? gpt2_124m
                   : name == "gpt2_decode" ? gpt2_decode
                                           : nullptr;
  if (!run || (variant != "eager" && variant != "compiled")) {
    std::fprintf(stderr,
                 "usage: gpu_model_steps resnet50|gpt2_124m|gpt2_decode eager|compiled [--batch B] [--size S]\n");
    return 2;
  }
  const int64_t batches[] = {256, 16, 1}, sizes[] = {224, 1024, 128};
  const int which = name == "resnet50" ? 0 : name == "gpt2_124m" ? 1 : 2;
  try {
    run(variant == "compiled", batch ? batch : batches[which], size ? size : sizes[which]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_model_steps: %s\n", e.what());
    return 1;
  }
}
