#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "../core/tensor.h"

namespace tapir::inline v0::data {

// Images are uint8 (3, height, width), RGB, in the order that decoders write: strides (1, 3 width, 3).

struct ImagePart {
  int64_t top = 0, left = 0, height = 0, width = 0;
};
struct DecodeOptions {
  ImagePart part =
      {};  // of the image, in its own pixels; height 0: all of it. What of a JPEG is not wanted is not decoded
  int64_t min_size = 0;  // a JPEG may come at 1/2, 1/4 or 1/8, much faster, while both sides keep at least this
  bool tolerate_truncated = false;  // damaged data become grey instead of an error
  int64_t max_pixels = int64_t(1) << 27;
  int64_t max_scans = 500;  // of a progressive JPEG
};
/// The image in the bytes of a JPEG or PNG file: grey, CMYK and palettes as RGB, 16 bits as 8, transparency dropped, EXIF
/// orientation ignored. RuntimeError for other formats, damage and images beyond the limits.
Tensor decode_image(std::string_view bytes, const DecodeOptions& options = {});
/// The same from a file; messages name it.
Tensor read_image(const std::string& path, const DecodeOptions& options = {});
/// {height, width} of a JPEG or PNG file, of which only the header is read.
std::array<int64_t, 2> image_size(std::string_view bytes, const std::string& where = "[image_size]");
/// Decoding for bytes that have a name of their own: `where` begins every message.
Tensor decode_image(std::string_view bytes, const std::string& where, const DecodeOptions& options);

struct WriteImageOptions {
  int quality = 90;  // of a JPEG
};
/// Writes a .png (io::save_png), .jpg or .jpeg atomically: uint8, or floats in [0, 1] (clamped, NaN is 0), of shape (3, H, W),
/// (1, H, W) or (H, W). ValueError for another shape or ending.
void write_image(const std::string& path, const Tensor& image, const WriteImageOptions& options = {});

/// True when this Tapir was built with libjpeg, libpng.
bool has_jpeg();
bool has_png();

}  // namespace tapir::inline v0::data
