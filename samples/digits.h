#pragma once
// Pictures of digits for the samples that draw some.
#include "run.h"

namespace samples {

struct DigitOptions {
  std::string picture = {}, path = {};
  int64_t limit = 0;
  void add_to(CLI::App& app) {
    app.add_option("--data", path, "Folder of the IDX files, or 'generated' for built-in digits");
    app.add_option("--limit", limit, "Use the first images only; 0: all")->capture_default_str();
    app.add_option("--picture", picture, "PNG file, renewed after each epoch")->capture_default_str();
  }
};

/// MNIST's images, (N, 1, 28, 28) in [0, 1].
struct Digits {
  Tensor train, test;
  explicit Digits(const DigitOptions& o) {
    const data::MnistData mnist = data::find_mnist(o.path, {.mnist = {.normalize = false}});
    std::printf("data: %s\n", mnist.source.c_str());
    const auto first = [&](const data::TensorDataset<2>& set) {
      const int64_t n = o.limit ? std::min(o.limit, set.size()) : set.size();
      return set.tensors()[0].narrow(0, 0, n).to(kFloat32) / 255;
    };
    train = first(mnist.train), test = first(mnist.test);
  }
};

}  // namespace samples
