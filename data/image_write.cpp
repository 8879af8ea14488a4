#include <algorithm>
#include <cmath>

#include "../core/error.h"
#include "../io/file.h"
#include "../io/png.h"
#include "codecs/codec.h"
#include "image.h"

namespace tapir::inline v0::data {

namespace {

uint8_t to_byte(double v) { return v > 0 ? uint8_t(std::min(v, 1.0) * 255 + 0.5) : 0; }

/// Height x width x 3 bytes of any image that write_image takes.
std::string rgb_bytes(const Tensor& image, int64_t& height, int64_t& width) {
  check(image.defined() && (image.dim() == 2 || (image.dim() == 3 && (image.size(0) == 1 || image.size(0) == 3))) &&
            image.numel() > 0 && (image.dtype() == kUInt8 || image.is_floating_point()),
        "[write_image] expected uint8 or floats of shape (3, H, W), (1, H, W) or (H, W) with pixels, got {}", image);
  const int64_t rank = image.dim(), channels = rank == 3 ? image.size(0) : 1;
  height = image.size(rank - 2), width = image.size(rank - 1);
  const auto values = image.to_vector<double>();
  const bool bytes = image.dtype() == kUInt8;
  std::string out(size_t(height * width * 3), '\0');
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < height * width; ++i) {
      const double v = values[size_t((channels == 3 ? c : 0) * height * width + i)];
      out[size_t(3 * i + c)] = char(bytes ? uint8_t(v) : to_byte(v));
    }
  return out;
}

}  // namespace

void write_image(const std::string& path, const Tensor& image, const WriteImageOptions& options) {
  const bool png = path.ends_with(".png"), jpeg = path.ends_with(".jpg") || path.ends_with(".jpeg");
  check(png || jpeg, "[write_image] expected a name that ends in .png, .jpg or .jpeg, got {}", path);
  check(options.quality >= 1 && options.quality <= 100, "[write_image] expected a quality from 1 to 100, got {}",
        options.quality);
  if (png) return io::save_png(path, image);
  int64_t height = 0, width = 0;
  const std::string rgb = rgb_bytes(image, height, width);
  constexpr int64_t kMostPixels = 65500;  // of libjpeg
  check(height <= kMostPixels && width <= kMostPixels,
        "[write_image] expected at most {} pixels a side in a JPEG, got {} x {}", kMostPixels, height, width);
  const auto* from = reinterpret_cast<const uint8_t*>(rgb.data());
  io::write_file("write_image", path, codecs::encode_jpeg(from, height, width, options.quality));
}

}  // namespace tapir::inline v0::data
