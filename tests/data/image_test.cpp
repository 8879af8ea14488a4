#include <tapir/data/image.h>

#include <tapir/data/codecs/codec.h>
#include <tapir/ops/ops.h>

#include "../catch.h"
#include "../io/temporary.h"
#include "source_dir.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

Tensor gradient(int64_t h, int64_t w) {
  std::vector<uint8_t> v;
  for (int c = 0; c < 3; ++c)
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x) v.push_back(uint8_t(c == 0 ? 255 * x / w : c == 1 ? 255 * y / h : 128));
  return tensor(std::span<const uint8_t>(v), {3, h, w});
}
std::string file_of(const Tensor& image, const char* name = "x.jpg") {
  TemporaryFolder folder;
  data::write_image(folder / name, image);
  return slurp(folder / name);
}
double distance(const Tensor& a, const Tensor& b) { return mean(abs(a.to(kFloat32) - b.to(kFloat32))).item(); }
std::string refusal(const std::string& bytes, const data::DecodeOptions& options = {}) {
  TemporaryFolder folder;
  spit(folder / "x.jpg", bytes);
  return message_of<RuntimeError>([&] { data::read_image(folder / "x.jpg", options); });
}
/// The offset of the frame header's height.
size_t frame(const std::string& jpeg) { return jpeg.find("\xff\xc0") + 5; }

}  // namespace

TEST_CASE("images: written, read, scaled") {
  if (!data::has_jpeg() || !data::has_png()) SKIP_TEST("built without libjpeg or libpng");
  TemporaryFolder folder;
  const Tensor x = gradient(64, 96);
  data::write_image(folder / "x.png", x);
  CHECK(data::read_image(folder / "x.png").to_vector<uint8_t>() == x.to_vector<uint8_t>());
  data::write_image(folder / "x.jpg", x, {.quality = 95});
  const Tensor y = data::read_image(folder / "x.jpg");
  CHECK(y.shape() == Shape{3, 64, 96});
  CHECK(y.strides() == Strides{1, 288, 3});
  CHECK(distance(x, y) < 3);
  CHECK(data::read_image(folder / "x.jpg", {.min_size = 32}).shape() == Shape{3, 32, 48});
  CHECK(data::read_image(folder / "x.jpg", {.min_size = 33}).shape() == Shape{3, 64, 96});
  CHECK(data::read_image(folder / "x.jpg", {.min_size = 1}).shape() == Shape{3, 8, 12});
  CHECK(data::decode_image(slurp(folder / "x.png")).shape() == Shape{3, 64, 96});
}

TEST_CASE("images: a part is that part of the whole") {
  if (!data::has_jpeg() || !data::has_png()) SKIP_TEST("built without libjpeg or libpng");
  const Tensor x = gradient(100, 150);
  const std::string jpeg = file_of(x), png = file_of(x, "x.png");
  for (const auto& bytes : {jpeg, png}) {
    CHECK(data::image_size(bytes) == std::array<int64_t, 2>{100, 150});
    const Tensor whole = data::decode_image(bytes);
    for (const data::ImagePart& p :
         {data::ImagePart{0, 0, 100, 150}, {30, 40, 50, 60}, {99, 149, 1, 1}, {0, 17, 100, 9}, {61, 0, 39, 150}}) {
      const Tensor part = data::decode_image(bytes, {.part = p}),
                   want = whole.narrow(1, p.top, p.height).narrow(2, p.left, p.width);
      CHECK(part.shape() == want.shape());
      CHECK(distance(part, want) < 1);
    }
  }
  const Tensor half = data::decode_image(jpeg, {.part = {20, 40, 60, 80}, .min_size = 30});
  CHECK(half.shape() == Shape{3, 30, 40});
  CHECK(distance(half, data::decode_image(jpeg, {.min_size = 50}).narrow(1, 10, 30).narrow(2, 20, 40)) < 1);
  for (const auto& bytes : {jpeg, png})
    CHECK(mentions(refusal(bytes, {.part = {60, 0, 50, 10}}), {"150 x 100", "part"}));
  CHECK_THROWS_AS(data::decode_image(jpeg, {.part = {-1, 0, 5, 5}}), ValueError);
  CHECK_THROWS_AS(data::decode_image(jpeg, {.part = {0, 0, 5, 0}}), ValueError);
  CHECK_THROWS_AS(data::image_size("no image"), RuntimeError);
}

TEST_CASE("BI-252 BI-253 JPEG: truncated, flipped bits") {
  if (!data::has_jpeg()) SKIP_TEST("built without libjpeg");
  const std::string good = file_of(gradient(64, 96));
  CHECK(refusal(good).empty());
  CHECK(mentions(refusal(""), {"x.jpg", "JPEG or PNG"}));
  CHECK(mentions(refusal("hello, I am a text"), {"x.jpg", "hello"}));
  for (const auto& bytes : {good.substr(0, good.size() / 2), good.substr(0, 3), good.substr(0, good.size() - 2)})
    CHECK(mentions(refusal(bytes), {"x.jpg", "JPEG"}));
  CHECK(data::decode_image(good.substr(0, good.size() / 2), {.tolerate_truncated = true}).shape() == Shape{3, 64, 96});
  for (const auto& damaged : truncations(good, 100)) CHECK(!refusal(damaged).empty());
  for (const auto& damaged : bit_flips(good, 500, 5)) {
    refusal(damaged);
    refusal(damaged, {.part = {10, 20, 40, 50}, .min_size = 20, .tolerate_truncated = true});
  }
}

