#pragma once
// Pictures for samples that classify them: ImageNet's layout of folders, CIFAR-10, or coloured shapes that are drawn here.
#include <random>
#include <variant>

#include "options.h"

namespace samples {
namespace fs = std::filesystem;
namespace tf = data::transforms;

inline constexpr std::array<const char*, 6> kShapes = {"circle", "square", "triangle", "cross", "ring", "star"};

/// Is the point in the shape of radius 1 about 0?
inline bool in_shape(size_t shape, double x, double y) {
  const double radius = std::hypot(x, y), wide = std::max(std::abs(x), std::abs(y)),
               thin = std::min(std::abs(x), std::abs(y));
  switch (shape) {
    case 0: return radius < 1;
    case 1: return wide < 0.8;
    case 2: return y > -0.5 && std::sqrt(3.) * std::abs(x) + y < 1;
    case 3: return wide < 1 && thin < 0.3;
    case 4: return radius < 1 && radius > 0.6;
    default: return radius < 0.65 + 0.35 * std::cos(5 * std::atan2(y, x));
  }
}

/// A bright shape of some colour, size, place and tilt before a dark ground, with noise: uint8 (3, side, side).
inline Tensor draw_shape(size_t shape, uint64_t seed, int64_t side) {
  std::mt19937_64 bits(seed);
  const auto uniform = [&](double low, double high) { return low + (high - low) * double(bits() >> 11) * 0x1p-53; };
  const double size = double(side), radius = uniform(0.25, 0.42) * size, angle = uniform(-0.3, 0.3);
  const double cx = uniform(radius, size - radius), cy = uniform(radius, size - radius);
  const double c = std::cos(angle) / radius, s = std::sin(angle) / radius;
  std::array<double, 3> colour, ground;
  for (size_t k = 0; k < 3; ++k) colour[k] = uniform(120, 255), ground[k] = uniform(0, 90);
  std::vector<uint8_t> pixels(size_t(3 * side * side));
  for (int64_t y = 0; y < side; ++y)
    for (int64_t x = 0; x < side; ++x) {
      const double dx = double(x) - cx, dy = double(y) - cy;
      const auto& of = in_shape(shape, c * dx + s * dy, c * dy - s * dx) ? colour : ground;
      for (size_t k = 0; k < 3; ++k)
        pixels[(k * size_t(side) + size_t(y)) * size_t(side) + size_t(x)] =
            uint8_t(std::clamp(of[k] + uniform(-20, 20), 0., 255.));
    }
  return tensor(std::span<const uint8_t>(pixels), {3, side, side});
}

/// Writes what is missing of train/SHAPE/*.jpg and val/SHAPE/*.jpg; several processes may do so together. Returns the folder.
inline std::string drawn_shapes(const std::string& folder) {
  check_runtime(data::has_jpeg() || data::has_png(),
                "[resnet] expected a Tapir that reads JPEG or PNG files, got neither (libjpeg-dev, libpng-dev)");
  for (const auto& [part, count, first] : {std::tuple("train", 150, 0), std::tuple("val", 50, 1000)})
    for (size_t shape = 0; shape < kShapes.size(); ++shape) {
      const std::string place = folder + "/" + part + "/" + kShapes[shape] + "/";
      fs::create_directories(place);
      for (int i = first; i < first + count; ++i) {
        const std::string file = place + std::to_string(i) + (data::has_jpeg() ? ".jpg" : ".png");
        if (!fs::exists(file)) data::write_image(file, draw_shape(shape, uint64_t(i) * 10 + shape, 64));
      }
    }
  return folder;
}

/// Files in folders of classes, or tensors: some of them, each through a transform.
class Pictures {
 public:
  using Source = std::variant<data::ImageFolder, data::TensorDataset<2>>;
  Pictures(Source source, std::function<Tensor(const Tensor&)> transform, int64_t limit)
      : source_(std::move(source)), transform_(std::move(transform)),
        some_(data::permutation(std::visit([](auto& s) { return s.size(); }, source_), 0)) {
    if (limit && limit < size()) some_.resize(size_t(limit));
  }
  int64_t size() const { return int64_t(some_.size()); }
  std::array<Tensor, 2> get(int64_t i) const {
    auto [image, label] = std::visit([&](auto& s) { return s.get(some_.at(size_t(i))); }, source_);
    return {transform_(image), label};
  }
  std::vector<std::string> classes() const {
    if (auto* files = std::get_if<data::ImageFolder>(&source_)) return files->classes();
    return {data::kCifar10Classes.begin(), data::kCifar10Classes.end()};
  }

