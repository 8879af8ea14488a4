#include <tapir/data/cifar.h>

#include <tapir/data/image.h>
#include <tapir/io/gzip.h>
#include <tapir/ops/ops.h>

#include "../catch.h"
#include "../io/temporary.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

std::string record(int label, int value) { return char(label) + std::string(3072, char(value)); }
void write_batches(const std::string& folder) {
  mkdir(folder.c_str(), 0755);
  for (int i = 1; i <= 5; ++i)
    spit(folder + "/data_batch_" + std::to_string(i) + ".bin", record(i, i) + record(9, 100 + i));
  spit(folder + "/test_batch.bin", record(3, 7));
}
std::string tar_entry(const std::string& name, const std::string& bytes, char type = '0') {
  std::string h(512, '\0');
  h.replace(0, name.size(), name);
  char size[13];
  std::snprintf(size, sizeof size, "%011o", unsigned(bytes.size()));
  h.replace(124, 11, size, 11);
  h[156] = type;
  h.replace(257, 6, std::string("ustar\0", 6));
  h.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : h) sum += static_cast<unsigned char>(c);
  std::snprintf(size, sizeof size, "%06o", sum);
  h.replace(148, 7, std::string(size, 6) + '\0');
  return h + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}
std::string refusal(const std::string& path, data::Split split = data::Split::Test) {
  return message_of<RuntimeError>([&] { data::cifar10(path, split); });
}

}  // namespace

TEST_CASE("CIFAR-10: the binary version, as folder and archive") {
  TemporaryFolder folder;
  write_batches(folder / "c");
  mkdir((folder / "d").c_str(), 0755);
  write_batches(folder / "d/cifar-10-batches-bin");
  std::string tar;
  for (const auto& name : names_in(folder / "c"))
    tar += tar_entry("cifar-10-batches-bin/" + name, slurp(folder / "c/" + name));
  spit(folder / "c.tar", tar + std::string(1024, '\0'));
  spit(folder / "c.tar.gz", io::gzip(tar + std::string(1024, '\0')));
  for (const char* name : {"c", "d", "c.tar", "c.tar.gz"}) {
    const auto train = data::cifar10(folder / name, data::Split::Train),
               test = data::cifar10(folder / name, data::Split::Test);
    CHECK(train.size() == 10);
    CHECK(train.tensors()[0].shape() == Shape{10, 3, 32, 32});
    CHECK(train.tensors()[1].to_vector<int64_t>() == std::vector<int64_t>{1, 9, 2, 9, 3, 9, 4, 9, 5, 9});
    CHECK(train.get(3)[0].select(0, 2).select(0, 31).select(0, 31).item<int>() == 102);
    CHECK(test.size() == 1);
  }
}

TEST_CASE("CIFAR-10: folders of images, plain and in an archive with long names") {
  if (!data::has_png()) SKIP_TEST("built without libpng");
  TemporaryFolder folder;
  std::string tar = tar_entry("train/", "", '5');
  mkdir((folder / "c").c_str(), 0755), mkdir((folder / "c/train").c_str(), 0755);
  int i = 0;
  for (const auto name : data::kCifar10Classes) {
    const std::string inside = "train/" + std::string(name), file = inside + "/1.png";
    mkdir((folder / "c/" + inside).c_str(), 0755);
    data::write_image(folder / "c/" + file, full({3, 32, 32}, 0.1 * i++));
    if (i % 2)
      tar += tar_entry("././@LongLink", "c/" + file + '\0', 'L') + tar_entry("cut", slurp(folder / "c/" + file));
    else tar += tar_entry("c/" + file, slurp(folder / "c/" + file));
  }
  spit(folder / "c.tar.gz", io::gzip(tar));
  for (const char* name : {"c", "c.tar.gz"}) {
    const auto train = data::cifar10(folder / name, data::Split::Train);
    CHECK(train.tensors()[1].to_vector<int64_t>() == arange(10).to_vector<int64_t>());
    CHECK(train.get(9)[0].select(0, 1).select(0, 5).select(0, 5).item<int>() == 230);
  }
  CHECK(mentions(refusal(folder / "c.tar.gz"), {"c.tar.gz", "test"}));
  data::write_image(folder / "c/train/cat/2.png", zeros({3, 31, 32}));
  CHECK(mentions(refusal(folder / "c", data::Split::Train), {"cat/2.png", "32 x 31"}));
  std::string bad = tar;
  bad[0] ^= 1;
  spit(folder / "bad.tar", bad);
  CHECK(mentions(refusal(folder / "bad.tar"), {"tar header", "byte 0"}));
  for (const auto& damaged : truncations(tar, 40)) {
    spit(folder / "bad.tar", damaged);
    CHECK(!refusal(folder / "bad.tar").empty());
  }
}

TEST_CASE("BI-248 BI-249 CIFAR-10: sizes and labels") {
  TemporaryFolder folder;
  write_batches(folder / "c");
  CHECK(mentions(refusal(folder / "none"), {"none"}));
  const auto with = [&](const std::string& bytes) {
    spit(folder / "c/test_batch.bin", bytes);
    return refusal(folder / "c");
  };
  CHECK(mentions(with(""), {"test_batch.bin", "3073", "0"}));
  CHECK(mentions(with(record(1, 1) + "x"), {"3073", "3074"}));
  CHECK(mentions(with(record(1, 1) + record(10, 1)), {"record 1", "10", "0 to 9"}));
  unlink((folder / "c/data_batch_4.bin").c_str());
  CHECK(mentions(refusal(folder / "c", data::Split::Train), {"data_batch_4.bin"}));
}
