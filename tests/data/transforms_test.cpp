#include <tapir/data/transforms.h>

#include <tapir/core/generator.h>
#include <tapir/data/image.h>
#include <tapir/ops/ops.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "../catch.h"
#include "../errors.h"

using namespace tapir;
using namespace tapir::data::transforms;

namespace {

Tensor pattern(int64_t c, int64_t h, int64_t w) {
  std::vector<uint8_t> v;
  for (int64_t i = 0; i < c * h * w; ++i) v.push_back(uint8_t(i * 53 + i / 5 * 31));
  return tensor(std::span<const uint8_t>(v), {c, h, w});
}
std::vector<uint8_t> bytes(const Tensor& x) { return x.to_vector<uint8_t>(); }
Tensor plain(uint8_t r, uint8_t g, uint8_t b, int64_t side = 4) {
  Tensor x = empty({3, side, side}, {.dtype = kUInt8});
  x.select(0, 0).fill_(r), x.select(0, 1).fill_(g), x.select(0, 2).fill_(b);
  return x;
}
std::vector<uint8_t> pixel(const Tensor& x) { return bytes(x.select(2, 0).select(1, 0)); }

// torch.nn.functional.interpolate of pattern(3, 9, 7): two rows of channel 0, the last row of channel 2.
const struct {
  Interpolation interpolation;
  bool antialias;
  int64_t height, width;
  std::vector<int> values;
} kResized[] = {
    {Interpolation::Bilinear, true, 4, 3, {119, 147, 138, 116, 131, 146, 130, 137, 142}},
    {Interpolation::Bilinear, true, 12, 10, {0,   29,  66,  103, 140, 178, 203, 83, 64,  93,  91,  120, 157, 194, 140,
                                             129, 161, 139, 155, 184, 10,  39,  76, 113, 171, 219, 243, 101, 74,  103}},
    {Interpolation::Bilinear, true, 3, 14, {90,  97,  112, 132, 159, 164, 149, 139, 136, 133, 131, 137, 152, 159,
                                            110, 110, 110, 118, 136, 137, 123, 123, 139, 147, 149, 142, 128, 121,
                                            104, 117, 144, 156, 155, 145, 127, 124, 137, 143, 144, 141, 136, 133}},
    {Interpolation::Bilinear, false, 4, 3, {126, 110, 149, 80, 130, 175, 114, 89, 137}},
    {Interpolation::Bilinear, false, 12, 10, {0,  29,  66,  103, 140, 178, 203, 83,  64,  93,
                                              91, 120, 157, 194, 140, 129, 161, 139, 155, 184,
                                              10, 39,  76,  113, 171, 219, 243, 101, 74,  103}},
    {Interpolation::Bilinear, false, 3, 14, {146, 159, 186, 212, 239, 209, 123, 93, 120, 146, 173, 199, 226, 239,
                                             103, 116, 143, 177, 219, 189, 88,  50, 77,  103, 130, 156, 183, 196,
                                             120, 133, 160, 186, 213, 175, 74,  36, 63,  97,  139, 173, 200, 213}},
    {Interpolation::Bicubic, true, 4, 3, {116, 152, 136, 116, 131, 146, 127, 143, 142}},
    {Interpolation::Bicubic, true, 12, 10, {0,   17,  58,  95,  140, 192, 212, 67, 46,  88,  97,  123, 167, 204, 129,
                                            115, 171, 144, 161, 193, 1,   29,  70, 107, 177, 242, 255, 86,  55,  100}},
    {Interpolation::Bicubic, true, 3, 14, {84,  90,  106, 131, 164, 171, 152, 139, 132, 127, 123, 132, 153, 163,
                                           110, 109, 106, 116, 138, 139, 120, 121, 141, 153, 157, 149, 127, 118,
                                           95,  112, 148, 163, 156, 142, 123, 123, 141, 151, 149, 143, 132, 127}},
    {Interpolation::Bicubic, false, 4, 3, {133, 92, 158, 65, 135, 187, 99, 75, 135}},
    {Interpolation::Bicubic, false, 12, 10, {0,   14,  58,  91,  139, 201, 212, 68, 34,  87,  103, 128, 177, 209, 126,
                                             108, 175, 149, 165, 199, 0,   26,  69, 102, 175, 255, 255, 89,  43,  99}},
    {Interpolation::Bicubic, false, 3, 14, {140, 156, 181, 223, 255, 217, 115, 72, 109, 149, 170, 204, 229, 245,
                                            97,  112, 135, 188, 244, 201, 80,  26, 65,  106, 127, 161, 186, 202,
                                            114, 130, 155, 198, 237, 184, 65,  11, 48,  99,  137, 181, 204, 219}},
};

}  // namespace

