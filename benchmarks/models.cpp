// The workloads that are whole models, and the loader. Variant bf16: forward and loss under autocast.
#include <tapir/models/gpt2.h>
#include <tapir/models/resnet.h>
#include <tapir/tapir.h>

#include <cstdlib>
#include <memory>

#include "workloads.h"

using namespace tapir;
namespace tf = data::transforms;

const BenchSize& bench_size() {
  static const BenchSize target{256, 224, 64, 16, 1024, 12, 768, 50257, 1 << 28, 8192},
      small{16, 224, 64, 1, 512, 12, 768, 50257, 1 << 24, 1024}, tiny{2, 32, 8, 1, 16, 2, 64, 211, 1 << 16, 64};
  const char* named = std::getenv("TAPIR_BENCH_SIZE");
  const std::string name = named && *named ? named : bench_device.is_cuda() ? "target" : "small";
  check(name == "target" || name == "small" || name == "tiny",
        "expected TAPIR_BENCH_SIZE target, small or tiny, got {}", name);
  return name == "target" ? target : name == "small" ? small : tiny;
}

static int64_t scaled(int64_t size, const std::string& variant) {
  return variant.ends_with("_half") ? size / 2 : variant.ends_with("_double") ? size * 2 : size;
}

std::string work_of(const std::string& workload, const std::string& variant) {
  const BenchSize& s = bench_size();
  const std::string gpt = tapir::format("{} layers of {}, {} words", s.layers, s.channels, s.vocabulary);
  if (workload == "resnet50")
    return tapir::format("{} images of {}x{}, first stage of {} channels", s.images, s.pixels, s.pixels, s.width);
  if (workload == "gpt2_124m") return tapir::format("{} tokens in {} rows, {}", s.rows * s.tokens, s.rows, gpt);
  if (workload == "gpt2_decode") return "1 tokens, " + gpt;
  if (workload == "adamw") return tapir::format("1 steps, first stage of {} channels", s.width);
  if (workload == "ceiling" && variant.starts_with("copy"))
    return tapir::format("{} bytes", 8 * scaled(s.copied, variant));
  if (workload == "ceiling") {
    const int64_t side = scaled(s.side, variant);
    return tapir::format("{} flops", 2 * side * side * side);
  }
  return "1 steps";
}

/// What the machine gives at best: "copy" (bytes read and written), "matmul_f32", "matmul_bf16"; "copy_double", "matmul_f32_half": of such sizes.
Run ceiling(const std::string& variant) {
  const BenchSize& s = bench_size();
  if (variant.starts_with("copy")) {
    Tensor x = randn({scaled(s.copied, variant)}, {.device = bench_device});
    return timed([x, y = empty_like(x)]() mutable { y.copy_(x); });
  }
  const int64_t side = scaled(s.side, variant);
  const DType dtype = variant.starts_with("matmul_bf16") ? kBFloat16 : kFloat32;
  const Tensor a = randn({side, side}, {.device = bench_device}).to(dtype), b = a.clone();
  return timed([a, b] {
    InferenceMode guard;
    matmul(a, b);
  });
}

template <class Net, class Optimizer> static Run training(const std::string& variant, std::shared_ptr<Net> net,
                                                          Optimizer make_optimizer, Tensor x, Tensor labels) {
  net->to(bench_device);
  auto optimizer = std::make_shared<decltype(make_optimizer(*net))>(make_optimizer(*net));
  x = x.to(bench_device), labels = labels.to(bench_device);
  const auto step = [=, bf16 = variant.ends_with("bf16")] {
    optimizer->zero_grad();
    Tensor loss;
    {
      amp::Autocast autocast(bench_device, {.dtype = kBFloat16, .enabled = bf16});
      const Tensor out = (*net)(x);
      loss = cross_entropy(flatten(out, 0, out.dim() - 2), labels);
    }
    loss.backward();
    optimizer->step();
  };
  return timed(step, variant.starts_with("compiled"));
}

