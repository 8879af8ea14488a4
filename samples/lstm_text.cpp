// Trains an LSTM on the characters of tiny Shakespeare, and writes in its manner one character at a time.
#include <tapir/models/generate.h>
#include <tapir/models/lstm_lm.h>

#include "text.h"
using namespace tapir;

/// Prints the prompt and what follows, one character at a time; the state stands for all that was read.
static void write(models::LSTMLanguageModel& net, const samples::Text& text, const samples::TextOptions& t,
                  Device device) {
  NoGrad guard;
  std::printf("%s", t.prompt.c_str());
  auto [scores, state] = net.forward(text.prompt.unsqueeze(0).to(device), {});
  for (int64_t i = 0; i < t.length && !samples::signalled; ++i) {
    const Tensor next =
        models::next_token(scores.select(1, -1), {.sample = true, .temperature = t.temperature, .top_k = 40});
    std::printf("%s", text.vocabulary.decode(next.item<int64_t>()).c_str());
    auto out = net.forward(next.unsqueeze(1), state);
    scores = out.logits, state = out.state;
  }
  std::printf("\n");
}

int main(int argc, char** argv) {
  samples::Options o{.epochs = 4, .batch_size = 32, .lr = 3e-3};
  samples::TextOptions t;
  samples::App app("Trains an LSTM on tiny Shakespeare", "lstm_text");
  t.add_to(app);
  return samples::main(app, argc, argv, o, [&] {
    const Device device(o.device);
    const samples::Text text(t);
    models::LSTMLanguageModel net(text.vocabulary.size(), t.width,
                                  {.num_layers = t.layers, .dropout = 0.1, .tied = true});
    net.to(device);
    auto loader = samples::random_windows(text.train, o.batch_size, t.batches, o.seed, device);
    optim::AdamW opt(net.parameters(), {.lr = o.lr, .weight_decay = 0.01});
    optim::OneCycleLR schedule(opt, o.lr,
                               {.total_steps = o.epochs * loader.size(), .pct_start = 0.1, .cycle_momentum = false});
    amp::GradScaler scaler({.enabled = o.amp == "fp16"});
    std::printf("%lld parameters, %lld different characters\n", static_cast<long long>(net.num_parameters()),
                static_cast<long long>(text.vocabulary.size()));
    const auto loss_of = [&](const Tensor& x, const Tensor& y) {
      amp::Autocast autocast(device, o.precision());
      return cross_entropy(flatten(net(x), 0, 1), flatten(y));
    };

    auto step = compile(
        [&](const Tensor& x, const Tensor& y) {
          opt.zero_grad();
          Tensor loss = loss_of(x, y);
          samples::clipped_update(loss, net, opt, scaler);
          return loss;
        },
        {.enabled = o.compile});

    samples::Run run(o, {"validation loss"});
    run.keep("model", net).keep("optimizer", opt).keep("schedule", schedule).keep("scaler", scaler);
    run.keep("loader", loader).explain(step);
    samples::train_on_text(run, net, loader, schedule, step,
                           [&] { return samples::mean_loss(text.validation, t.context, 25, device, loss_of); });
    if (run.interrupted()) return run.finish();
    net.eval();
    std::printf("validation loss %.4f nats a character\n\n", run.last(0));
    write(net, text, t, device);
    return run.finish();
  });
}
