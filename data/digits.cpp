#include "digits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "../core/generator.h"
#include "../core/parallel.h"
#include "mnist.h"
#include "sampler.h"

namespace tapir::inline v0::data {

namespace {

struct Point {
  float x, y;
};
/// A stroke: an elliptic arc of `sweep` radians from `start` (0 is right, pi/2 is down) about (cx, cy), or, with ry
/// below 0, the straight line from (cx, cy) to (rx, start).
struct Stroke {
  float cx, cy, rx, ry, start, sweep;
};
constexpr float kPi = std::numbers::pi_v<float>;
constexpr Stroke line(float x0, float y0, float x1, float y1) { return {x0, y0, x1, -1, y1, 0}; }
constexpr Stroke arc(float cx, float cy, float rx, float ry, float from, float sweep) {
  return {cx, cy, rx, ry, from * kPi, sweep * kPi};
}

/// The digits in the square [-1, 1]^2, y down; several ways to write some of them.
constexpr int kGlyphs = 14, kStrokes = 4;
struct Glyph {
  int digit;
  Stroke strokes[kStrokes];
};
constexpr Glyph kGlyph[kGlyphs] = {
    {0, {arc(0, 0, .55f, .85f, 0, 2)}},
    {1, {line(0, -.85f, 0, .85f)}},
    {1, {line(0, -.85f, 0, .85f), line(0, -.85f, -.35f, -.5f)}},
    {2, {arc(0, -.4f, .5f, .45f, -1, 1.2f), line(.4f, -.14f, -.55f, .85f), line(-.55f, .85f, .6f, .85f)}},
    {3, {arc(-.05f, -.42f, .48f, .42f, -.9f, 1.4f), arc(-.05f, .42f, .55f, .45f, -.5f, 1.4f)}},
    {4, {line(.25f, -.85f, -.6f, .25f), line(-.6f, .25f, .65f, .25f), line(.3f, -.3f, .3f, .85f)}},
    {4, {line(-.45f, -.8f, -.5f, .1f), line(-.5f, .1f, .5f, .1f), line(.5f, -.85f, .45f, .85f)}},
    {5, {line(.5f, -.85f, -.4f, -.85f), line(-.4f, -.85f, -.45f, -.1f), arc(-.05f, .35f, .55f, .5f, -.78f, 1.5f)}},
    {6, {arc(.45f, .3f, .95f, 1.15f, -.5f, -.5f), arc(0, .4f, .5f, .45f, 0, 2)}},
    {7, {line(-.55f, -.8f, .55f, -.8f), line(.55f, -.8f, -.15f, .85f)}},
    {7, {line(-.55f, -.8f, .55f, -.8f), line(.55f, -.8f, -.1f, .85f), line(-.2f, .05f, .45f, .05f)}},
    {8, {arc(0, -.42f, .42f, .42f, 0, 2), arc(0, .42f, .52f, .43f, 0, 2)}},
    {9, {arc(0, -.38f, .48f, .45f, 0, 2), line(.48f, -.38f, .35f, .85f)}},
    {9, {arc(0, -.38f, .48f, .45f, 0, 2), arc(-.35f, -.1f, .83f, .95f, -.1f, .5f)}},
};
constexpr int kSteps = 14;  // segments of one arc

/// Numbers of one image.
class Dice {
 public:
  Dice(uint64_t seed, int64_t image) : seed_(mix_seed(seed, uint64_t(image))) {}
  float uniform(float low, float high) {
    if (lane_ == 4) block_ = Philox::block(seed_, counter_++), lane_ = 0;
    return low + (high - low) * Philox::uniform(block_.word[lane_++]);
  }
  /// Near a standard normal: a sum of three uniforms.
  float bell() { return uniform(-1, 1) + uniform(-1, 1) + uniform(-1, 1); }

