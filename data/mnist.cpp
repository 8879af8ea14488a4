#include "mnist.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "../core/parallel.h"
#include "../io/idx.h"
#include "digits.h"

namespace tapir::inline v0::data {

namespace {

/// The first of the usual names of a file that exists, or "".
std::string find_file(const std::string& folder, const std::string& stem, const std::string& kind) {
  for (const char* dot : {"-", "."})
    for (const char* end : {"", ".gz"})
      if (const std::string path = folder + "/" + stem + dot + kind + "-ubyte" + end; ::access(path.c_str(), F_OK) == 0)
        return path;
  return {};
}

std::string image_file(const std::string& folder, Split split) {
  return find_file(folder, split == Split::Train ? "train-images" : "t10k-images", "idx3");
}
std::string label_file(const std::string& folder, Split split) {
  return find_file(folder, split == Split::Train ? "train-labels" : "t10k-labels", "idx1");
}
bool has_mnist(const std::string& folder) {
  for (const Split split : {Split::Train, Split::Test})
    if (image_file(folder, split).empty() || label_file(folder, split).empty()) return false;
  return true;
}

Tensor read_labels(const std::string& path) {
  const Tensor raw = io::read_idx(path);
  check_runtime(raw.dtype() == kUInt8 && raw.dim() == 1, "[mnist] {}: expected labels of uint8 (N,), got {}", path,
                raw);
  Tensor labels = empty(raw.shape(), {.dtype = kInt64});
  for (int64_t i = 0; i < raw.numel(); ++i) {
    const uint8_t label = raw.data<uint8_t>()[i];
    check_runtime(label <= 9, "[mnist] {}: expected labels from 0 to 9, got {} at position {}", path, int(label), i);
    labels.data<int64_t>()[i] = label;
  }
  return labels;
}

}  // namespace

Tensor normalize_digits(const Tensor& raw) {
  float table[256];
  for (int v = 0; v < 256; ++v) table[v] = (float(v) / 255.f - 0.1307f) / 0.3081f;
  Tensor out = empty(raw.shape(), {.dtype = kFloat32});
  const auto* from = raw.data<uint8_t>();
  auto* to = out.data<float>();
  parallel_for(raw.numel(), 1 << 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) to[i] = table[from[i]];
  });
  return out;
}

TensorDataset<2> mnist(const std::string& folder, Split split, const MnistOptions& options) {
  const auto image_path = image_file(folder, split), label_path = label_file(folder, split);
  const char* name = split == Split::Train ? "train" : "t10k";
  check_runtime(!image_path.empty(), "[mnist] expected {}-images-idx3-ubyte or its .gz in {}, found neither", name,
                folder);
  check_runtime(!label_path.empty(), "[mnist] expected {}-labels-idx1-ubyte or its .gz in {}, found neither", name,
                folder);
  const Tensor raw = io::read_idx(image_path);
  check_runtime(raw.dtype() == kUInt8 && raw.dim() == 3 && raw.size(1) == 28 && raw.size(2) == 28,
                "[mnist] {}: expected images of uint8 (N, 28, 28), got {}", image_path, raw);
  const Tensor labels = read_labels(label_path);
  check_runtime(raw.size(0) == labels.size(0), "[mnist] expected as many images as labels, got {} in {} and {} in {}",
                raw.size(0), image_path, labels.size(0), label_path);
  const Tensor images = alias(raw, {raw.size(0), 1, 28, 28}, contiguous_strides({raw.size(0), 1, 28, 28}), 0);
  return TensorDataset(options.normalize ? normalize_digits(images) : images, labels);
}

MnistData find_mnist(const std::string& folder, const FindMnistOptions& options) {
  const auto load = [&](const std::string& from, const std::string& note) {
    return MnistData{mnist(from, Split::Train, options.mnist), mnist(from, Split::Test, options.mnist),
                     "MNIST from " + from + note};
  };
  const auto generate = [&](const std::string& why) {
    return MnistData{synthetic_digits(options.synthetic_train, 1, options.mnist),
                     synthetic_digits(options.synthetic_test, 2, options.mnist), "built-in generated digits" + why};
  };
  if (folder == "generated") return generate("");
  if (!folder.empty()) return load(folder, "");
  if (const char* given = std::getenv("TAPIR_DATA"); given && *given) {
    const std::string base = given, inside = base + "/mnist";
    return load(!has_mnist(base) && has_mnist(inside) ? inside : base, " ($TAPIR_DATA)");
  }
  for (const std::string& place : {options.target, std::string("../shared/data/mnist")})
    if (has_mnist(place)) return load(place, "");
  if (options.download && download_mnist(options.target, options.mirrors)) return load(options.target, " (downloaded)");
  return generate(options.download ? " (no MNIST found, no download)" : " (no MNIST found)");
}

}  // namespace tapir::inline v0::data
