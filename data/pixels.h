#pragma once
#include <cstdint>

#include "../core/generator.h"
#include "../core/tensor.h"

// What the transforms share: rows of interleaved bytes, and random numbers one by one.
namespace tapir::inline v0::data {

/// An image as rows of interleaved channels, which the decoders' order and parts of it are already; else a copy.
struct Pixels {
  Tensor keep;
  const uint8_t* data;
  int64_t height, width, channels, stride;  // bytes from row to row
  Pixels(const char* op, const Tensor& image);
  const uint8_t* row(int64_t y) const { return data + y * stride; }
};

/// A new image in the decoders' order, and its bytes.
struct NewPixels {
  Tensor image;
  uint8_t* data;
  int64_t stride;
  NewPixels(int64_t channels, int64_t height, int64_t width);
  uint8_t* row(int64_t y) const { return data + y * stride; }
};

/// f(byte) for each byte, through a table.
template <class F> Tensor map_bytes(const char* op, const Tensor& image, F f) {
  const Pixels in(op, image);
  const NewPixels out(in.channels, in.height, in.width);
  uint8_t table[256];
  for (int v = 0; v < 256; ++v) table[v] = f(v);
  for (int64_t y = 0; y < in.height; ++y)
    for (int64_t x = 0; x < out.stride; ++x) out.row(y)[x] = table[in.row(y)[x]];
  return out.image;
}

/// Numbers from the default generator, one by one.
class Draw {
 public:
  /// [0, 1)
  double uniform() {
    if (lane_ == 4) {
      const auto [seed, offset] = default_generator().take(4);
      block_ = Philox::block(seed, offset), lane_ = 0;
    }
    return Philox::uniform(block_.word[lane_++]);
  }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// 0 to n - 1.
  int64_t below(int64_t n) {
    const auto i = int64_t(uniform() * double(n));
    return i < n ? i : n - 1;
  }

 private:
  Philox::Block block_{};
  int lane_ = 4;
};

}  // namespace tapir::inline v0::data
