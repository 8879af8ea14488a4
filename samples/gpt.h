#pragma once
// The program of gpt and gpt_ddp: trains a small GPT-2 on the characters of tiny Shakespeare, then writes in its manner.
#include <tapir/distributed/ddp.h>
#include <tapir/models/gpt2.h>

#include "quantized.h"
#include "text.h"

namespace samples {
using namespace tapir;

/// In one process, or as one of many that a launcher has started: each takes its part of every batch, and rank 0 shows and writes.
inline int train_gpt(int argc, char** argv, bool many) {
  Options o{.epochs = 10, .batch_size = 32, .lr = 1.5e-3};
  models::GPT2Config config{.n_positions = 64, .n_embd = 128, .n_layer = 4, .n_head = 4, .dropout = 0.05};
  std::string path, prompt = "\n", backend = "tcp";
  int64_t batches = 400, length = 500;
  double temperature = 0.8;
  CLI::App app(many ? "Trains a small GPT in several processes: tapir-run --nproc 2 gpt_ddp"
                    : "Trains a small GPT on tiny Shakespeare",
               many ? "gpt_ddp" : "gpt");
  if (many) app.add_option("--backend", backend, "tcp, gloo or nccl")->check(CLI::IsMember({"tcp", "gloo", "nccl"}));
  app.add_option("--data", path, "Text file (default: $TAPIR_DATA, datasets, ../shared/data)");
  app.add_option("--layers", config.n_layer, "Blocks")->capture_default_str();
  app.add_option("--heads", config.n_head, "Heads of each attention")->capture_default_str();
  app.add_option("--width", config.n_embd, "Channels")->capture_default_str();
  app.add_option("--context", config.n_positions, "Characters that the model sees")->capture_default_str();
  app.add_option("--batches", batches, "Steps in an epoch")->capture_default_str();
  app.add_option("--prompt", prompt, "What the text that is written begins with");
  app.add_option("--length", length, "Characters to write at the end")->capture_default_str();
  app.add_option("--temperature", temperature, "Below 1: bolder; above: wilder")->capture_default_str();
  if (!many) app.add_flag("--quantize", o.quantize, "At the end, score and speed of the network with 8 and 4 bits");
  return samples::main(app, argc, argv, o, [&] {
    distributed::ProcessGroup group;
    if (many) {
      group = distributed::init_process_group({.backend = backend});
      o.quiet = group.rank() > 0, o.resume |= group.launch().restart_count > 0;
      manual_seed(o.seed + uint64_t(group.rank()));  // dropout of its own; the weights will be rank 0's
      o.batch_size = std::max<int64_t>(1, o.batch_size / group.size());
    }
    const Device device(o.device);
    const Text text(read_text(path), config.n_positions);
    config.vocab_size = text.vocabulary.size();
    models::GPT2LMHeadModel net(config);
    net.to(device);
    auto loader = random_windows(text.train, o.batch_size, batches, o.seed + uint64_t(many ? group.rank() : 0), device);
    optim::AdamW opt(net.parameters(), {.lr = o.lr, .betas = {0.9, 0.99}, .weight_decay = 0.1});
    optim::OneCycleLR schedule(opt, o.lr,
                               {.total_steps = o.epochs * loader.size(), .pct_start = 0.05, .cycle_momentum = false});
    amp::GradScaler scaler({.enabled = o.amp == "fp16"});
    std::optional<distributed::DistributedDataParallel<models::GPT2LMHeadModel>> ddp;
    if (many) ddp.emplace(net, distributed::DdpOptions(), group);
    if (!o.quiet)
      std::printf("%lld parameters, %lld different characters\n", static_cast<long long>(net.num_parameters()),
                  static_cast<long long>(config.vocab_size));
    const auto loss_of = [&](const Tensor& x, const Tensor& y) {
      amp::Autocast autocast(device, o.precision());
      const bool together = ddp && net.training;
      return cross_entropy(flatten(together ? (*ddp)(x) : net(x), 0, 1), flatten(y));
    };

    auto step = compile(
        [&](const Tensor& x, const Tensor& y) {
          opt.zero_grad();
          Tensor loss = loss_of(x, y);
          clipped_update(loss, net, opt, scaler);
          return loss;
        },
        {.enabled = o.compile && !many});  // collectives are no kernels

    Run run(o, {"validation loss"});
    run.keep("model", net)
        .keep("optimizer", opt)
        .keep("schedule", schedule)
        .keep("scaler", scaler)
        .keep("loader", loader);
    train_on_text(run, net, loader, schedule, step,
                  [&] { return mean_loss(text.validation, config.n_positions, 25, device, loss_of); });
    net.eval();
    if (o.quiet) return run.finish();
    std::printf("validation loss %.4f nats a character\n\n%s", run.last(0), prompt.c_str());
    const std::vector<int64_t> begin = text.vocabulary.encode(prompt).to_vector<int64_t>();
    // The positions end at the context, so a long text is written in pieces, each from the second half of the last.
    std::vector<int64_t> seen = begin;
    for (int64_t written = 0; written < length && !signalled;) {
      const int64_t room = config.n_positions - int64_t(seen.size());
      const auto piece = models::generate(net, seen,
                                          {.max_new_tokens = std::min(room, length - written),
                                           .sampling = {.sample = true, .temperature = temperature, .top_k = 40}},
                                          [&](int64_t token) {
                                            return std::printf("%s", text.vocabulary.decode(token).c_str()),
                                                   std::fflush(stdout), true;
                                          });
      written += int64_t(piece.size());
      seen.insert(seen.end(), piece.begin(), piece.end());
      if (int64_t(seen.size()) > config.n_positions / 2) seen.erase(seen.begin(), seen.end() - config.n_positions / 2);
    }
    std::printf("\n");
    if (o.quantize) {
      const Tensor example = zeros({64, config.n_positions}, {.dtype = kInt64, .device = device});
      print_quantized(net, example, false, "validation loss", [&](models::GPT2LMHeadModel& q) {
        return mean_loss(text.validation, config.n_positions, 10, device, [&](const Tensor& x, const Tensor& y) {
          return cross_entropy(flatten(q(x), 0, 1), flatten(y));
        });
      });
    }
    return run.finish();
  });
}

}  // namespace samples