 private:
  uint64_t seed_, counter_ = 0;
  Philox::Block block_{};
  int lane_ = 4;
};

/// What is done to a glyph: an affine map, then a smooth wobble.
struct Distortion {
  float a, b, c, d, x, y;
  float wobble[8];
  explicit Distortion(Dice& dice) {
    const float angle = dice.uniform(-.22f, .22f), slant = dice.uniform(-.1f, .45f);
    const float sx = dice.uniform(7.2f, 9.8f), sy = dice.uniform(8.6f, 10.6f), co = std::cos(angle),
                si = std::sin(angle);
    a = co * sx, b = (-co * slant - si) * sy, c = si * sx, d = (co - si * slant) * sy;
    x = 13.5f + dice.uniform(-1.5f, 1.5f), y = 13.5f + dice.uniform(-1.5f, 1.5f);
    for (int i = 0; i < 8; ++i) wobble[i] = i % 4 < 2 ? .08f * dice.bell() : dice.uniform(0, 2 * kPi);
  }
  Point operator()(Point p) const {
    const float u = p.x + wobble[0] * std::sin(2.1f * p.y + wobble[2]) + wobble[1] * std::sin(3.7f * p.x + wobble[3]);
    const float v = p.y + wobble[4] * std::sin(2.1f * p.x + wobble[6]) + wobble[5] * std::sin(3.7f * p.y + wobble[7]);
    return {a * u + b * v + x, c * u + d * v + y};
  }
};

Point at(const Stroke& s, float t) {
  if (s.ry < 0) return {s.cx + (s.rx - s.cx) * t, s.cy + (s.start - s.cy) * t};
  const float angle = s.start + s.sweep * t;
  return {s.cx + s.rx * std::cos(angle), s.cy + s.ry * std::sin(angle)};
}

float squared_distance(Point p, Point a, Point b) {
  const float dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
  const float t = length > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length, 0.f, 1.f) : 0.f;
  const float ex = a.x + t * dx - p.x, ey = a.y + t * dy - p.y;
  return ex * ex + ey * ey;
}

/// Ink of a segment: for each pixel near it, the least distance to any segment so far.
void draw_segment(float (&distance)[28 * 28], Point a, Point b, float reach) {
  const int x0 = std::max(0, int(std::min(a.x, b.x) - reach)), x1 = std::min(27, int(std::max(a.x, b.x) + reach) + 1);
  const int y0 = std::max(0, int(std::min(a.y, b.y) - reach)), y1 = std::min(27, int(std::max(a.y, b.y) + reach) + 1);
  for (int y = y0; y <= y1; ++y)
    for (int x = x0; x <= x1; ++x)
      distance[y * 28 + x] = std::min(distance[y * 28 + x], squared_distance({float(x), float(y)}, a, b));
}

int draw_digit(uint8_t* pixels, uint64_t seed, int64_t image) {
  Dice dice(seed, image);
  const Glyph& glyph = kGlyph[std::min(kGlyphs - 1, int(dice.uniform(0, kGlyphs)))];
  const Distortion distort(dice);
  const float radius = dice.uniform(.7f, 1.7f), soft = dice.uniform(.6f, 1.f), ink = dice.uniform(200, 255),
              noise = dice.uniform(0, 14);
  float distance[28 * 28];
  std::fill_n(distance, 28 * 28, 1e9f);
  for (const Stroke& stroke : glyph.strokes) {
    if (stroke.rx == 0 && stroke.ry == 0) break;
    // Each end may be a bit short or long; closed loops may stay open.
    const float from = .03f * dice.bell(), to = 1 + .03f * dice.bell();
    Point last = distort(at(stroke, from));
    for (int i = 1; i <= kSteps; ++i) {
      const Point next = distort(at(stroke, from + (to - from) * float(i) / kSteps));
      draw_segment(distance, last, next, radius + soft + 1);
      last = next;
    }
  }
  for (int i = 0; i < 28 * 28; ++i) {
    const float cover = std::clamp((radius + soft - std::sqrt(distance[i])) / (2 * soft), 0.f, 1.f);
    pixels[i] = uint8_t(std::clamp(ink * cover + noise * std::abs(dice.bell()) * (cover > 0 ? 1.f : .3f), 0.f, 255.f));
  }
  return glyph.digit;
}

}  // namespace

TensorDataset<2> synthetic_digits(int64_t count, uint64_t seed, const MnistOptions& options) {
  check(count >= 0, "[synthetic_digits] expected a count from 0 on, got {}", count);
  const Tensor images = empty({count, 1, 28, 28}, {.dtype = kUInt8}), labels = empty({count}, {.dtype = kInt64});
  auto* pixels = count ? images.data<uint8_t>() : nullptr;
  auto* digits = count ? labels.data<int64_t>() : nullptr;
  parallel_for(count, 64, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) digits[i] = draw_digit(pixels + i * 28 * 28, seed, i);
  });
  return TensorDataset(options.normalize ? normalize_digits(images) : images, labels);
}

}  // namespace tapir::inline v0::data
