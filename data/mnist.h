#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dataset.h"

namespace tapir::inline v0::data {

enum class Split : uint8_t { Train, Test };

struct MnistOptions {
  bool normalize = true;  // float32, (x / 255 - 0.1307) / 0.3081; else uint8 as in the file
};
/// The MNIST digits: images (N, 1, 28, 28), labels (N,) int64. `folder` holds the four IDX files, as they are or as
/// .gz. RuntimeError for files that are missing or damaged, do not fit one another, or hold a label above 9.
TensorDataset<2> mnist(const std::string& folder, Split split, const MnistOptions& options = {});

/// Digits drawn by a program: strokes with random slant, size, thickness, wobble and noise, in MNIST's shapes. The seed
/// fixes them.
TensorDataset<2> synthetic_digits(int64_t count, uint64_t seed, const MnistOptions& options = {});

struct FindMnistOptions {
  MnistOptions mnist = {};
  bool download = true;  // into `target`, where nothing is found and there is a network
  std::string target = "datasets/mnist";
  std::vector<std::string> mirrors = {};  // URLs of folders with the .gz files; by default the two public ones
  int64_t synthetic_train = 20000, synthetic_test = 4000;
};
struct MnistData {
  TensorDataset<2> train, test;
  std::string source;  // one line for people: where the digits come from
};
/// MNIST from `folder` if given (the word "generated" means synthetic_digits), else $TAPIR_DATA (or mnist/ in it), else datasets/mnist, else ../shared/data/mnist
/// where it exists, else downloaded (SHA-256 checked), else synthetic_digits. RuntimeError when a folder that was asked
/// for has no MNIST.
MnistData find_mnist(const std::string& folder = {}, const FindMnistOptions& options = {});
/// Fetches the four files that `target` lacks, with curl or wget; false when none of the mirrors gives the right bytes.
bool download_mnist(const std::string& target, const std::vector<std::string>& mirrors = {});

}  // namespace tapir::inline v0::data