TEST_CASE("resize: PyTorch's values within 1") {
  const Tensor x = pattern(3, 9, 7);
  for (const auto& want : kResized) {
    const Tensor y = resize(x, want.height, want.width, {want.interpolation, want.antialias});
    CHECK(y.shape() == Shape{3, want.height, want.width});
    auto got = bytes(y.select(0, 0).narrow(0, 0, 2));
    for (const uint8_t v : bytes(y.select(0, 2).select(0, want.height - 1))) got.push_back(v);
    REQUIRE(got.size() == want.values.size());
    int worst = 0;
    for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(int(got[i]) - want.values[i]));
    CHECK(worst <= 1);
  }
  CHECK(bytes(resize(x, 4, 3, {Interpolation::Nearest}).select(0, 0).narrow(0, 0, 2)) ==
        std::vector<uint8_t>{0, 106, 212, 36, 173, 23});
  CHECK(bytes(resize(x, 9, 7)) == bytes(x));
  for (const int side : {1, 3, 200})
    CHECK(bytes(resize(plain(7, 255, 0), side, side)) == bytes(plain(7, 255, 0, side)));
  CHECK(resize(x.narrow(0, 0, 1), 5, 5).shape() == Shape{1, 5, 5});
  CHECK(Resize{4}(x).shape() == Shape{3, 5, 4});
  CHECK(Resize{4, 6}(x).shape() == Shape{3, 4, 6});
}

TEST_CASE("crops, flips, pad: the values of indexing") {
  const Tensor x = pattern(3, 9, 7);
  CHECK(bytes(crop(x, 2, 1, 4, 5)) == bytes(x.narrow(1, 2, 4).narrow(2, 1, 5)));
  CHECK(crop(x, 2, 1, 4, 5).impl().storage.get() == x.impl().storage.get());
  CHECK(bytes(hflip(crop(x, 2, 1, 4, 5))) == bytes(flip(x.narrow(1, 2, 4).narrow(2, 1, 5), {2})));
  CHECK(bytes(vflip(x)) == bytes(flip(x, {1})));
  CHECK(bytes(center_crop(x, 5, 3)) == bytes(x.narrow(1, 2, 5).narrow(2, 2, 3)));
  CHECK(center_crop(x, 20, 3).shape() == Shape{3, 20, 3});
  const Tensor padded = pad(x, 2, 9);
  CHECK(bytes(padded.narrow(1, 2, 9).narrow(2, 2, 7)) == bytes(x));
  CHECK(pixel(padded) == std::vector<uint8_t>{9, 9, 9});
  CHECK(bytes(affine(x, {1, 0, 0, 0, 1, 0})) == bytes(x));
  CHECK(bytes(affine(x, {1, 0, 1, 0, 1, 0}).narrow(2, 0, 6)) == bytes(x.narrow(2, 1, 6)));
}