template <class Net>
static Run vision(const std::string& variant, Net net, int64_t batch, int64_t size, int64_t classes, double decay) {
  auto shared = std::make_shared<Net>(std::move(net));
  shared->to(kChannelsLast);
  const auto sgd = [=](Net& n) {
    return optim::SGD(n.parameters(), {.lr = kRate, .momentum = 0.9, .weight_decay = decay});
  };
  return training(variant, shared, sgd, randn({batch, 3, size, size}).to(kChannelsLast), randint(0, classes, {batch}));
}
Run resnet18_cifar(const std::string& variant) {
  return vision(variant, models::resnet18({.num_classes = 10, .small_images = true}), 64, 32, 10, 5e-4);
}
/// One image of 224 x 224.
Run resnet18_infer(const std::string& variant) {
  auto net = std::make_shared<models::ResNet<models::BasicBlock>>(models::resnet18());
  net->to(bench_device), net->to(kChannelsLast);
  return inference(variant, net, randn({1, 3, 224, 224}, {.device = bench_device}).to(kChannelsLast));
}
Run resnet50(const std::string& variant) {
  const BenchSize& s = bench_size();
  return vision(variant, models::resnet50({.width = s.width}), s.images, s.pixels, 1000, 1e-4);
}

static Run gpt(const std::string& variant, const models::GPT2Config& config, int64_t batch, double beta2) {
  const auto adamw = [=](models::GPT2LMHeadModel& net) {
    return optim::AdamW(net.parameters(), {.lr = kRate, .betas = {0.9, beta2}, .weight_decay = 0.1});
  };
  return training(variant, std::make_shared<models::GPT2LMHeadModel>(config), adamw,
                  randint(0, config.vocab_size, {batch, config.n_positions}),
                  randint(0, config.vocab_size, {batch * config.n_positions}));
}
Run gpt_mini(const std::string& variant) {
  return gpt(variant, {.vocab_size = 65, .n_positions = 256, .n_embd = 384, .n_layer = 6, .n_head = 6, .dropout = 0},
             16, 0.99);
}
static models::GPT2Config gpt2_config(int64_t positions) {
  const BenchSize& s = bench_size();
  return {.vocab_size = s.vocabulary,
          .n_positions = positions,
          .n_embd = s.channels,
          .n_layer = s.layers,
          .n_head = s.channels / 64,
          .dropout = 0};
}
Run gpt2_124m(const std::string& variant) {
  return gpt(variant, gpt2_config(bench_size().tokens), bench_size().rows, 0.95);
}

/// A step is one token: greedy, batch 1, after a prompt of 16. Variants: a kind of weights, "compiled" or both, as in "compiled_int8".
Run gpt2_decode(const std::string& variant) {
  auto net = std::make_shared<models::GPT2LMHeadModel>(gpt2_config(1024));
  net->to(bench_device);
  if (variant.ends_with("bf16")) net->to(kBFloat16);
  for (const int bits : {8, 4})
    if (variant.ends_with("int" + std::to_string(bits))) quant::quantize_weights_(*net, {.bits = bits});
  net->eval();
  const auto cache = std::make_shared<models::KVCache>(net->new_cache(1, 16 + 256));
  auto step = [net, cache](const Tensor& token) {
    InferenceMode guard;
    return models::next_token((*net)(token, *cache).select(1, -1)).unsqueeze(1);
  };
  CompileOptions options = bench_compile;
  options.enabled = variant.starts_with("compiled");
  const auto program = std::make_shared<Compiled<decltype(step)>>(compile(step, options));
  return timed([=, token = Tensor(), left = int64_t(0)]() mutable {
    if (left == 0)
      cache->clear(), left = cache->capacity() - 16, token = zeros({1, 16}, {.dtype = kInt64, .device = bench_device});
    token = token.size(1) == 1 ? (*program)(token) : step(token);
    --left;
  });
}

/// A step is a batch of 128 images of a folder of JPEGs: decoded, cropped, flipped, normalised. The variant is the number of workers.
Run loader(const std::string& variant) {
  const char* folder = std::getenv("TAPIR_BENCH_IMAGES");
  auto images = data::map(data::ImageFolder(folder ? folder : "images"),
                          [transform = tf::Compose(tf::RandomCrop{32, 4}, tf::RandomHorizontalFlip{}, tf::Normalize{})](
                              const Tensor& image, const Tensor& label) {
                            return std::array<Tensor, 2>{transform(image), label};
                          });
  using Loader = data::DataLoader<decltype(images)>;
  auto batches = std::make_shared<Loader>(
      std::move(images),
      data::LoaderOptions{
          .batch_size = 128, .shuffle = true, .num_workers = std::atoll(variant.c_str()), .drop_last = true});
  auto at = std::make_shared<std::optional<decltype(batches->begin())>>();
  return timed([=] {
    if (!*at || **at == batches->end()) at->reset(), at->emplace(batches->begin());
    else ++**at;
    if (**at == batches->end()) at->reset(), at->emplace(batches->begin());
  });
}
