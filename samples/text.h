#pragma once
// Tiny Shakespeare for the language models.
#include <filesystem>

#include "run.h"

namespace samples {

/// The text of `path`, or of tiny Shakespeare from $TAPIR_DATA, datasets or ../shared/data.
inline std::string read_text(const std::string& path) {
  std::vector<std::string> places = {path};
  if (path.empty()) {
    const char* folder = std::getenv("TAPIR_DATA");
    places = {std::string(folder ? folder : "datasets") + "/tinyshakespeare/input.txt",
              "datasets/tinyshakespeare/input.txt", "../shared/data/tinyshakespeare/input.txt"};
  }
  for (const std::string& place : places)
    if (std::filesystem::exists(place)) return io::read_file("read_text", place);
  throw std::runtime_error("no text at " + places[0] + ": --data names a text file");
}

/// A text as numbers: nine tenths to train on, the rest to validate.
struct Text {
  data::CharVocabulary vocabulary;
  data::CharDataset train, validation;
  explicit Text(const std::string& text, int64_t context)
      : vocabulary(text), train(part(text, 0, text.size() * 9 / 10), context),
        validation(part(text, text.size() * 9 / 10, text.size()), context) {}

 private:
  Tensor part(const std::string& text, size_t from, size_t to) const {
    return vocabulary.encode(std::string_view(text).substr(from, to - from));
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