TEST_CASE("colours: torchvision's definitions") {
  const Tensor x = plain(200, 100, 50);
  CHECK(pixel(adjust_brightness(x, 0.5)) == std::vector<uint8_t>{100, 50, 25});
  CHECK(pixel(adjust_brightness(x, 2)) == std::vector<uint8_t>{255, 200, 100});
  CHECK(pixel(adjust_contrast(x, 0)) == std::vector<uint8_t>{124, 124, 124});
  CHECK(pixel(adjust_saturation(x, 0)) == std::vector<uint8_t>{124, 124, 124});
  CHECK(pixel(adjust_saturation(x, 1)) == pixel(x));
  CHECK(pixel(adjust_hue(x, 0)) == pixel(x));
  CHECK(pixel(adjust_hue(plain(255, 0, 0), 1. / 3)) == std::vector<uint8_t>{0, 255, 0});
  CHECK(pixel(adjust_hue(plain(255, 0, 0), -1. / 3)) == std::vector<uint8_t>{0, 0, 255});
  CHECK(pixel(posterize(x, 2)) == std::vector<uint8_t>{192, 64, 0});
  CHECK(pixel(solarize(x, 100)) == std::vector<uint8_t>{55, 155, 50});
  CHECK(bytes(autocontrast(x)) == bytes(x));
  const Tensor spread = autocontrast(tensor(std::vector<uint8_t>{10, 20, 30, 60}).view({1, 2, 2}));
  CHECK(bytes(spread) == std::vector<uint8_t>{0, 51, 102, 255});
  CHECK(bytes(equalize(x)) == bytes(x));
  CHECK(bytes(adjust_sharpness(x, 0)) == bytes(x));
  const Tensor grey = pattern(1, 5, 5);
  CHECK(bytes(adjust_saturation(grey, 0.3)) == bytes(grey));
  CHECK(adjust_sharpness(grey, 2).shape() == Shape{1, 5, 5});
}

TEST_CASE("Normalize: float32, row-major") {
  const Tensor x = data::transforms::crop(pattern(3, 9, 7), 1, 1, 5, 4), y = Normalize{}(x);
  CHECK(y.dtype() == kFloat32);
  CHECK(y.is_contiguous());
  const auto got = y.to_vector<float>();
  const auto from = bytes(x);
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == (float(from[i]) / 255.f - float(kImageNetMean[i / 20])) / float(kImageNetStd[i / 20]));
}

TEST_CASE("random transforms: fixed by the generator, each result possible") {
  const Tensor x = pattern(3, 16, 16);
  const Compose chain{
      RandomResizedCrop{8}, RandomHorizontalFlip{}, ColorJitter{0.4, 0.4, 0.4, 0.1}, RandAugment{}, Cutout{4},
      Normalize{},          RandomErasing{1}};
  manual_seed(5);
  const Tensor first = chain(x), second = chain(x);
  manual_seed(5);
  CHECK(first.to_vector<float>() == chain(x).to_vector<float>());
  CHECK(first.to_vector<float>() != second.to_vector<float>());
  std::set<std::vector<uint8_t>> seen;
  for (int i = 0; i < 200; ++i) seen.insert(bytes(RandomCrop{15}(x)));
  CHECK(seen.size() == 4);
  int flipped = 0;
  for (int i = 0; i < 1000; ++i) flipped += bytes(RandomHorizontalFlip{}(x)) != bytes(x);
  CHECK(std::abs(flipped - 500) < 80);
  for (int i = 0; i < 300; ++i) CHECK(RandAugment{3, i % 31}(x).shape() == x.shape());
  for (int i = 0; i < 50; ++i) CHECK(RandomResizedCrop{7}(pattern(3, 3, 40)).shape() == Shape{3, 7, 7});
  const Tensor y = RandomErasing{1, {0.1, 0.2}, {0.5, 2}, 7}(ones({2, 20, 20}));
  const double share = sum(y.eq(7.0)).item() / 800;
  CHECK(share > 0.05);
  CHECK(share < 0.25);
}

