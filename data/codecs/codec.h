#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

// What decoding of images asks of the libraries. CMake takes jpeg.cpp or no_jpeg.cpp, png.cpp or no_png.cpp.
namespace tapir::inline v0::data::codecs {

struct Limits {
  int64_t top = 0, left = 0, height = 0, width = 0;  // the part of a JPEG that is wanted; height 0: all of it
  int64_t min_size = 0;  // JPEG may come at 1/2, 1/4 or 1/8 while both sides of the part keep at least this; 0: whole
  bool tolerate_truncated = false;  // what is missing is grey
  int64_t max_pixels = 0;
  int64_t max_scans = 0;
};
/// Receives the size once, before the first row, and says where the rows of RGB (3 bytes a pixel) go.
struct Sink {
  virtual ~Sink() = default;
  virtual uint8_t* resize(int64_t height, int64_t width) = 0;
};

/// Each decodes into the sink. RuntimeErrors begin with `where`.
void decode_jpeg(std::string_view bytes, const std::string& where, const Limits& limits, Sink& sink);
void decode_png(std::string_view bytes, const std::string& where, const Limits& limits, Sink& sink);
/// {height, width} of the header.
std::array<int64_t, 2> jpeg_size(std::string_view bytes, const std::string& where);
/// Packs height x width x 3 bytes.
std::string encode_jpeg(const uint8_t* rgb, int64_t height, int64_t width, int quality);
bool has_jpeg();
bool has_png();

}  // namespace tapir::inline v0::data::codecs
