#include "png.h"

#include <zlib.h>

#include <cstring>

#include "../core/modes.h"
#include "../ops/ops.h"
#include "file.h"

namespace tapir::inline v0::io {

static void append_u32(std::string& out, uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8) out += char(v >> shift & 255);
}
static void append_chunk(std::string& out, const char* type, const std::string& data) {
  append_u32(out, uint32_t(data.size()));
  const size_t from = out.size();
  out.append(type, 4) += data;
  append_u32(out, uint32_t(crc32(0, reinterpret_cast<const Bytef*>(out.data() + from), uInt(out.size() - from))));
}

/// (H, W, C) bytes.
static Tensor pixels_of(const Tensor& image) {
  NoGrad guard;
  check(image.defined() && (image.dim() == 2 || image.dim() == 3),
        "[save_png] expected an image (C, H, W) or (H, W), got {}", image);
  Tensor x = image.detach().cpu();
  if (x.dim() == 2) x = x.unsqueeze(0);
  const int64_t channels = x.size(0);
  check(channels == 1 || channels == 3 || channels == 4, "[save_png] expected 1, 3 or 4 channels, got {}", image);
  check(x.numel() > 0 && x.size(1) < (1 << 24) && x.size(2) < (1 << 24),
        "[save_png] expected 1 to 2^24 pixels a side, got {}", image);
  if (x.dtype() == kBool) x = x.to(kUInt8) * 255;
  if (is_floating(x.dtype())) x = round(clamp(nan_to_num(x.to(kFloat32)), 0, 1) * 255).to(kUInt8);
  check(x.dtype() == kUInt8, "[save_png] expected uint8, or floats in [0, 1], got {}", image);
  return contiguous(permute(x, {1, 2, 0}));
}

std::string encode_png(const Tensor& image) {
  const Tensor x = pixels_of(image);
  const int64_t height = x.size(0), width = x.size(1), channels = x.size(2), row = width * channels;
  const char* from = static_cast<const char*>(x.data_ptr());
  std::string raw;
  raw.reserve(size_t(height * (row + 1)));
  for (int64_t y = 0; y < height; ++y) {  // filter 2: each byte less the one above
    raw += char(y ? 2 : 0);
    for (int64_t i = 0; i < row; ++i) raw += char(from[y * row + i] - (y ? from[(y - 1) * row + i] : 0));
  }
  std::string packed(compressBound(uLong(raw.size())), '\0');
  uLongf size = uLongf(packed.size());
  check_runtime(compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(raw.data()),
                          uLong(raw.size()), 6) == Z_OK,
                "[save_png] zlib could not compress {} bytes", int64_t(raw.size()));
  packed.resize(size);
  std::string header;
  append_u32(header, uint32_t(width)), append_u32(header, uint32_t(height));
  header += {char(8), char(channels == 1 ? 0 : channels == 3 ? 2 : 6), 0, 0, 0};
  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header), append_chunk(out, "IDAT", packed), append_chunk(out, "IEND", "");
  return out;
}

void save_png(const std::string& path, const Tensor& image) { write_file("save_png", path, encode_png(image)); }

Tensor make_grid(const Tensor& images, int64_t columns, int64_t padding, double value) {
  check(images.defined() && images.dim() == 4 && images.size(0) > 0,
        "[make_grid] expected images (N, C, H, W) with N above 0, got {}", images);
  check(columns > 0 && padding >= 0 && padding <= 1 << 24,
        "[make_grid] expected columns above 0 and padding from 0 to 2^24, got {} and {}", columns, padding);
  check_fits("make_grid", value, images.dtype());
  NoGrad guard;
  const int64_t n = images.size(0), across = std::min(columns, n), down = (n + across - 1) / across;
  const int64_t h = images.size(2) + padding, w = images.size(3) + padding;
  Tensor grid = full({images.size(1), down * h + padding, across * w + padding}, value,
                     {.dtype = images.dtype(), .device = images.device()});
  for (int64_t i = 0; i < n; ++i)
    grid.narrow(1, i / across * h + padding, images.size(2))
        .narrow(2, i % across * w + padding, images.size(3))
        .copy_(images.select(0, i));
  return grid;
}

}  // namespace tapir::inline v0::io
