// libpng. Its errors leave by longjmp, so nothing with a destructor lives in the functions that call it.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <png.h>

#include "../../core/error.h"
#include "codec.h"

namespace tapir::inline v0::data::codecs {

namespace {

constexpr unsigned kMaxSide = 1 << 20, kMaxChunk = 1 << 26;

struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const char* at = nullptr;
  size_t left = 0;
  char text[200] = {};
  std::jmp_buf leave;
};

void on_error(png_structp png, png_const_charp message) {
  auto* d = static_cast<Decoder*>(png_get_error_ptr(png));
  std::snprintf(d->text, sizeof d->text, "%s", message);
  std::longjmp(d->leave, 1);
}
void on_warning(png_structp, png_const_charp) {}
void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto* d = static_cast<Decoder*>(png_get_io_ptr(png));
  if (count > d->left) png_error(png, "the file ends too early");
  std::memcpy(to, d->at, count);
  d->at += count, d->left -= count;
}

bool start(Decoder& d, const Limits& limits) {
  if (setjmp(d.leave)) return false;
  d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, on_error, on_warning);
  if (d.png) d.info = png_create_info_struct(d.png);
  if (!d.info) return false;
  png_set_user_limits(d.png, kMaxSide, kMaxSide);
  png_set_chunk_malloc_max(d.png, kMaxChunk);
  png_set_chunk_cache_max(d.png, 100);
  png_set_crc_action(d.png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_set_read_fn(d.png, &d, read_bytes);
  png_read_info(d.png, d.info);
  const int64_t pixels = int64_t(png_get_image_width(d.png, d.info)) * png_get_image_height(d.png, d.info);
  if (pixels > limits.max_pixels) {
    std::snprintf(d.text, sizeof d.text, "%lld pixels, more than the limit of %lld", static_cast<long long>(pixels),
                  static_cast<long long>(limits.max_pixels));
    return false;
  }
  png_set_expand(d.png);  // palettes and 1, 2, 4 bits to bytes
  png_set_strip_16(d.png);
  png_set_gray_to_rgb(d.png);
  png_set_strip_alpha(d.png);
  png_set_interlace_handling(d.png);
  png_read_update_info(d.png, d.info);
  return true;
}

bool read_rows(Decoder& d, uint8_t* to) {
  if (setjmp(d.leave)) return false;
  const int64_t height = png_get_image_height(d.png, d.info), stride = 3 * int64_t(png_get_image_width(d.png, d.info));
  if (int64_t(png_get_rowbytes(d.png, d.info)) != stride) png_error(d.png, "a row is not 3 bytes a pixel");
  const int passes = png_get_interlace_type(d.png, d.info) == PNG_INTERLACE_NONE ? 1 : 7;
  for (int pass = 0; pass < passes; ++pass)
    for (int64_t y = 0; y < height; ++y) png_read_row(d.png, to + y * stride, nullptr);
  png_read_end(d.png, nullptr);
  return true;
}

}  // namespace

void decode_png(std::string_view bytes, const std::string& where, const Limits& limits, Sink& sink) {
  Decoder d;
  d.at = bytes.data(), d.left = bytes.size();
  struct Closing {
    Decoder& d;
    ~Closing() { png_destroy_read_struct(&d.png, &d.info, nullptr); }
  } closing{d};
  bool good = start(d, limits);
  if (good) {
    const int64_t height = png_get_image_height(d.png, d.info), width = png_get_image_width(d.png, d.info);
    uint8_t* to = sink.resize(height, width);
    std::memset(to, 0, size_t(height * width * 3));
    good = read_rows(d, to) || (limits.tolerate_truncated && d.left == 0);
  }
  if (!good) fail(ErrorKind::Runtime, "{}: expected a PNG, the decoder says: {}", where, d.text);
}

bool has_png() { return true; }

}  // namespace tapir::inline v0::data::codecs