TEST_CASE("review 14: center_crop begins where torchvision's does") {
  const auto first = [](int64_t size, int64_t wanted) {  // of the image, in its crop; below 0: in the margin
    std::vector<uint8_t> row;
    for (int64_t i = 0; i < size; ++i) row.push_back(uint8_t(i + 1));
    const auto out = bytes(center_crop(tensor(std::span<const uint8_t>(row), {1, 1, size}), 1, wanted));
    REQUIRE(int64_t(out.size()) == wanted);
    int64_t k = 0;
    while (out[size_t(k)] == 0) ++k;
    return out[size_t(k)] - 1 - k;
  };
  // torchvision.transforms.functional.center_crop, widths 1 to 13
  const std::pair<int64_t, std::vector<int64_t>> places[] = {{7, {3, 2, 2, 2, 1, 0, 0, 0, -1, -1, -2, -2, -3}},
                                                             {8, {4, 3, 2, 2, 2, 1, 0, 0, 0, -1, -1, -2, -2}},
                                                             {9, {4, 4, 3, 2, 2, 2, 1, 0, 0, 0, -1, -1, -2}},
                                                             {10, {4, 4, 4, 3, 2, 2, 2, 1, 0, 0, 0, -1, -1}}};
  for (const auto& [size, wanted] : places)
    for (size_t i = 0; i < wanted.size(); ++i) {
      INFO(size << " to " << i + 1);
      CHECK(first(size, int64_t(i + 1)) == wanted[i]);
    }
}

TEST_CASE("review 14: RandAugment gives torchvision's pictures, and no others") {
  const auto hash_of = [](const Tensor& x) {
    uint64_t h = 0xcbf29ce484222325;
    for (const uint8_t v : bytes(x)) h = (h ^ v) * 0x100000001b3;
    return h;
  };
  // torchvision's _apply_op of pattern(3, 16, 12): every operation, in both directions
  const std::pair<int64_t, std::set<uint64_t>> pictures[] = {
      {9, {0x8bfbfb3db0f68395, 0x7fa8d3a7d564fa75, 0x5d4ba7be0b7140b5, 0x8efb1ed989944941, 0x154afdfb4f63f6f1,
           0xafa5ac8f6e56402f, 0xc3a3ea6afe3cc583, 0xc20db3c6edc4d1fa, 0xd57ff05fa3e98add, 0xe5eaab9ba1dbed77,
           0x61c0309ad9353546, 0xd7ce571fc433fc9c, 0x7b6e532db6823b74, 0xb860a53153943e63, 0xa5b7cb5f0570c416,
           0x2d7ec6af71cf1d38, 0x2d566cd4ea2935d3, 0x844048bef954d780, 0xffa844bd90db15c0, 0x40eef17b0d981e91,
           0xa63ea99d033eaccf}},
      {30, {0x8bfbfb3db0f68395, 0x6941cfaf17fa274a, 0x4336f5b7c3c5b156, 0xb1d9bdac533a419b, 0x8d52fc9ce29acd1,
            0xe19dfca986179d0f, 0x97245911ca7ee773, 0x50946735627dd8da, 0x800b5cbb128b1e6d, 0x78b6d914f6919a5c,
            0x8727b2326194a96e, 0xe80d6f9c7bff377,  0xf9bc5cdaecc22282, 0x501b2ccd28dd245e, 0x4725d83bbaae21d,
            0xee90351bc38fb5ef, 0x271d335e6e9a82db, 0xf165a367e76bf29e, 0x3e1f2a86506d075b, 0xd6f4307dfbc66f95,
            0x4a95bd54d201bb85}}};
  const Tensor x = pattern(3, 16, 12);
  manual_seed(6);
  for (const auto& [magnitude, wanted] : pictures) {
    std::set<uint64_t> seen;
    for (int i = 0; i < 1000; ++i) seen.insert(hash_of(RandAugment{1, magnitude}(x)));
    CHECK(seen == wanted);
  }
}

TEST_CASE("mixup and cutmix: labels are shares of what the images are made of") {
  const Tensor images = arange(4).to(kFloat32).view({4, 1, 1, 1}).expand({4, 1, 8, 8}), labels = arange(4);
  manual_seed(1);
  for (const double alpha : {0.2, 1.0, 4.0}) {
    const auto [x, y] = mixup(images, labels, 4, alpha);
    CHECK(allclose(sum(y, 1), ones({4})));
    const double part = y.select(0, 1).select(0, 1).item();
    CHECK(part >= 0);
    CHECK(part <= 1);
    CHECK(x.select(0, 1).select(0, 0).select(0, 0).select(0, 0).item() == Approx(part * 1));
    const auto [cx, cy] = cutmix(images, labels, 4, alpha);
    const double kept = cy.select(0, 2).select(0, 2).item();
    CHECK(mean(cx.select(0, 2)).item() == Approx(kept * 2 + (1 - kept) * 1));
  }
  CHECK(!error_of([&] { mixup(images, labels, 4, 0); }).empty());
  CHECK(!error_of([&] { mixup(images, labels.to(kFloat32), 4); }).empty());
}

