#pragma once
// Tiny Shakespeare for the language models.
#include "run.h"

namespace samples {

/// What the language models have in common.
struct TextOptions {
  int64_t width = 256, layers = 2, context = 64, batches = 400, length = 500;
  double temperature = 0.8;
  std::string prompt = "\n", path = {};
  void add_to(App& app) {
    app.add_option("--data", path, "Text file (default: $TAPIR_DATA, datasets, ../shared/data)");
    app.add_option("--width", width, "Channels")->check(whole(1));
    app.add_option("--layers", layers, "Layers")->check(whole(1));
    app.add_option("--context", context, "Characters in a window")->check(whole(2));
    app.add_option("--batches", batches, "Steps in an epoch")->check(whole(1));
    app.add_option("--prompt", prompt, "What the text that is written begins with")->default_str("a new line");
    app.add_option("--length", length, "Characters to write at the end")->check(whole(0));
    app.add_option("--temperature", temperature, "Below 1: bolder; above: wilder")->check(positive());
  }
};

/// The text of `path`, or of tiny Shakespeare from $TAPIR_DATA, datasets or ../shared/data.
inline std::string read_text(const std::string& path) {
  std::vector<std::string> places = {path};
  if (path.empty()) {
    const char* folder = std::getenv("TAPIR_DATA");
    places = {std::string(folder ? folder : "datasets") + "/tinyshakespeare/input.txt",
              "datasets/tinyshakespeare/input.txt", "../shared/data/tinyshakespeare/input.txt"};
  }
  for (const std::string& place : places)
    if (std::filesystem::exists(place)) return from_option("--data", [&] { return io::read_file("read_text", place); });
  throw RuntimeError("--data: expected a text file, got \"" + places[0] + "\", which is not there");
}

/// A text as numbers: nine tenths to train on, the rest to validate; and what is to be gone on from.
struct Text {
  data::CharVocabulary vocabulary;
  Tensor tokens;
  data::CharDataset train, validation;
  Tensor prompt;
  explicit Text(const TextOptions& o) : Text(o, read_text(o.path)) {}

 private:
  Text(const TextOptions& o, const std::string& text)
      : vocabulary(from_option("--data", [&] { return data::CharVocabulary(text); })), tokens(vocabulary.encode(text)),
        train(part(0, middle(), o.context)), validation(part(middle(), tokens.numel(), o.context)),
        prompt(from_option("--prompt", [&] { return vocabulary.encode(o.prompt); })) {
    check(prompt.numel() > 0, "--prompt: expected at least one character, got none");
  }
  int64_t middle() const { return tokens.numel() * 9 / 10; }
  data::CharDataset part(int64_t from, int64_t to, int64_t context) const {
    check(context < to - from, "--context: expected fewer than the {} characters of a part of the text, got {}",
          to - from, context);
    return data::CharDataset(tokens.narrow(0, from, to - from), context);
  }
};

/// Random windows, `batches` of them an epoch.
template <class D>
auto random_windows(const D& windows, int64_t batch_size, int64_t batches, uint64_t seed, Device device) {
  data::WeightedRandomSampler sampler(std::vector<double>(size_t(windows.size()), 1.0), batch_size * batches, true,
                                      seed);
  return data::DataLoader(windows, {.batch_size = batch_size, .device = device, .sampler = sampler});
}

/// The mean loss of windows side by side, at most `batches` of 64.
template <class F>
double mean_loss(const data::CharDataset& windows, int64_t context, int64_t batches, Device device, F&& loss_of) {
  InferenceMode guard;
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < windows.size() && int64_t(starts.size()) < 64 * batches; i += context) starts.push_back(i);
  Tensor sum = zeros({}, {.device = device});
  data::DataLoader loader(data::subset(windows, starts),
                          {.batch_size = 64, .drop_last = starts.size() >= 64, .device = device});
  for (auto& [x, y] : loader) sum.add_(loss_of(x, y));
  return sum.item() / double(loader.size());
}

/// All epochs: step(windows, next characters) for each batch, and validate() after each epoch.
template <class Loader, class Step, class Validate> void train_on_text(Run& run, nn::Module& net, Loader& loader,
                                                                       optim::LRScheduler& schedule, Step& step,
                                                                       Validate&& validate) {
  while (run.next_epoch(loader.size())) {
    for (auto& [x, y] : loader) {
      const Tensor loss = step(x, y);
      schedule.step();
      if (!run.step(loss)) break;
    }
    if (run.interrupted()) break;
    net.eval();
    run.end_epoch({validate()});
    net.train();
  }
}

}  // namespace samples
