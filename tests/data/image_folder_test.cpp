#include <tapir/data/image_folder.h>

#include <tapir/data/loader.h>
#include <tapir/data/transforms.h>
#include <tapir/ops/ops.h>

#include "../catch.h"
#include "../io/temporary.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

void make(const std::string& folder) { mkdir(folder.c_str(), 0755); }
std::string refusal(const std::string& root) {
  return message_of<RuntimeError>([&] { data::ImageFolder folder(root); });
}

}  // namespace

TEST_CASE("ImageFolder: classes, nested folders, the loader") {
  if (!data::has_png()) SKIP_TEST("built without libpng");
  TemporaryFolder folder;
  for (const char* name : {"dog", "cat", "cat/deep", ".hidden"}) make(folder / name);
  int i = 0;
  for (const char* name : {"dog/b.png", "dog/a.PNG", "cat/deep/z.png", ".hidden/x.png", "dog/.x.png"}) {
    data::write_image(folder / "x.png", full({3, 4 + i % 2, 6}, 0.1 * ++i));
    rename((folder / "x.png").c_str(), (folder / name).c_str());
  }
  spit(folder / "cat/notes.txt", "x");
  const data::ImageFolder images(folder.path);
  CHECK(images.classes() == std::vector<std::string>{"cat", "dog"});
  REQUIRE(images.size() == 3);
  CHECK(images.path(0) == folder / "cat/deep/z.png");
  CHECK(images.path(1) == folder / "dog/a.PNG");
  CHECK(images.get(2)[1].item<int>() == 1);
  CHECK_THROWS_AS(images.get(3), ValueError);
  const data::transforms::Compose augment{data::transforms::RandomResizedCrop{4}, data::transforms::Normalize{}};
  std::vector<std::vector<float>> runs;
  for (const int workers : {0, 2}) {  // the same data for any number of workers
    data::DataLoader loader(data::map(data::ImageFolder(folder.path),
                                      [augment](const Tensor& x, const Tensor& y) {
                                        return std::array{augment(x), y};
                                      }),
                            {.batch_size = 3, .shuffle = true, .num_workers = workers, .seed = 4});
    for (auto& [x, y] : loader) {
      CHECK(x.shape() == Shape{3, 3, 4, 4});
      CHECK(y.dtype() == kInt64);
      runs.push_back(x.to_vector<float>());
    }
  }
  CHECK(runs[0] == runs[1]);
  const data::ImageFolder cropped(folder.path, {.random_crop = data::transforms::RandomResizedCrop{5}});
  CHECK(cropped.get(0)[0].shape() == Shape{3, 5, 5});
}

TEST_CASE("BI-250 ImageFolder: no classes, an empty class") {
  TemporaryFolder folder;
  CHECK(mentions(refusal(folder / "none"), {"none"}));
  CHECK(mentions(refusal(folder.path), {"each class"}));
  spit(folder / "a.png", "x");
  CHECK(mentions(refusal(folder.path), {"each class"}));
  make(folder / "bird");
  spit(folder / "bird/x.txt", "x");
  CHECK(mentions(refusal(folder.path), {"\"bird\"", "found none"}));
}

TEST_CASE("BI-251 ImageFolder: loops, dangling links, odd names, texts that claim to be images") {
  TemporaryFolder folder;
  make(folder / "a");
  make(folder / "a/b");
  for (const char* name : {"a/1.png", "a/b/2.png", "a/\xff\n.png"}) spit(folder / name, "no image");
  REQUIRE(symlink("..", (folder / "a/b/up").c_str()) == 0);
  REQUIRE(symlink(".", (folder / "a/self").c_str()) == 0);
  REQUIRE(symlink("nowhere", (folder / "a/gone.png").c_str()) == 0);
  REQUIRE(symlink("../..", (folder / "a/b/root").c_str()) == 0);
  const data::ImageFolder images(folder.path);
  CHECK(images.size() == 4);
  for (int64_t i = 0; i < images.size(); ++i)
    CHECK(mentions(message_of<RuntimeError>([&] { images.get(i); }), {images.path(i).c_str()}));
  std::string deep = folder / "a";
  for (int i = 0; i < 40; ++i) make(deep += "/d");
  CHECK(mentions(refusal(folder.path), {"30 folders"}));
}
