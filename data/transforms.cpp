#include "transforms.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "../core/fail_as.h"
#include "../io/file.h"
#include "../ops/embedding.h"
#include "../ops/ops.h"
#include "pixels.h"

namespace tapir::inline v0::data {

static void check_image(const char* op, const Tensor& image) {
  check(image.defined() && image.dtype() == kUInt8 && image.dim() == 3 && (image.size(0) == 1 || image.size(0) == 3) &&
            image.device() == kCPU,
        "[{}] expected an image: uint8 (3, H, W) or (1, H, W) on the CPU, got {}", op, image);
}

Pixels::Pixels(const char* op, const Tensor& image) : keep(image) {
  check_image(op, image);
  channels = image.size(0), height = image.size(1), width = image.size(2);
  const auto fits = [&] {
    return (channels == 1 || keep.stride(0) == 1) && (width == 1 || keep.stride(2) == channels);
  };
  if (!fits()) keep = image.permute({1, 2, 0}).contiguous().permute({2, 0, 1});
  stride = height > 1 ? keep.stride(1) : width * channels;
  data = image.numel() ? keep.data<uint8_t>() : nullptr;
}

NewPixels::NewPixels(int64_t channels, int64_t height, int64_t width) : stride(width * channels) {
  const Tensor rows = empty({height, width, channels}, {.dtype = kUInt8});
  data = rows.data<uint8_t>();
  image = alias(rows, {channels, height, width}, {1, stride, channels}, 0);
}

namespace transforms {
namespace {

constexpr int64_t kMostMargin = 1 << 20;

void check_probability(const char* op, double p) {
  check(p >= 0 && p <= 1, "[{}] expected p in [0, 1], got {}", op, p);
}
/// What a size is drawn from: a share of the area, or a ratio of the sides.
void check_bounds(const char* op, const std::array<double, 2>& scale, const std::array<double, 2>& ratio) {
  check(scale[0] >= 0 && scale[0] <= scale[1] && scale[1] <= 1e6,
        "[{}] expected a scale from low to high within [0, 1000000], got {} to {}", op, scale[0], scale[1]);
  check(ratio[0] >= 1e-6 && ratio[0] <= ratio[1] && ratio[1] <= 1e6,
        "[{}] expected a ratio from low to high within [0.000001, 1000000], got {} to {}", op, ratio[0], ratio[1]);
}

}  // namespace

Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  check(image.defined() && image.dim() == 3 && top >= 0 && left >= 0 && height >= 0 && width >= 0 &&
            height <= image.size(1) && width <= image.size(2) && top <= image.size(1) - height &&
            left <= image.size(2) - width,
        "[crop] expected a part of the image, got {} x {} at ({}, {}) of {}", height, width, top, left, image);
  return image.narrow(1, top, height).narrow(2, left, width);
}

Tensor pad(const Tensor& image, int64_t margin, int fill) {
  const Pixels in("pad", image);
  check(margin >= 0 && margin < kMostMargin && fill >= 0 && fill <= 255,
        "[pad] expected a margin in [0, {}) and a fill from 0 to 255, got {} and {}", kMostMargin, margin, fill);
  const NewPixels out(in.channels, in.height + 2 * margin, in.width + 2 * margin);
  std::memset(out.data, fill, size_t(out.image.numel()));
  for (int64_t y = 0; y < in.height; ++y)
    std::memcpy(out.row(y + margin) + margin * in.channels, in.row(y), size_t(in.width * in.channels));
  return out.image;
}

Tensor center_crop(const Tensor& image, int64_t height, int64_t width) {
  check(image.defined() && image.dim() == 3, "[center_crop] expected an image (C, H, W), got {}", image);
  check(height >= 0 && width >= 0 && height < kMostMargin && width < kMostMargin,
        "[center_crop] expected a height and width in [0, {}), got {} and {}", kMostMargin, height, width);
  const int64_t missing = std::max({height - image.size(1), width - image.size(2), int64_t(0)});
  const int64_t margin = (missing + 1) / 2;
  const Tensor x = margin > 0 ? pad(image, margin) : image;
  const auto first = [&](int64_t size, int64_t wanted) {  // a half goes to the even neighbour; of a margin, to the end
    const int64_t spare = size - wanted;
    return margin + (spare >= 0 ? std::lrint(double(spare) / 2) : -(-spare / 2));
  };
  return crop(x, first(image.size(1), height), first(image.size(2), width), height, width);
}

Tensor hflip(const Tensor& image) {
  const Pixels in("hflip", image);
  const NewPixels out(in.channels, in.height, in.width);
  for (int64_t y = 0; y < in.height; ++y) {
    const uint8_t* from = in.row(y) + (in.width - 1) * in.channels;
    uint8_t* to = out.row(y);
    for (int64_t x = 0; x < in.width; ++x, from -= in.channels, to += in.channels)
      for (int64_t c = 0; c < in.channels; ++c) to[c] = from[c];
  }
  return out.image;
}

Tensor vflip(const Tensor& image) {
  const Pixels in("vflip", image);
  const NewPixels out(in.channels, in.height, in.width);
  for (int64_t y = 0; y < in.height; ++y) std::memcpy(out.row(in.height - 1 - y), in.row(y), size_t(out.stride));
  return out.image;
}

Tensor affine(const Tensor& image, const std::array<double, 6>& m) {
  const Pixels in("affine", image);
  const NewPixels out(in.channels, in.height, in.width);
  const double cx = double(in.width - 1) / 2, cy = double(in.height - 1) / 2;
  for (int64_t y = 0; y < in.height; ++y)
    for (int64_t x = 0; x < in.width; ++x) {
      const double dx = double(x) - cx, dy = double(y) - cy;
      const double u = std::nearbyint(m[0] * dx + m[1] * dy + m[2] + cx),
                   v = std::nearbyint(m[3] * dx + m[4] * dy + m[5] + cy);
      const bool inside = u >= 0 && v >= 0 && u < double(in.width) && v < double(in.height);
      for (int64_t c = 0; c < in.channels; ++c)
        out.row(y)[x * in.channels + c] = inside ? in.row(int64_t(v))[int64_t(u) * in.channels + c] : 0;
    }
  return out.image;
}

Tensor RandomCrop::operator()(const Tensor& image) const {
  check(size > 0 && padding >= 0, "[RandomCrop] expected a size above 0 and padding from 0 on, got {} and {}", size,
        padding);
  const Tensor x = padding > 0 ? pad(image, padding) : image;
  check(x.dim() == 3 && x.size(1) >= size && x.size(2) >= size,
        "[RandomCrop] expected an image of at least {} x {}, got {}", size, size, x);
  Draw draw;
  const int64_t top = draw.below(x.size(1) - size + 1), left = draw.below(x.size(2) - size + 1);
  return crop(x, top, left, size, size);
}

ImagePart RandomResizedCrop::draw(int64_t h, int64_t w) const {
  constexpr int64_t kMost = int64_t(1) << 31;
  check_bounds("RandomResizedCrop", scale, ratio);
  check(h > 0 && w > 0 && h < kMost && w < kMost,
        "[RandomResizedCrop] expected a height and width in [1, {}), got {} and {}", kMost, h, w);
  Draw draw;
  for (int i = 0; i < 10; ++i) {
    const double area = double(h * w) * draw.uniform(scale[0], scale[1]);
    const double aspect = std::exp(draw.uniform(std::log(ratio[0]), std::log(ratio[1])));
    const auto cw = int64_t(std::lround(std::sqrt(area * aspect))), ch = int64_t(std::lround(std::sqrt(area / aspect)));
    if (cw <= 0 || ch <= 0 || cw > w || ch > h) continue;
    const int64_t top = draw.below(h - ch + 1), left = draw.below(w - cw + 1);
    return {top, left, ch, cw};
  }
  const double aspect = std::clamp(double(w) / double(h), ratio[0], ratio[1]);  // then the middle
  const auto cw = std::clamp<int64_t>(std::lround(double(h) * aspect), 1, w),
             ch = std::clamp<int64_t>(std::lround(double(w) / aspect), 1, h);
  return {(h - ch) / 2, (w - cw) / 2, ch, cw};
}

Tensor RandomResizedCrop::operator()(const Tensor& image) const {
  check_image("RandomResizedCrop", image);
  check(size > 0, "[RandomResizedCrop] expected a size above 0, got {}", size);
  const ImagePart part = draw(image.size(1), image.size(2));
  return resize(crop(image, part.top, part.left, part.height, part.width), size, size, options);
}

Tensor RandomResizedCrop::read(const std::string& path, const DecodeOptions& decode) const {
  const std::string bytes = io::read_file("read_image", path, int64_t(1) << 30), where = "[read_image] " + path;
  const auto [height, width] = image_size(bytes, where);
  check_runtime(height > 0 && width > 0, "{}: expected an image with pixels, got {} x {}", where, width, height);
  DecodeOptions o = decode;
  o.part = draw(height, width), o.min_size = size;
  return resize(decode_image(bytes, where, o), size, size, options);
}

Tensor RandomHorizontalFlip::operator()(const Tensor& image) const {
  check_probability("RandomHorizontalFlip", p), check_image("RandomHorizontalFlip", image);
  return Draw().uniform() < p ? hflip(image) : image;
}
Tensor RandomVerticalFlip::operator()(const Tensor& image) const {
  check_probability("RandomVerticalFlip", p), check_image("RandomVerticalFlip", image);
  return Draw().uniform() < p ? vflip(image) : image;
}

Tensor ColorJitter::operator()(const Tensor& image) const {
  const auto is_range = [](double x) { return x >= 0 && x <= 1e5; };
  check(is_range(brightness) && is_range(contrast) && is_range(saturation) && hue >= 0 && hue <= 0.5,
        "[ColorJitter] expected ranges from 0 to 100000 (hue at most 0.5), got {}, {}, {} and {}", brightness, contrast,
        saturation, hue);
  check_image("ColorJitter", image);
  Draw draw;
  int order[] = {0, 1, 2, 3};
  for (int64_t i = 3; i > 0; --i) std::swap(order[i], order[draw.below(i + 1)]);
  const auto factor = [&](double range) { return draw.uniform(std::max(0., 1 - range), 1 + range); };
  Tensor x = image;
  for (const int step : order) {
    if (step == 0 && brightness > 0) x = adjust_brightness(x, factor(brightness));
    if (step == 1 && contrast > 0) x = adjust_contrast(x, factor(contrast));
    if (step == 2 && saturation > 0) x = adjust_saturation(x, factor(saturation));
    if (step == 3 && hue > 0) x = adjust_hue(x, draw.uniform(-hue, hue));
  }
  return x;
}

Tensor RandAugment::operator()(const Tensor& image) const {
  check(num_ops >= 0 && num_ops <= 1000 && magnitude >= 0 && magnitude <= 30,
        "[RandAugment] expected num_ops from 0 to 1000 and a magnitude from 0 to 30, got {} and {}", num_ops,
        magnitude);
  check_image("RandAugment", image);
  const auto m = float(magnitude);
  const auto part_of = [&](double whole) {  // as torch.linspace(0, whole, 31) gives it
    const float end = float(whole), step = end / 30;
    return double(m < 15 ? step * m : end - step * (30 - m));
  };
  Draw draw;
  Tensor x = image;
  for (int64_t i = 0; i < num_ops; ++i) {
    const int64_t which = draw.below(14);
    const double sign = draw.uniform() < 0.5 ? -1 : 1, shear = part_of(0.3) * sign, enhance = 1 + part_of(0.9) * sign;
    const double angle = part_of(30) * sign * std::numbers::pi / 180, c = std::cos(angle), s = std::sin(angle);
    const double h = double(x.size(1)), w = double(x.size(2));
    switch (which) {  // shears are about the top left corner, translations by whole pixels
      case 1: x = affine(x, {1, shear, shear * h / 2, 0, 1, 0}); break;
      case 2: x = affine(x, {1, 0, 0, shear, 1, shear * w / 2}); break;
      case 3: x = affine(x, {1, 0, std::trunc(part_of(150. / 331 * w)) * sign, 0, 1, 0}); break;
      case 4: x = affine(x, {1, 0, 0, 0, 1, std::trunc(part_of(150. / 331 * h)) * sign}); break;
      case 5: x = affine(x, {c, s, 0, -s, c, 0}); break;
      case 6: x = adjust_brightness(x, enhance); break;
      case 7: x = adjust_saturation(x, enhance); break;
      case 8: x = adjust_contrast(x, enhance); break;
      case 9: x = adjust_sharpness(x, enhance); break;
      case 10: x = posterize(x, 8 - int(std::lround(m / 7.5f))); break;
      case 11: x = solarize(x, int(std::ceil(255 * double(30 - magnitude) / 30))); break;
      case 12: x = autocontrast(x); break;
      case 13: x = equalize(x); break;
      default: break;  // 0: nothing
    }
  }
  return x;
}

Tensor RandomErasing::operator()(const Tensor& image) const {
  check(image.defined() && image.dim() == 3, "[RandomErasing] expected an image (C, H, W), got {}", image);
  check_probability("RandomErasing", p), check_bounds("RandomErasing", scale, ratio);
  check_fits("RandomErasing", value, image.dtype());
  Draw draw;
  if (draw.uniform() >= p) return image;
  const int64_t h = image.size(1), w = image.size(2);
  for (int i = 0; i < 10; ++i) {
    const double area = double(h * w) * draw.uniform(scale[0], scale[1]);
    const double aspect = std::exp(draw.uniform(std::log(ratio[0]), std::log(ratio[1])));
    const auto eh = int64_t(std::lround(std::sqrt(area * aspect))), ew = int64_t(std::lround(std::sqrt(area / aspect)));
    if (eh >= h || ew >= w) continue;
    const int64_t top = draw.below(h - eh + 1), left = draw.below(w - ew + 1);
    Tensor out = image.clone();
    crop(out, top, left, eh, ew).fill_(value);
    return out;
  }
  return image;
}

Tensor Cutout::operator()(const Tensor& image) const {
  check(image.defined() && image.dim() == 3 && size > 0,
        "[Cutout] expected an image (C, H, W) and a size above 0, got {} and {}", image, size);
  Draw draw;
  const int64_t h = image.size(1), w = image.size(2), y = draw.below(h) - size / 2, x = draw.below(w) - size / 2;
  const int64_t top = std::max<int64_t>(y, 0), left = std::max<int64_t>(x, 0);
  Tensor out = image.clone();
  crop(out, top, left, std::min(h, y + size) - top, std::min(w, x + size) - left).zero_();
  return out;
}

Tensor Normalize::operator()(const Tensor& image) const {
  const Pixels in("Normalize", image);
  for (size_t c = 0; c < size_t(in.channels); ++c)
    check(std::isfinite(mean[c]) && std[c] > 0 && std::isfinite(std[c]),
          "[Normalize] expected a finite mean and a finite std above 0 for channel {}, got {} and {}", int64_t(c),
          mean[c], std[c]);
  const Tensor out = empty({in.channels, in.height, in.width});
  for (int64_t c = 0; c < in.channels; ++c) {
    float table[256];
    for (int v = 0; v < 256; ++v) table[v] = (float(v) / 255.f - float(mean[size_t(c)])) / float(std[size_t(c)]);
    auto* to = out.data<float>() + c * in.height * in.width;
    for (int64_t y = 0; y < in.height; ++y) {
      const uint8_t* from = in.row(y) + c;
      for (int64_t x = 0; x < in.width; ++x) *to++ = table[from[x * in.channels]];
    }
  }
  return out;
}

namespace {

/// Marsaglia and Tsang 2000, with a boost for alpha below 1.
double gamma(Draw& draw, double alpha) {
  if (alpha < 1) return gamma(draw, alpha + 1) * std::pow(1 - draw.uniform(), 1 / alpha);
  const double d = alpha - 1. / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double radius = std::sqrt(-2 * std::log(1 - draw.uniform())),
                 x = radius * std::cos(2 * std::numbers::pi * draw.uniform());
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - draw.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

/// What the labels of mixed images are made of. All that may be refused is, before a number is drawn.
Tensor checked_labels(const char* op, const Tensor& images, const Tensor& labels, int64_t classes, double alpha) try {
  check(alpha > 0 && std::isfinite(alpha), "[{}] expected alpha above 0, got {}", op, alpha);
  check(images.defined() && labels.defined() && images.is_floating_point() && images.dim() >= 1 &&
            labels.dtype() == kInt64 && labels.dim() == 1 && labels.size(0) == images.size(0),
        "[{}] expected images of floats (N, ...) and labels of int64 (N,), got {} and {}", op, images, labels);
  check(classes > 0, "[{}] expected a number of classes above 0, got {}", op, classes);
  return one_hot(labels, classes).to(images.dtype());
} catch (...) {
  fail_as(op);
}

double share(Draw& draw, double alpha) {
  const double a = gamma(draw, alpha), b = gamma(draw, alpha);
  return a + b > 0 ? a / (a + b) : 0.5;
}

Tensor mixed(const Tensor& x, double part) { return x * part + roll(x, 1, 0) * (1 - part); }

}  // namespace

std::array<Tensor, 2> mixup(const Tensor& images, const Tensor& labels, int64_t classes, double alpha) {
  const Tensor hot = checked_labels("mixup", images, labels, classes, alpha);
  Draw draw;
  const double part = share(draw, alpha);
  return {mixed(images, part), mixed(hot, part)};
}

std::array<Tensor, 2> cutmix(const Tensor& images, const Tensor& labels, int64_t classes, double alpha) {
  const Tensor hot = checked_labels("cutmix", images, labels, classes, alpha);
  check(images.dim() == 4, "[cutmix] expected images (N, C, H, W), got {}", images);
  Draw draw;
  const double part = share(draw, alpha);
  const int64_t h = images.size(2), w = images.size(3), y = draw.below(std::max<int64_t>(h, 1)),
                x = draw.below(std::max<int64_t>(w, 1));
  const auto half_h = int64_t(double(h) * std::sqrt(1 - part) / 2),
             half_w = int64_t(double(w) * std::sqrt(1 - part) / 2);
  const int64_t top = std::max<int64_t>(y - half_h, 0), left = std::max<int64_t>(x - half_w, 0);
  const int64_t height = std::min(h, y + half_h) - top, width = std::min(w, x + half_w) - left;
  Tensor out = images.clone();
  if (height > 0 && width > 0)
    out.narrow(2, top, height)
        .narrow(3, left, width)
        .copy_(roll(images, 1, 0).narrow(2, top, height).narrow(3, left, width));
  const double kept =
      h * w > 0 ? 1 - double(std::max<int64_t>(height, 0) * std::max<int64_t>(width, 0)) / double(h * w) : 1;
  return {out, mixed(hot, kept)};
}

}  // namespace transforms
}  // namespace tapir::inline v0::data