TEST_CASE("BI-254 BI-256 JPEG: sizes, kinds") {
  if (!data::has_jpeg()) SKIP_TEST("built without libjpeg");
  std::string bytes = file_of(gradient(64, 96));
  const size_t at = frame(bytes);
  const auto sized = [&](const char* size) { return std::string(bytes).replace(at, 4, std::string(size, 4)); };
  CHECK(mentions(refusal(sized("\xff\xdc\xff\xdc")), {"x.jpg", "65500 x 65500", "limit"}));
  CHECK(!refusal(sized("\xff\xff\xff\xff")).empty());
  CHECK(!refusal(sized("\0\0\0\0")).empty());
  CHECK(mentions(refusal(bytes, {.max_pixels = 1000}), {"96 x 64", "1000"}));
  CHECK(!refusal(std::string(bytes).replace(at - 1, 1, "\x0c")).empty());  // 12 bits
  const Tensor grey = gradient(16, 16).narrow(0, 0, 1);
  CHECK(data::decode_image(file_of(grey)).shape() == Shape{3, 16, 16});
}

TEST_CASE("BI-255 BI-256 JPEG: progressive with many scans, CMYK") {
  if (!data::has_jpeg()) SKIP_TEST("built without libjpeg");
  const std::string folder = TAPIR_SOURCE_DIR "/tests/fuzz/corpus/image/";
  const std::string good = slurp(folder + "progressive.jpg");
  CHECK(refusal(good).empty());
  const size_t scan = good.find("\xff\xda"),
               next = std::min(good.find("\xff\xda", scan + 2), good.find("\xff\xc4", scan + 2));
  std::string many = good.substr(0, next);
  for (int i = 0; i < 600; ++i) many += good.substr(scan, next - scan);
  many += good.substr(next);
  CHECK(mentions(refusal(many), {"x.jpg", "500 scans"}));
  CHECK(mentions(refusal(many, {.tolerate_truncated = true, .max_scans = 7}), {"7 scans"}));
  const auto rgb = data::read_image(folder + "cmyk.jpg").select(2, 5).select(1, 5).to_vector<uint8_t>();
  const auto want = data::read_image(folder + "small.jpg").select(2, 5).select(1, 5).to_vector<uint8_t>();
  for (int c = 0; c < 3; ++c) CHECK(std::abs(rgb[size_t(c)] - want[size_t(c)]) < 30);
}

TEST_CASE("BI-257 JPEG: EXIF that lies about its length") {
  if (!data::has_jpeg()) SKIP_TEST("built without libjpeg");
  const std::string good = file_of(gradient(8, 8));
  const auto with = [&](const std::string& segment) { return good.substr(0, 2) + segment + good.substr(2); };
  CHECK(refusal(with(std::string("\xff\xe1\0\x10"
                                 "Exif\0\0MM\0*\0\0\0\x8",
                                 18)))
            .empty());
  CHECK(!refusal(with(std::string("\xff\xe1\xff\xff"
                                  "Exif\0\0",
                                  10)))
             .empty());
  refusal(with(std::string("\xff\xe1\0\0", 4)));  // the library passes over it
}

TEST_CASE("BI-258 PNG: damage, limits") {
  if (!data::has_png()) SKIP_TEST("built without libpng");
  const std::string good = file_of(gradient(20, 30), "x.png");
  const auto changed = [&](size_t at, char v) {
    std::string bytes = good;
    bytes[at] = v;
    return refusal(bytes);
  };
  CHECK(refusal(good).empty());
  CHECK(mentions(changed(18, 1), {"x.jpg", "PNG"}));  // the width, without its CRC
  CHECK(mentions(changed(40, 77), {"PNG"}));
  CHECK(mentions(refusal(good, {.max_pixels = 599}), {"600", "599"}));
  for (const auto& damaged : truncations(good, 100)) CHECK(!refusal(damaged).empty());
  for (const auto& damaged : bit_flips(good, 500, 6)) refusal(damaged);
}

TEST_CASE("BI-259 writing images: shapes, NaN, a failing disk") {
  if (!data::has_png()) SKIP_TEST("built without libpng");
  TemporaryFolder folder;
  for (const Tensor& x : {Tensor(), zeros({3, 0, 4}), zeros({2, 4, 4}), zeros({4}), zeros({1, 3, 4, 4}),
                          zeros({3, 4, 4}, {.dtype = kInt64})})
    CHECK_THROWS_AS(data::write_image(folder / "x.png", x), ValueError);
  CHECK_THROWS_AS(data::write_image(folder / "x.gif", zeros({3, 4, 4})), ValueError);
  CHECK_THROWS_AS(data::write_image(folder / "x.png", zeros({3, 4, 4}), {.quality = 0}), ValueError);
  data::write_image(folder / "x.png", tensor(std::vector<float>{NAN, -1, 0.5, 7}).view({2, 2}));
  CHECK(data::read_image(folder / "x.png").select(0, 1).to_vector<uint8_t>() == std::vector<uint8_t>{0, 0, 128, 255});
  const std::string before = slurp(folder / "x.png");
  FailingCalls calls(3, ENOSPC, true);
  CHECK_THROWS_AS(data::write_image(folder / "x.png", zeros({3, 4, 4})), RuntimeError);
  CHECK(slurp(folder / "x.png") == before);
}

TEST_CASE("BI-240 images: paths") {
  TemporaryFolder folder;
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  for (const auto& path : {folder / "none", folder.path, folder / "fifo"})
    CHECK(mentions(message_of<RuntimeError>([&] { data::read_image(path); }), {"[read_image]", path.c_str()}));
}
