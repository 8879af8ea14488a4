#include <algorithm>
#include <cmath>
#include <vector>

#include "../core/checks.h"
#include "pixels.h"
#include "transforms.h"

namespace tapir::inline v0::data::transforms {

// Note [Resize]
// Two passes, rows then columns, each a weighted sum over a window of input pixels, in integers of kBits fraction bits,
// rounded to bytes between the passes. Output x has its centre at (x + 0.5) scale of the input; with antialiasing the
// window of the filter grows with the scale.

namespace {

constexpr int kBits = 14;

struct Windows {
  int64_t taps;                  // of the widest
  std::vector<int64_t> first;    // input pixel of each output's window
  std::vector<int32_t> weights;  // (outputs, taps), the unused ones 0
};

constexpr int64_t kMost = 1 << 24;  // pixels of a side

double triangle(double x) { return std::max(0., 1 - std::abs(x)); }
double cubic(double x, double a) {
  x = std::abs(x);
  return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

Windows make_windows(int64_t in, int64_t out, const ResizeOptions& o) {
  const double scale = double(in) / double(out), grow = o.antialias ? std::max(1., scale) : 1;
  const bool bicubic = o.interpolation == Interpolation::Bicubic;
  const double reach = (bicubic ? 2 : 1) * grow;
  Windows w;
  w.taps = std::min(in, 2 * int64_t(std::ceil(reach)) + 1);
  w.first = host_vector<int64_t>("resize", out), w.weights = host_vector<int32_t>("resize", out * w.taps);
  std::vector<double> values(static_cast<size_t>(w.taps));
  for (int64_t i = 0; i < out; ++i) {
    const double centre = (double(i) + 0.5) * scale;
    int32_t* to = &w.weights[size_t(i * w.taps)];
    if (o.interpolation == Interpolation::Nearest) {
      w.first[size_t(i)] = std::min(in - w.taps, int64_t(double(i) * scale));
      to[int64_t(double(i) * scale) - w.first[size_t(i)]] = 1 << kBits;
      continue;
    }
    // Without antialiasing pixels beyond the border count as the border's own.
    const auto low = int64_t(std::floor(centre - reach + 0.5)), high = int64_t(std::floor(centre + reach + 0.5));
    const int64_t first = std::clamp<int64_t>(low, 0, in - w.taps);
    std::fill(values.begin(), values.end(), 0);
    double total = 0;
    for (int64_t x = low; x <= high; ++x) {
      const int64_t at = std::clamp<int64_t>(x, 0, in - 1);
      if (o.antialias && at != x) continue;
      const double d = (double(x) + 0.5 - centre) / grow,
                   v = bicubic ? cubic(d, o.antialias ? -0.5 : -0.75) : triangle(d);
      if (at - first >= w.taps) continue;
      values[size_t(at - first)] += v, total += v;
    }
    w.first[size_t(i)] = first;
    int32_t left = 1 << kBits;
    int64_t largest = 0;
    for (int64_t k = 0; k < w.taps; ++k) {
      left -= to[k] = int32_t(std::lround(values[size_t(k)] / total * (1 << kBits)));
      if (to[k] > to[largest]) largest = k;
    }
    to[largest] += left;  // so that a plain area keeps its value
  }
  return w;
}

uint8_t to_byte(int32_t sum) { return uint8_t(std::clamp((sum + (1 << (kBits - 1))) >> kBits, 0, 255)); }

template <int C> void resize_row(const uint8_t* in, uint8_t* out, const Windows& w, int64_t width) {
  for (int64_t x = 0; x < width; ++x) {
    const int32_t* weights = &w.weights[size_t(x * w.taps)];
    const uint8_t* from = in + w.first[size_t(x)] * C;
    int32_t sums[C] = {};
    for (int64_t k = 0; k < w.taps; ++k)
      for (int c = 0; c < C; ++c) sums[c] += weights[k] * from[k * C + c];
    for (int c = 0; c < C; ++c) out[x * C + c] = to_byte(sums[c]);
  }
}

}  // namespace

Tensor resize(const Tensor& image, int64_t height, int64_t width, const ResizeOptions& o) {
  check(height > 0 && width > 0 && height <= kMost && width <= kMost,
        "[resize] expected a height and width in [1, {}], got {} and {}", kMost, height, width);
  const Pixels in("resize", image);
  check(in.height > 0 && in.width > 0, "[resize] expected an image with pixels, got {}", image);
  if (in.height == height && in.width == width) return image;
  const Windows across = make_windows(in.width, width, o), down = make_windows(in.height, height, o);
  const int64_t row = width * in.channels;
  // Rows of the first pass are made once each, and kept while windows still cover them.
  auto ring = host_vector<uint8_t>("resize", down.taps * row);
  auto sums = host_vector<int32_t>("resize", row);
  const NewPixels out(in.channels, height, width);
  int64_t made = 0;
  for (int64_t y = 0; y < height; ++y) {
    const int64_t first = down.first[size_t(y)], end = first + down.taps;
    for (made = std::max(made, first); made < end; ++made) {
      uint8_t* to = &ring[size_t(made % down.taps * row)];
      if (in.channels == 3) resize_row<3>(in.row(made), to, across, width);
      else resize_row<1>(in.row(made), to, across, width);
    }
    std::fill(sums.begin(), sums.end(), 1 << (kBits - 1));
    for (int64_t k = 0; k < down.taps; ++k) {
      const int32_t weight = down.weights[size_t(y * down.taps + k)];
      const uint8_t* from = &ring[size_t((first + k) % down.taps * row)];
      if (weight == 0) continue;
      for (int64_t x = 0; x < row; ++x) sums[size_t(x)] += weight * from[x];
    }
    uint8_t* to = out.row(y);
    for (int64_t x = 0; x < row; ++x) to[x] = uint8_t(std::clamp(sums[size_t(x)] >> kBits, 0, 255));
  }
  return out.image;
}

Tensor Resize::operator()(const Tensor& image) const {
  check(width >= 0, "[Resize] expected a width from 0 on, got {}", width);
  if (width > 0) return resize(image, size, width, options);
  check(image.defined() && image.dim() == 3 && image.numel() > 0, "[Resize] expected an image (C, H, W), got {}",
        image);
  check(size <= kMost, "[Resize] expected a size in [1, {}], got {}", kMost, size);
  const int64_t h = image.size(1), w = image.size(2);
  return h <= w ? resize(image, size, size * w / h, options) : resize(image, size * h / w, size, options);
}

}  // namespace tapir::inline v0::data::transforms
