#include "image.h"

#include "../core/error.h"
#include "../io/file.h"
#include "codecs/codec.h"

namespace tapir::inline v0::data {

namespace {

constexpr int64_t kMaxFile = int64_t(1) << 30;

struct TensorSink final : codecs::Sink {
  uint8_t* resize(int64_t height, int64_t width) override {
    image = empty({height, width, 3}, {.dtype = kUInt8});
    return image.data<uint8_t>();
  }
  Tensor image;
};

constexpr std::string_view kJpeg = "\xff\xd8", kPng = "\x89PNG\r\n\x1a\n";

[[noreturn]] void refuse(std::string_view bytes, const std::string& where) {
  fail(ErrorKind::Runtime, "{}: expected a JPEG or PNG file, got {} bytes that begin with \"{}\"", where,
       int64_t(bytes.size()), io::shown(bytes.substr(0, 8)));
}

}  // namespace

Tensor decode_image(std::string_view bytes, const std::string& where, const DecodeOptions& o) {
  check(o.min_size >= 0 && o.max_pixels > 0 && o.max_scans > 0,
        "[decode_image] expected min_size from 0 on and limits above 0, got {}, {} and {}", o.min_size, o.max_pixels,
        o.max_scans);
  const ImagePart& part = o.part;
  check(part.top >= 0 && part.left >= 0 && part.height >= 0 && (part.width > 0) == (part.height > 0),
        "[decode_image] expected a part with pixels, got {} x {} at ({}, {})", part.height, part.width, part.top,
        part.left);
  codecs::Limits limits = {part.top,     part.left,  part.height, part.width, o.min_size, o.tolerate_truncated,
                           o.max_pixels, o.max_scans};
  if (part.height == 0) limits.top = limits.left = 0;
  TensorSink sink;
  const bool jpeg = bytes.starts_with(kJpeg);
  if (jpeg) codecs::decode_jpeg(bytes, where, limits, sink);
  else if (bytes.starts_with(kPng)) codecs::decode_png(bytes, where, limits, sink);
  else refuse(bytes, where);
  const int64_t height = sink.image.size(0), width = sink.image.size(1);
  const Tensor image = alias(sink.image, {3, height, width}, {1, 3 * width, 3}, 0);
  if (jpeg || part.height == 0) return image;
  check_runtime(part.top <= height - part.height && part.left <= width - part.width,
                "{}: {} x {} pixels, which do not hold the part", where, width, height);
  return image.narrow(1, part.top, part.height).narrow(2, part.left, part.width);
}

std::array<int64_t, 2> image_size(std::string_view bytes, const std::string& where) {
  if (bytes.starts_with(kJpeg)) return codecs::jpeg_size(bytes, where);
  if (!bytes.starts_with(kPng) || bytes.size() < 24) refuse(bytes, where);
  const auto number = [&](size_t at) {
    int64_t v = 0;
    for (size_t i = at; i < at + 4; ++i) v = v << 8 | uint8_t(bytes[i]);
    return v;
  };
  return {number(20), number(16)};
}

Tensor decode_image(std::string_view bytes, const DecodeOptions& options) {
  return decode_image(bytes, "[decode_image]", options);
}

Tensor read_image(const std::string& path, const DecodeOptions& options) {
  return decode_image(io::read_file("read_image", path, kMaxFile), "[read_image] " + path, options);
}

bool has_jpeg() { return codecs::has_jpeg(); }
bool has_png() { return codecs::has_png(); }

}  // namespace tapir::inline v0::data
