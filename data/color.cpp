#include <algorithm>
#include <cmath>

#include "pixels.h"
#include "transforms.h"

namespace tapir::inline v0::data::transforms {

namespace {

uint8_t to_byte(double v) { return uint8_t(std::clamp(v, 0., 255.)); }
uint8_t grey(const uint8_t* p) { return uint8_t(0.2989f * float(p[0]) + 0.587f * float(p[1]) + 0.114f * float(p[2])); }

/// factor a + (1 - factor) b in float32, each product rounded by itself, as torchvision does.
uint8_t blend(double a, double b, double factor) {
  const float x = float(a * double(float(factor))), y = float(b * double(float(1 - factor)));
  return uint8_t(std::clamp(x + y, 0.f, 255.f));
}

void check_factor(const char* op, double factor) {
  check(factor >= 0 && factor <= 1e6, "[{}] expected a factor from 0 to 1000000, got {}", op, factor);
}

/// table[channel][byte], filled by make(histogram, table) for each channel.
template <class F> Tensor map_channels(const char* op, const Tensor& image, F make) {
  const Pixels in(op, image);
  const NewPixels out(in.channels, in.height, in.width);
  for (int64_t c = 0; c < in.channels; ++c) {
    int64_t counts[256] = {};
    uint8_t table[256];
    for (int64_t y = 0; y < in.height; ++y)
      for (int64_t x = 0; x < in.width; ++x) ++counts[in.row(y)[x * in.channels + c]];
    for (int v = 0; v < 256; ++v) table[v] = uint8_t(v);
    make(counts, table);
    for (int64_t y = 0; y < in.height; ++y)
      for (int64_t x = 0; x < in.width; ++x) out.row(y)[x * in.channels + c] = table[in.row(y)[x * in.channels + c]];
  }
  return out.image;
}

/// f(from, to) for each pixel of three bytes.
template <class F> Tensor map_pixels(const char* op, const Tensor& image, F f) {
  const Pixels in(op, image);
  if (in.channels == 1) return image;  // grey stays grey
  const NewPixels out(3, in.height, in.width);
  for (int64_t y = 0; y < in.height; ++y)
    for (int64_t x = 0; x < in.width; ++x) f(in.row(y) + 3 * x, out.row(y) + 3 * x);
  return out.image;
}

void turn_hue(const uint8_t* from, uint8_t* to, float turn) {
  const float r = float(from[0]) / 255, g = float(from[1]) / 255, b = float(from[2]) / 255;
  const float high = std::max({r, g, b}), low = std::min({r, g, b}), range = high - low;
  if (range == 0) {
    std::copy(from, from + 3, to);
    return;
  }
  float h = (high == r ? (g - b) / range : high == g ? 2 + (b - r) / range : 4 + (r - g) / range) / 6 + turn;
  h -= std::floor(h);
  const float s = range / high, at = h * 6, part = at - std::floor(at);
  const float p = high * (1 - s), q = high * (1 - s * part), t = high * (1 - s * (1 - part));
  const float colors[6][3] = {{high, t, p}, {q, high, p}, {p, high, t}, {p, q, high}, {t, p, high}, {high, p, q}};
  for (int c = 0; c < 3; ++c) to[c] = to_byte(double(colors[int(at) % 6][c]) * 255 + 0.5);
}

}  // namespace

Tensor adjust_brightness(const Tensor& image, double factor) {
  check_factor("adjust_brightness", factor);
  return map_bytes("adjust_brightness", image, [&](int v) { return blend(v, 0, factor); });
}

Tensor adjust_contrast(const Tensor& image, double factor) {
  check_factor("adjust_contrast", factor);
  const Pixels in("adjust_contrast", image);
  int64_t total = 0;
  for (int64_t y = 0; y < in.height; ++y)
    for (int64_t x = 0; x < in.width; ++x) total += in.channels == 3 ? grey(in.row(y) + 3 * x) : in.row(y)[x];
  const auto mean = float(double(total) / double(std::max<int64_t>(in.height * in.width, 1)));
  return map_bytes("adjust_contrast", image, [&](int v) { return blend(v, double(mean), factor); });
}

Tensor adjust_saturation(const Tensor& image, double factor) {
  check_factor("adjust_saturation", factor);
  return map_pixels("adjust_saturation", image, [&](const uint8_t* from, uint8_t* to) {
    for (int c = 0; c < 3; ++c) to[c] = blend(from[c], grey(from), factor);
  });
}

Tensor adjust_hue(const Tensor& image, double turn) {
  check(turn >= -0.5 && turn <= 0.5, "[adjust_hue] expected a turn from -0.5 to 0.5, got {}", turn);
  return map_pixels("adjust_hue", image, [&](const uint8_t* from, uint8_t* to) { turn_hue(from, to, float(turn)); });
}

/// Smoothed by (1 1 1; 1 5 1; 1 1 1) / 13 but for the border.
Tensor adjust_sharpness(const Tensor& image, double factor) {
  check_factor("adjust_sharpness", factor);
  const Pixels in("adjust_sharpness", image);
  if (in.height <= 2 || in.width <= 2) return image;
  const NewPixels out(in.channels, in.height, in.width);
  const int64_t c = in.channels;
  for (int64_t y = 0; y < in.height; ++y)
    for (int64_t i = 0; i < out.stride; ++i) {
      int sum = 4 * in.row(y)[i];
      const bool inside = y > 0 && y < in.height - 1 && i >= c && i < out.stride - c;
      for (int64_t dy = -1; inside && dy <= 1; ++dy)
        for (int64_t dx = -c; dx <= c; dx += c) sum += in.row(y + dy)[i + dx];
      out.row(y)[i] = blend(in.row(y)[i], inside ? std::nearbyint(sum / 13.) : in.row(y)[i], factor);
    }
  return out.image;
}

Tensor posterize(const Tensor& image, int bits) {
  check(bits >= 0 && bits <= 8, "[posterize] expected 0 to 8 bits, got {}", bits);
  return map_bytes("posterize", image, [&](int v) { return uint8_t(v & ~(0xff >> bits)); });
}

Tensor solarize(const Tensor& image, int threshold) {
  return map_bytes("solarize", image, [&](int v) { return uint8_t(v >= threshold ? 255 - v : v); });
}

Tensor autocontrast(const Tensor& image) {
  return map_channels("autocontrast", image, [](const int64_t* counts, uint8_t* table) {
    int low = 0, high = 255;
    while (low < 255 && !counts[low]) ++low;
    while (high > 0 && !counts[high]) --high;
    const float scale = 255.f / float(high - low);  // float, as torchvision: 50 * 5.1 is 255
    for (int v = low; v <= high && low < high; ++v) table[v] = to_byte(double(float(v - low) * scale));
  });
}

/// Pillow's: the count below a value, over the size of a step.
Tensor equalize(const Tensor& image) {
  return map_channels("equalize", image, [](const int64_t* counts, uint8_t* table) {
    int64_t total = 0, last = 0;
    for (int v = 0; v < 256; ++v) total += counts[v], last = counts[v] ? counts[v] : last;
    const int64_t step = (total - last) / 255;
    if (step == 0) return;
    int64_t below = step / 2;
    for (int v = 0; v < 256; ++v) table[v] = uint8_t(std::min<int64_t>(below / step, 255)), below += counts[v];
  });
}

}  // namespace tapir::inline v0::data::transforms
