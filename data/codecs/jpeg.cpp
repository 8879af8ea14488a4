// libjpeg-turbo. Its errors leave by longjmp, so nothing with a destructor lives in the functions that call it.
#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <jpeglib.h>

#include <jerror.h>

#include "../../core/error.h"
#include "codec.h"

namespace tapir::inline v0::data::codecs {

namespace {

struct Errors {
  jpeg_error_mgr base;
  std::jmp_buf leave;
  char text[JMSG_LENGTH_MAX] = {};
  bool damaged = false;  // a warning: data are missing or wrong
};

void on_error(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  info->err->format_message(info, errors->text);
  std::longjmp(errors->leave, 1);
}
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  for (const int harmless : {JWRN_EXTRANEOUS_DATA, JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR, JWRN_TOO_MUCH_DATA})
    if (info->err->msg_code == harmless) return;
  auto* errors = reinterpret_cast<Errors*>(info->err);
  if (!errors->damaged) info->err->format_message(info, errors->text);
  errors->damaged = true;
}
void silent(j_common_ptr) {}

struct Progress {
  jpeg_progress_mgr base;
  Errors* errors;
  int64_t max_scans;
};
void on_progress(j_common_ptr info) {
  const auto* progress = reinterpret_cast<Progress*>(info->progress);
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(info);
  if (decoder->input_scan_number <= progress->max_scans) return;
  std::snprintf(progress->errors->text, JMSG_LENGTH_MAX, "more than %lld scans",
                static_cast<long long>(progress->max_scans));
  std::longjmp(progress->errors->leave, 1);
}

jpeg_error_mgr* set_errors(Errors& errors) {
  jpeg_std_error(&errors.base);
  errors.base.error_exit = on_error, errors.base.emit_message = on_message, errors.base.output_message = silent;
  return &errors.base;
}

/// CMYK as Adobe writes it, inverted, or plain.
void to_rgb(uint8_t* row, int64_t width, bool inverted) {
  for (int64_t x = 0; x < width; ++x) {
    const uint8_t* from = row + 4 * x;
    const int k = inverted ? from[3] : 255 - from[3];
    for (int c = 0; c < 3; ++c) row[3 * x + c] = uint8_t((inverted ? from[c] : 255 - from[c]) * k / 255);
  }
}

struct Decoder {
  jpeg_decompress_struct info;
  Errors errors;
  Progress progress;
  JDIMENSION top, height, left, width;  // the part, at the scale of the output
  uint8_t* row;                         // where a row does not go to its place at once
};

bool read_header(Decoder& d, std::string_view bytes) {
  if (setjmp(d.errors.leave)) return false;
  jpeg_create_decompress(&d.info);
  jpeg_mem_src(&d.info, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&d.info, TRUE);
  return true;
}

/// False, with errors.text, for a header that is refused.
bool check_header(Decoder& d, const Limits& limits) {
  const auto width = static_cast<long long>(d.info.image_width), height = static_cast<long long>(d.info.image_height);
  char* text = d.errors.text;
  if (width * height > limits.max_pixels)
    return std::snprintf(text, JMSG_LENGTH_MAX, "%lld x %lld pixels, more than the limit of %lld", width, height,
                         static_cast<long long>(limits.max_pixels)),
           false;
  if (d.info.data_precision != 8)
    return std::snprintf(text, JMSG_LENGTH_MAX, "%d bits a sample, 8 are supported", d.info.data_precision), false;
  const bool inside = limits.top >= 0 && limits.left >= 0 && limits.top + limits.height <= height &&
                      limits.left + limits.width <= width;
  if (!inside)
    return std::snprintf(text, JMSG_LENGTH_MAX, "%lld x %lld pixels, which do not hold the part", width, height), false;
  return true;
}

/// Chooses the scale, and begins. Only the columns of the part are made, but for what its blocks take.
bool start(Decoder& d, const Limits& limits) {
  if (setjmp(d.errors.leave)) return false;
  d.progress.base.progress_monitor = on_progress, d.progress.errors = &d.errors,
  d.progress.max_scans = limits.max_scans;
  d.info.progress = &d.progress.base;
  const bool four = d.info.jpeg_color_space == JCS_CMYK || d.info.jpeg_color_space == JCS_YCCK,
             part = limits.height > 0;
  const int64_t height = part ? limits.height : d.info.image_height, width = part ? limits.width : d.info.image_width;
  d.info.out_color_space = four ? JCS_CMYK : JCS_RGB;
  d.info.scale_num = 1, d.info.scale_denom = 1;
  for (unsigned scale = 2; scale <= 8 && limits.min_size > 0; scale *= 2)
    if ((width + scale - 1) / scale >= limits.min_size && (height + scale - 1) / scale >= limits.min_size)
      d.info.scale_denom = scale;
  jpeg_start_decompress(&d.info);
  const auto scale = int64_t(d.info.scale_denom);
  d.top = unsigned(limits.top / scale), d.left = unsigned(limits.left / scale);
  d.height = unsigned(std::min<int64_t>((height + scale - 1) / scale, d.info.output_height - d.top));
  d.width = unsigned(std::min<int64_t>((width + scale - 1) / scale, d.info.output_width - d.left));
  if (d.width < d.info.output_width) {
    JDIMENSION left = d.left, covered = d.width;
    jpeg_crop_scanline(&d.info, &left, &covered);
    d.left -= left;
  }
  if (four || d.width < d.info.output_width)
    d.row = static_cast<uint8_t*>(
        d.info.mem->alloc_large(reinterpret_cast<j_common_ptr>(&d.info), JPOOL_IMAGE, 4 * size_t(d.info.output_width)));
  if (d.top > 0) jpeg_skip_scanlines(&d.info, d.top);
  return true;
}

bool read_rows(Decoder& d, uint8_t* to) {
  if (setjmp(d.errors.leave)) return false;
  const int64_t stride = 3 * int64_t(d.width);
  while (d.info.output_scanline < d.top + d.height) {
    uint8_t* target = to + stride * int64_t(d.info.output_scanline - d.top);
    uint8_t* rows[8] = {d.row ? d.row : target};
    const int count = d.row ? 1 : int(std::min<int64_t>(8, d.top + d.height - d.info.output_scanline));
    for (int i = 1; i < count; ++i) rows[i] = target + i * stride;
    jpeg_read_scanlines(&d.info, rows, unsigned(count));
    if (!d.row) continue;
    if (d.info.out_color_space == JCS_CMYK) to_rgb(d.row, d.info.output_width, d.info.saw_Adobe_marker);
    std::memcpy(target, d.row + 3 * size_t(d.left), size_t(stride));
  }
  if (d.info.output_scanline == d.info.output_height) jpeg_finish_decompress(&d.info);  // is the end there too?
  return true;
}

struct Closing {
  Decoder& d;
  ~Closing() { jpeg_destroy_decompress(&d.info); }
};

struct Encoder {
  jpeg_compress_struct info;
  Errors errors;
  unsigned char* out = nullptr;
  unsigned long bytes = 0;
};
bool encode(Encoder& e, const uint8_t* rgb, int64_t height, int64_t width, int quality) {
  if (setjmp(e.errors.leave)) return false;
  jpeg_create_compress(&e.info);
  jpeg_mem_dest(&e.info, &e.out, &e.bytes);
  e.info.image_width = unsigned(width), e.info.image_height = unsigned(height);
  e.info.input_components = 3, e.info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&e.info);
  jpeg_set_quality(&e.info, quality, TRUE);
  jpeg_start_compress(&e.info, TRUE);
  while (e.info.next_scanline < e.info.image_height) {
    auto* row = const_cast<uint8_t*>(rgb + 3 * width * int64_t(e.info.next_scanline));
    jpeg_write_scanlines(&e.info, &row, 1);
  }
  jpeg_finish_compress(&e.info);
  return true;
}

}  // namespace

