#include <tapir/data/mnist.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <tapir/io/idx.h>
#include <tapir/io/sha256.h>

#include "../catch.h"
#include "../io/temporary.h"
#include "source_dir.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

const std::string kReal = std::string(TAPIR_SOURCE_DIR) + "/../shared/data/mnist";
bool has_real() { return access((kReal + "/train-images-idx3-ubyte.gz").c_str(), R_OK) == 0; }

Tensor bytes(const Shape& shape, int step, int modulo) {
  const Tensor x = empty(shape, {.dtype = kUInt8});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<uint8_t>()[i] = uint8_t(i * step % modulo);
  return x;
}
/// A folder with 6 training and 4 test digits.
void write_small(const std::string& folder, const char* end = "") {
  for (const auto& [name, count] : {std::pair{"train", 6}, {"t10k", 4}}) {
    io::write_idx(folder + "/" + name + "-images-idx3-ubyte" + end, bytes({count, 28, 28}, 7, 256));
    io::write_idx(folder + "/" + name + "-labels-idx1-ubyte" + end, bytes({count}, 3, 10));
  }
}

/// Sets or removes an environment variable for a scope, and changes the folder.
struct Surroundings {
  explicit Surroundings(const std::string& folder, const char* data = nullptr) {
    if (const char* had = getenv("TAPIR_DATA")) before = had;
    data ? setenv("TAPIR_DATA", data, 1) : unsetenv("TAPIR_DATA");
    if (!getcwd(here, sizeof here) || chdir(folder.c_str()) != 0) FAIL("cannot enter " << folder);
  }
  ~Surroundings() {
    before.empty() ? unsetenv("TAPIR_DATA") : setenv("TAPIR_DATA", before.c_str(), 1);
    if (chdir(here) != 0) FAIL("cannot return");
  }
  std::string before;
  char here[4096];
};

}  // namespace

TEST_CASE("mnist: shapes, dtypes, normalisation") {
  TemporaryFolder folder;
  for (const char* end : {"", ".gz"}) {
    write_small(folder.path, end);
    const auto train = data::mnist(folder.path, data::Split::Train), test = data::mnist(folder.path, data::Split::Test);
    CHECK(train.size() == 6);
    CHECK(test.size() == 4);
    const auto& [images, labels] = train.tensors();
    CHECK((images.dtype() == kFloat32 && images.shape() == Shape{6, 1, 28, 28}));
    CHECK((labels.dtype() == kInt64 && labels.shape() == Shape{6}));
    CHECK(labels.to_vector<int64_t>() == std::vector<int64_t>{0, 3, 6, 9, 2, 5});
    CHECK(images.data<float>()[3] == Approx((21 / 255.0 - 0.1307) / 0.3081).epsilon(1e-6));
    const auto raw = data::mnist(folder.path, data::Split::Train, {.normalize = false}).tensors()[0];
    CHECK((raw.dtype() == kUInt8 && raw.shape() == Shape{6, 1, 28, 28} && raw.data<uint8_t>()[3] == 21));
    for (const auto& name : names_in(folder.path)) unlink((folder / name).c_str());
  }
}

TEST_CASE("BI-246 mnist: counts and labels that do not fit") {
  TemporaryFolder folder;
  write_small(folder.path);
  const auto refusal = [&] { return message_of<RuntimeError>([&] { data::mnist(folder.path, data::Split::Train); }); };
  io::write_idx(folder / "train-labels-idx1-ubyte", bytes({5}, 1, 10));
  CHECK(mentions(refusal(), {"[mnist]", "6 in", "5 in"}));
  io::write_idx(folder / "train-labels-idx1-ubyte", bytes({6}, 2, 11));
  CHECK(mentions(refusal(), {"labels", "10 at position 5"}));
  io::write_idx(folder / "train-labels-idx1-ubyte", bytes({6, 1}, 1, 10));
  CHECK(mentions(refusal(), {"uint8 (N,)"}));
  write_small(folder.path);
  io::write_idx(folder / "train-images-idx3-ubyte", bytes({6, 28, 27}, 1, 10));
  CHECK(mentions(refusal(), {"28, 28", "(6, 28, 27)"}));
  unlink((folder / "train-images-idx3-ubyte").c_str());
  CHECK(mentions(refusal(), {"train-images-idx3-ubyte", folder.path.c_str()}));
}

TEST_CASE("mnist: the real files") {
  if (!has_real()) SKIP_TEST("no real MNIST beside the repository");
  const auto [images, labels] = data::mnist(kReal, data::Split::Train).tensors();
  CHECK(images.shape() == Shape{60000, 1, 28, 28});
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < images.numel(); ++i)
    sum += images.data<float>()[i], squares += double(images.data<float>()[i]) * images.data<float>()[i];
  CHECK(std::abs(sum / double(images.numel())) < 1e-3);
  CHECK(std::abs(squares / double(images.numel()) - 1) < 1e-3);
  CHECK(labels.narrow(0, 0, 5).to_vector<int64_t>() == std::vector<int64_t>{5, 0, 4, 1, 9});
  CHECK(data::mnist(kReal, data::Split::Test, {.normalize = false}).size() == 10000);
}