TEST_CASE("transforms refuse what is no image, with its name") {
  const Tensor x = pattern(3, 4, 4);
  CHECK(error_of([&] { hflip(ones({3, 4, 4})); }).find("[hflip] expected an image") == 0);
  CHECK(error_of([&] { resize(Tensor(), 2, 2); }).find("[resize]") == 0);
  CHECK(error_of([&] { resize(x, 0, 2); }).find("[resize]") == 0);
  CHECK(error_of([&] { resize(empty({3, 0, 4}, {.dtype = kUInt8}), 2, 2); }).find("[resize]") == 0);
  CHECK(!error_of([&] { resize(x.narrow(0, 0, 2), 2, 2); }).empty());
  CHECK(!error_of([&] { crop(x, 0, 0, 5, 4); }).empty());
  CHECK(!error_of([&] { crop(x, -1, 0, 2, 2); }).empty());
  CHECK(!error_of([&] { crop(x, 3, 0, 2, 2); }).empty());
  CHECK(!error_of([&] { RandomCrop{5}(x); }).empty());
  CHECK(!error_of([&] { pad(x, -1); }).empty());
  CHECK(!error_of([&] { adjust_hue(x, 0.6); }).empty());
  CHECK(!error_of([&] { adjust_brightness(x, -1); }).empty());
  CHECK(!error_of([&] { adjust_contrast(x, std::nan("")); }).empty());
  CHECK(!error_of([&] { posterize(x, 9); }).empty());
  CHECK(!error_of([&] { RandAugment{2, 31}(x); }).empty());
  CHECK(!error_of([&] { ColorJitter{.hue = 0.7}(x); }).empty());
}

TEST_CASE("a refused transform draws no random numbers, and has its own name") {
  const auto refusal = [](auto&& f) {
    manual_seed(5);
    const std::string text = error_of(f);
    CHECK(default_generator().offset() == 0);
    return text;
  };
  const Tensor floats = ones({3, 4, 4}), images = ones({2, 1, 4, 4}), labels = tensor({0, 2});
  for (const int64_t classes : {-1, 0, 2}) {  // too few for the label 2
    CHECK(refusal([&] { mixup(images, labels, classes); }).find("[mixup]") == 0);
    CHECK(refusal([&] { cutmix(images, labels, classes); }).find("[cutmix]") == 0);
  }
  CHECK(refusal([&] { mixup(images, tensor({-1, 0}), 3); }).find("[mixup]") == 0);
  CHECK(refusal([&] { mixup(images, tensor({{0, 1}}), 3); }).find("[mixup]") == 0);
  CHECK(refusal([&] { mixup(images, labels, 3, -1); }).find("[mixup]") == 0);
  CHECK(refusal([&] { cutmix(images.view({2, 16}), labels, 3); }).find("[cutmix] expected images (N, C, H, W)") == 0);
  for (const Tensor& x : {ones({4}), floats, Tensor()}) {
    CHECK(refusal([&] { RandomHorizontalFlip{.5}(x); }).find("[RandomHorizontalFlip] expected an image") == 0);
    CHECK(refusal([&] { RandomVerticalFlip{.5}(x); }).find("[RandomVerticalFlip] expected an image") == 0);
    CHECK(refusal([&] { ColorJitter{.1, .1, .1, .1}(x); }).find("[ColorJitter] expected an image") == 0);
    CHECK(refusal([&] { RandAugment{}(x); }).find("[RandAugment] expected an image") == 0);
    CHECK(refusal([&] { RandomResizedCrop{2}(x); }).find("[RandomResizedCrop] expected an image") == 0);
  }
}