 private:
  Source source_;
  std::function<Tensor(const Tensor&)> transform_;
  std::vector<int64_t> some_;
};

struct PictureOptions {
  std::string path = {}, augment = "crop";
  int64_t size = 0, workers = std::max(1, get_num_threads() / 2), limit = 0;
  double crop_area = 0.35;
  void add_to(App& app) {
    app.add_option("--data", path,
                   "Folder with train/CLASS/*.jpg and val/CLASS/*.jpg, CIFAR-10, or 'generated' for coloured shapes "
                   "(default: CIFAR-10 of $TAPIR_DATA or datasets, else generated)");
    app.add_option("--size", size, "Height and width that the network sees; 0: 224, of generated pictures 64")
        ->check(whole(0, 4096));
    app.add_option("--augment", augment,
                   "none: the middle; crop: a part and a flip at random; rand: RandAugment of that too")
        ->check(CLI::IsMember({"none", "crop", "rand"}));
    app.add_option("--crop-area", crop_area, "Least share of the picture that a random part shows; ImageNet: 0.08")
        ->check(share());
    app.add_option("--workers", workers, "Threads that prepare images")->check(whole(0, 4096));
    app.add_option("--limit", limit, "Train and validate on so many images only; 0: all")->check(whole(0));
  }
  /// Finds the data and settles the size, first of all.
  void find() {
    if (path.empty()) try {
        path = data::find_cifar10();
      } catch (const RuntimeError&) {
        path = "generated";
      }
    const bool generated = path == "generated";
    if (!size) size = generated ? 64 : 224;
    if (generated) path = drawn_shapes("datasets/shapes");
  }
  /// What is trained on: images of a folder are cropped while they are read, which saves most of the decoding.
  Pictures train() const {
    const tf::RandomResizedCrop crop{.size = size, .scale = {crop_area, 1}};
    const tf::Compose change(tf::RandomHorizontalFlip{}, tf::RandAugment{.num_ops = augment == "rand" ? 2 : 0},
                             tf::Normalize{});
    if (augment == "none") return {source("train", {}), middle(), limit};
    Pictures::Source from = source("train", {.random_crop = crop});
    if (std::holds_alternative<data::ImageFolder>(from)) return {std::move(from), change, limit};
    return {std::move(from), tf::Compose(crop, change), limit};
  }
  Pictures validation() const {
    const std::string part = fs::is_directory(path + "/test") && !fs::is_directory(path + "/val") ? "test" : "val";
    return {source(part, {.decode = {.min_size = larger()}}), middle(), limit};
  }

 private:
  int64_t larger() const { return size * 256 / 224; }
  tf::Compose<tf::Resize, tf::CenterCrop, tf::Normalize> middle() const {
    return tf::Compose(tf::Resize{larger()}, tf::CenterCrop{size}, tf::Normalize{});
  }
  Pictures::Source source(const std::string& part, const data::ImageFolderOptions& how) const {
    const bool folders = fs::is_directory(path + "/" + part);
    const bool cifar = fs::is_regular_file(path) || fs::exists(path + "/data_batch_1.bin") ||
                       fs::exists(path + "/cifar-10-batches-bin");
    return from_option("--data", [&]() -> Pictures::Source {
      check(folders || cifar, "expected a folder with {}/CLASS/1.jpg, or CIFAR-10, got \"{}\"", part, path);
      if (folders) return data::ImageFolder(path + "/" + part, how);
      return data::cifar10(path, part == "train" ? data::Split::Train : data::Split::Test);
    });
  }
};

}  // namespace samples