TEST_CASE("find_mnist: the order of the search") {
  TemporaryFolder folder;
  for (const char* name : {"/given", "/env", "/env/mnist", "/home", "/home/datasets", "/home/datasets/mnist", "/bare"})
    mkdir((folder.path + name).c_str(), 0755);
  write_small(folder / "given");
  write_small(folder / "env/mnist");
  write_small(folder / "home/datasets/mnist");
  const data::FindMnistOptions options = {
      .mnist = {.normalize = false}, .download = false, .synthetic_train = 20, .synthetic_test = 10};
  const std::string env = folder / "env";
  {
    const Surroundings in(folder / "home", env.c_str());
    CHECK(mentions(data::find_mnist(folder / "given", options).source, {"given"}));
    CHECK(mentions(data::find_mnist("", options).source, {"env/mnist", "$TAPIR_DATA"}));
    CHECK_THROWS_AS(data::find_mnist(folder / "bare", options),
                    RuntimeError);  // asked for: never something else silently
  }
  {
    const Surroundings in(folder / "home");
    const auto found = data::find_mnist("", options);
    CHECK(mentions(found.source, {"datasets/mnist"}));
    CHECK((found.train.size() == 6 && found.test.size() == 4));
  }
  const Surroundings in(folder / "bare");
  const auto made = data::find_mnist("", options);
  CHECK(mentions(made.source, {"generated"}));
  CHECK(made.source.find('\n') == std::string::npos);
  CHECK((made.train.size() == 20 && made.test.size() == 10));
}

TEST_CASE("download_mnist: only the right bytes get their names") {
  TemporaryFolder folder;
  mkdir((folder / "wrong").c_str(), 0755);
  for (const char* name : {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
                           "t10k-labels-idx1-ubyte.gz"})
    spit(folder / ("wrong/" + std::string(name)), "not the digits");
  CHECK_FALSE(
      data::download_mnist(folder / "a/b", {"file://" + folder.path + "/none", "file://" + folder.path + "/wrong"}));
  CHECK(access((folder / "a/b").c_str(), F_OK) != 0);
  if (!has_real() || access("/usr/bin/curl", X_OK) != 0) SKIP_TEST("no real MNIST beside the repository, or no curl");
  REQUIRE(data::download_mnist(folder / "a/b", {"file://" + folder.path + "/wrong", "file://" + kReal}));
  CHECK(names_in(folder / "a/b").size() == 4);
  CHECK(data::mnist(folder / "a/b", data::Split::Test).size() == 10000);
  spit(folder / "a/b/t10k-labels-idx1-ubyte.gz", "damaged since");
  CHECK(data::download_mnist(folder / "a/b", {"file://" + kReal}));
}

TEST_CASE("synthetic digits: balanced, reproducible, distinct, and told apart by their class") {
  const auto [images, labels] = data::synthetic_digits(3000, 1).tensors();
  CHECK((images.shape() == Shape{3000, 1, 28, 28} && images.dtype() == kFloat32));
  CHECK((labels.shape() == Shape{3000} && labels.dtype() == kInt64));
  const auto raw = data::synthetic_digits(50, 1, {.normalize = false}).tensors()[0];
  CHECK((raw.dtype() == kUInt8 &&
         raw.data<uint8_t>()[400] == uint8_t(std::lround((images.data<float>()[400] * 0.3081f + 0.1307f) * 255))));
  CHECK(data::synthetic_digits(50, 1).tensors()[0].to_vector<float>() == images.narrow(0, 0, 50).to_vector<float>());
  CHECK(data::synthetic_digits(50, 2).tensors()[0].to_vector<float>() != images.narrow(0, 0, 50).to_vector<float>());
  CHECK(data::synthetic_digits(0, 1).size() == 0);
  CHECK_THROWS_AS(data::synthetic_digits(-1, 1), ValueError);

  // The nearest of the other images has the same label, mostly: no network is needed to see that classes differ.
  const auto pixels = images.data<float>();
  int right = 0;
  std::array<int, 10> counts{};
  for (int64_t i = 0; i < 3000; ++i) ++counts[size_t(labels.data<int64_t>()[i])];
  for (const int count : counts) CHECK(count > 120);
  for (int64_t i = 0; i < 150; ++i) {
    float best = 1e30f;
    int64_t nearest = -1;
    for (int64_t k = 150; k < 3000; ++k) {
      float d = 0;
      for (int64_t p = 0; p < 784; ++p)
        d += (pixels[i * 784 + p] - pixels[k * 784 + p]) * (pixels[i * 784 + p] - pixels[k * 784 + p]);
      if (d < best) best = d, nearest = k;
    }
    right += labels.data<int64_t>()[i] == labels.data<int64_t>()[nearest];
  }
  CHECK(right > 112);
}
