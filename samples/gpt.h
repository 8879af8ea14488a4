#pragma once
// The program of gpt and gpt_ddp: trains a small GPT-2 on the characters of tiny Shakespeare, then writes in its manner.
#include <tapir/distributed/ddp.h>
#include <tapir/models/gpt2.h>

#include "quantized.h"
#include "ranks.h"
#include "text.h"

namespace samples {

using Gpt = models::GPT2LMHeadModel;

/// Prints the prompt and what follows. Positions end at the context, so a long text is written in pieces, each from the last half of what
/// is there.
inline void write_text(Gpt& net, const Text& text, const TextOptions& t) {
  std::printf("%s", t.prompt.c_str());
  std::vector<int64_t> seen = text.prompt.to_vector<int64_t>();
  for (int64_t written = 0; written < t.length && !signalled;) {
    if (int64_t(seen.size()) > t.context / 2) seen.erase(seen.begin(), seen.end() - t.context / 2);
    const int64_t room = t.context - int64_t(seen.size());
    const auto piece = models::generate(net, seen,
                                        {.max_new_tokens = std::min(room, t.length - written),
                                         .sampling = {.sample = true, .temperature = t.temperature, .top_k = 40}},
                                        [&](int64_t token) {
                                          std::printf("%s", text.vocabulary.decode(token).c_str());
                                          return std::fflush(stdout), true;
                                        });
    written += int64_t(piece.size());
    seen.insert(seen.end(), piece.begin(), piece.end());
  }
  std::printf("\n");
}

/// `group`: none for a process that is not one of many.
inline int train_gpt(const Options& o, const TextOptions& t, int64_t heads, const distributed::ProcessGroup& group) {
  check(t.width % heads == 0, "--heads: expected a divisor of the width {}, got {}", t.width, heads);
  const Device device(o.device);
  const Text text(t);
  Gpt net({.vocab_size = text.vocabulary.size(),
           .n_positions = t.context,
           .n_embd = t.width,
           .n_layer = t.layers,
           .n_head = heads,
           .dropout = 0.05});
  net.to(device);
  auto loader = random_windows(text.train, o.batch_size, t.batches, o.seed + uint64_t(o.rank), device);
  optim::AdamW opt(net.parameters(), {.lr = o.lr, .betas = {0.9, 0.99}, .weight_decay = 0.1});
  optim::OneCycleLR schedule(opt, o.lr,
                             {.total_steps = o.epochs * loader.size(), .pct_start = 0.05, .cycle_momentum = false});
  amp::GradScaler scaler({.enabled = o.amp == "fp16"});
  std::optional<distributed::DistributedDataParallel<Gpt>> ddp;
  if (group) ddp.emplace(net, distributed::DdpOptions(), group);
  if (!o.rank)
    std::printf("%lld parameters, %lld different characters\n", static_cast<long long>(net.num_parameters()),
                static_cast<long long>(text.vocabulary.size()));
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
      {.enabled = o.compile});

  Run run(o, {"validation loss"});
  run.keep("model", net).keep("optimizer", opt).keep("schedule", schedule).keep("scaler", scaler);
  run.keep("loader", loader).explain(step);
  const auto validate = [&](int64_t batches, auto&& loss) {
    return mean_loss(text.validation, t.context, batches, device, loss);
  };
  train_on_text(run, net, loader, schedule, step, [&] { return validate(25, loss_of); });
  net.eval();
  if (o.rank || run.interrupted()) return run.finish();
  std::printf("validation loss %.4f nats a character\n\n", run.last(0));
  write_text(net, text, t);
  const Tensor example = zeros({64, t.context}, {.dtype = kInt64, .device = device});
  const auto score = [&](Gpt& q) {
    return validate(10,
                    [&](const Tensor& x, const Tensor& y) { return cross_entropy(flatten(q(x), 0, 1), flatten(y)); });
  };
  if (o.quantize) print_quantized(net, example, false, "validation loss", score);
  return run.finish();
}

/// In one process, or as one of many that a launcher has started.
inline int gpt_main(int argc, char** argv, bool many) {
  Options o{.epochs = 10, .batch_size = 32, .lr = 1.5e-3, .can_compile = !many};
  TextOptions text{.width = 128, .layers = 4};
  RankOptions ranks;
  int64_t heads = 4;
  App app(many ? "Trains a small GPT in several processes: tapir-run --nproc 2 gpt_ddp"
               : "Trains a small GPT on tiny Shakespeare",
          many ? "gpt_ddp" : "gpt");
  if (many) ranks.add_to(app);
  text.add_to(app);
  app.add_option("--heads", heads, "Heads of each attention")->check(whole(1));
  if (!many) app.add_flag("--quantize", o.quantize, "At the end, score and speed of the network with 8 and 4 bits");
  return main(app, argc, argv, o, [&] {
    const distributed::ProcessGroup group = many ? ranks.join(o) : distributed::ProcessGroup();
    return train_gpt(o, text, heads, group);
  });
}

}  // namespace samples