void decode_jpeg(std::string_view bytes, const std::string& where, const Limits& limits, Sink& sink) {
  Decoder d{};
  d.info.err = set_errors(d.errors);
  const Closing closing{d};
  bool good = read_header(d, bytes) && check_header(d, limits) && start(d, limits);
  if (good) good = read_rows(d, sink.resize(d.height, d.width));
  if (!good || (d.errors.damaged && !limits.tolerate_truncated))
    fail(ErrorKind::Runtime, "{}: expected a JPEG, the decoder says: {}", where, d.errors.text);
}

std::array<int64_t, 2> jpeg_size(std::string_view bytes, const std::string& where) {
  Decoder d{};
  d.info.err = set_errors(d.errors);
  const Closing closing{d};
  if (!read_header(d, bytes))
    fail(ErrorKind::Runtime, "{}: expected a JPEG, the decoder says: {}", where, d.errors.text);
  return {d.info.image_height, d.info.image_width};
}

std::string encode_jpeg(const uint8_t* rgb, int64_t height, int64_t width, int quality) {
  Encoder e{};
  e.info.err = set_errors(e.errors);
  struct Closing {
    Encoder& e;
    ~Closing() {
      jpeg_destroy_compress(&e.info);
      std::free(e.out);
    }
  } closing{e};
  if (!encode(e, rgb, height, width, quality)) fail(ErrorKind::Runtime, "[encode_jpeg] {}", e.errors.text);
  return {reinterpret_cast<char*>(e.out), size_t(e.bytes)};
}

bool has_jpeg() { return true; }

}  // namespace tapir::inline v0::data::codecs
