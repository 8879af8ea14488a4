#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "../core/tensor.h"
#include "image.h"

// Images are uint8 (C, H, W) tensors of 1 or 3 channels, best in the order of decoders (data/image.h), and stay so until
// Normalize. Each transform is a value that is called: Compose{RandomCrop{32, 4}, RandomHorizontalFlip{}, Normalize{}}.
// Random ones draw from the default generator, which a loader seeds for each sample; what is refused has drawn nothing.
namespace tapir::inline v0::data::transforms {

enum class Interpolation : uint8_t { Nearest, Bilinear, Bicubic };
struct ResizeOptions {
  Interpolation interpolation = Interpolation::Bilinear;
  bool antialias = true;  // average over what a smaller pixel covers, as Pillow does
};
/// uint8 (C, height, width).
Tensor resize(const Tensor& image, int64_t height, int64_t width, const ResizeOptions& options = {});
/// The part from (top, left); no copy. ValueError where it leaves the image.
Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width);
/// The middle part, by torchvision's rounding; a smaller image is padded with zeros first.
Tensor center_crop(const Tensor& image, int64_t height, int64_t width);
/// `fill` on every side.
Tensor pad(const Tensor& image, int64_t margin, int fill = 0);
Tensor hflip(const Tensor& image);
Tensor vflip(const Tensor& image);
/// Blends with black, the mean grey, the grey image; 1 changes nothing. torchvision's definitions.
Tensor adjust_brightness(const Tensor& image, double factor);
Tensor adjust_contrast(const Tensor& image, double factor);
Tensor adjust_saturation(const Tensor& image, double factor);
/// Turns the hue by a part of the circle, in [-0.5, 0.5].
Tensor adjust_hue(const Tensor& image, double turn);
/// Blends with the smoothed image: 0 smooth, 1 nothing, 2 sharp.
Tensor adjust_sharpness(const Tensor& image, double factor);
/// Keeps that many upper bits.
Tensor posterize(const Tensor& image, int bits);
/// Inverts the values from `threshold` on.
Tensor solarize(const Tensor& image, int threshold);
/// Stretches each channel to the whole range.
Tensor autocontrast(const Tensor& image);
/// Spreads each channel's histogram evenly.
Tensor equalize(const Tensor& image);
/// Pixel (x, y) is the nearest one of (m0 x + m1 y + m2, m3 x + m4 y + m5), both about the centre; zeros outside.
Tensor affine(const Tensor& image, const std::array<double, 6>& matrix);

using Means = std::array<double, 3>;
inline constexpr Means kImageNetMean = {0.485, 0.456, 0.406}, kImageNetStd = {0.229, 0.224, 0.225};

/// One after the other.
template <class... T> struct Compose {
  std::tuple<T...> steps;
  explicit Compose(T... t) : steps(std::move(t)...) {}
  Tensor operator()(Tensor image) const {
    std::apply([&](const auto&... step) { ((image = step(image)), ...); }, steps);
    return image;
  }
};
template <class... T> Compose(T...) -> Compose<T...>;

/// The shorter side becomes `size`; with a width, exactly size x width.
struct Resize {
  int64_t size;
  int64_t width = 0;
  ResizeOptions options = {};
  Tensor operator()(const Tensor& image) const;
};
struct CenterCrop {
  int64_t size;
  Tensor operator()(const Tensor& image) const { return center_crop(image, size, size); }
};
/// A random size x size part of the image with `padding` zeros around it.
struct RandomCrop {
  int64_t size;
  int64_t padding = 0;
  Tensor operator()(const Tensor& image) const;
};
/// A random part of that share of the area and that ratio of sides, resized: Szegedy et al. 2014, arXiv 1409.4842.
struct RandomResizedCrop {
  int64_t size;
  std::array<double, 2> scale = {0.08, 1};
  std::array<double, 2> ratio = {3. / 4, 4. / 3};
  ResizeOptions options = {};
  Tensor operator()(const Tensor& image) const;
  /// The same of an image file: only the part is decoded, at the least scale that serves.
  Tensor read(const std::string& path, const DecodeOptions& decode = {}) const;
  /// The part of an image of that height and width.
  ImagePart draw(int64_t height, int64_t width) const;
};
struct RandomHorizontalFlip {
  double p = 0.5;
  Tensor operator()(const Tensor& image) const;
};
struct RandomVerticalFlip {
  double p = 0.5;
  Tensor operator()(const Tensor& image) const;
};
/// Factors uniform in [1 - x, 1 + x], the hue's turn in [-hue, hue], in random order.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
  Tensor operator()(const Tensor& image) const;
};
/// num_ops random operations of one magnitude (0 to 30), torchvision's: Cubuk et al. 2019, arXiv 1909.13719.
struct RandAugment {
  int64_t num_ops = 2;
  int64_t magnitude = 9;
  Tensor operator()(const Tensor& image) const;
};
/// A rectangle of that share of the area set to `value`, with probability p: Zhong et al. 2017, arXiv 1708.04896. Any dtype.
struct RandomErasing {
  double p = 0.5;
  std::array<double, 2> scale = {0.02, 0.33};
  std::array<double, 2> ratio = {0.3, 3.3};
  double value = 0;
  Tensor operator()(const Tensor& image) const;
};
/// A square of zeros about a random centre, cut at the borders: DeVries and Taylor 2017, arXiv 1708.04552. Any dtype.
struct Cutout {
  int64_t size;
  Tensor operator()(const Tensor& image) const;
};
/// float32, row-major: (x / 255 - mean) / std for each channel (of one channel: the first).
struct Normalize {
  Means mean = kImageNetMean;
  Means std = kImageNetStd;
  Tensor operator()(const Tensor& image) const;
};

/// Batches mixed with themselves, one place on: images float (N, ...), labels int64 (N,) -> images, labels (N, classes).
/// One share from Beta(alpha, alpha) for the batch. Mixup: Zhang et al. 2017, arXiv 1710.09412.
std::array<Tensor, 2> mixup(const Tensor& images, const Tensor& labels, int64_t classes, double alpha = 0.2);
/// A rectangle of the next image instead: Yun et al. 2019, arXiv 1905.04899.
std::array<Tensor, 2> cutmix(const Tensor& images, const Tensor& labels, int64_t classes, double alpha = 1);

}  // namespace tapir::inline v0::data::transforms
