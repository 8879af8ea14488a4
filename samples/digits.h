#pragma once
// MNIST for the samples that read or draw digits.
#include "run.h"

namespace samples {

struct DigitOptions {
  std::string picture = {}, path = {};  // picture empty: not offered
  int64_t limit = 0;
  void add_to(App& app) {
    app.add_option("--data", path,
                   "Folder of the IDX files, or 'generated' for built-in digits (default: $TAPIR_DATA, datasets/mnist, "
                   "../shared/data/mnist, download, generated)");
    app.add_option("--limit", limit, "Train and test on the first images only; 0: all")->check(whole(0));
    if (!picture.empty())
      app.add_option("--picture", picture, "PNG file, renewed after each epoch; empty: none")->check(file_to_write());
  }
  /// Images (N, 1, 28, 28) and labels (N). `show`: print where they come from.
  data::MnistData load(const data::MnistOptions& how = {}, bool show = true) const {
    data::FindMnistOptions find{.mnist = how};
    if (limit) {  // no more than these are drawn
      find.synthetic_train = std::min(limit, find.synthetic_train);
      find.synthetic_test = std::min(limit, find.synthetic_test);
    }
    data::MnistData out = from_option("--data", [&] { return data::find_mnist(path, find); });
    if (show) std::printf("data: %s\n", out.source.c_str());
    for (data::TensorDataset<2>* set : {&out.train, &out.test}) {
      const int64_t n = limit ? std::min(limit, set->size()) : set->size();
      *set = data::TensorDataset(set->tensors()[0].narrow(0, 0, n), set->tensors()[1].narrow(0, 0, n));
    }
    return out;
  }
};

/// MNIST's images, (N, 1, 28, 28) in [0, 1].
struct Digits {
  Tensor train, test;
  explicit Digits(const DigitOptions& o) {
    const data::MnistData mnist = o.load({.normalize = false});
    train = mnist.train.tensors()[0].to(kFloat32) / 255, test = mnist.test.tensors()[0].to(kFloat32) / 255;
  }
};

}  // namespace samples
