#include <tapir/io/idx.h>

#include <tapir/io/gzip.h>
#include "../catch.h"
#include "temporary.h"

using namespace tapir;
using namespace tapir_tests;

namespace {
std::string refusal(const TemporaryFolder& folder, const std::string& bytes) {
  spit(folder / "x.idx", bytes);
  return message_of<RuntimeError>([&] { io::read_idx(folder / "x.idx"); });
}
std::string idx(std::initializer_list<int> bytes) { return {bytes.begin(), bytes.end()}; }
const std::string kThree = idx({0, 0, 8, 1, 0, 0, 0, 3, 5, 6, 7});
}  // namespace

TEST_CASE("IDX: every type, plain and compressed") {
  TemporaryFolder folder;
  for (const DType dtype : {kUInt8, kInt8, kInt16, kInt32, kFloat32, kFloat64})
    for (const Shape& shape : {Shape{2, 3, 4}, Shape{5}, Shape{0, 3}, Shape{1, 1}})
      for (const char* name : {"a.idx", "a.idx.gz"}) {
        Tensor x = empty(shape, {.dtype = dtype});
        const int64_t bytes = x.numel() * size_of(dtype);
        for (int64_t i = 0; i < bytes; ++i) static_cast<uint8_t*>(x.data_ptr())[i] = uint8_t(i * 37 % 120);
        io::write_idx(folder / name, x);
        const Tensor y = io::read_idx(folder / name);
        CHECK(y.dtype() == dtype);
        CHECK(y.shape() == shape);
        CHECK((bytes == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), size_t(bytes)) == 0));
      }
  spit(folder / "be", idx({0, 0, 0x0C, 1, 0, 0, 0, 2, 0, 0, 1, 2, -1, -1, -1, -2}));
  CHECK(io::read_idx(folder / "be").to_vector<int32_t>() == std::vector<int32_t>{258, -2});
  CHECK_THROWS_AS(io::write_idx(folder / "a", empty({2}, {.dtype = kInt64})), ValueError);
  CHECK_THROWS_AS(io::write_idx(folder / "a", empty({})), ValueError);
}

TEST_CASE("BI-241 BI-242 BI-243 IDX headers") {
  TemporaryFolder folder;
  for (const size_t size : {0, 1, 3})
    CHECK(mentions(refusal(folder, kThree.substr(0, size)), {"x.idx", "4 bytes", std::to_string(size).c_str()}));
  CHECK(mentions(refusal(folder, idx({0, 0, 0, 0})), {"magic 0", "08 09 0B 0C 0D 0E"}));
  CHECK(mentions(refusal(folder, idx({1, 0, 8, 1, 0, 0, 0, 0})), {"magic"}));
  CHECK(mentions(refusal(folder, idx({0, 0, 0x0A, 1, 0, 0, 0, 0})), {"magic 2561"}));
  CHECK(mentions(refusal(folder, idx({0, 0, 7, 1, 0, 0, 0, 0})), {"magic"}));
  CHECK(mentions(refusal(folder, idx({0, 0, 8, 0})), {"dimensions", "0"}));
  CHECK(mentions(refusal(folder, idx({0, 0, 8, -1, 0, 0})), {"255"}));
  CHECK(mentions(refusal(folder, idx({0, 0, 8, 3, 0, 0, 0, 1, 0})), {"16 bytes"}));
}

TEST_CASE("BI-244 BI-245 IDX sizes against the bytes present") {
  TemporaryFolder folder;
  const std::string huge = idx({0, 0, 14, 4, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1});
  CHECK(mentions(refusal(folder, huge), {"shape"}));
  CHECK(mentions(refusal(folder, idx({0, 0, 8, 4, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1})),
                 {"shape"}));
  const std::string mnist = idx({0, 0, 8, 3, 0, 0, -22, 96, 0, 0, 0, 28, 0, 0, 0, 28}) + std::string(1000, '\0');
  CHECK(mentions(refusal(folder, mnist), {"47040000", "1000", "few"}));
  CHECK(mentions(refusal(folder, io::gzip(mnist)), {"47040000"}));
  CHECK(mentions(refusal(folder, kThree + "xy"), {"3 bytes", "2 too many"}));
  CHECK(mentions(refusal(folder, io::gzip(kThree + "xy")), {"3 bytes", "more"}));
  CHECK(mentions(refusal(folder, kThree.substr(0, 9)), {"2 too few"}));
}

TEST_CASE("BI-247 gzip: members, truncation, bombs, garbage") {
  TemporaryFolder folder;
  const auto good = [&](const std::string& bytes) {
    spit(folder / "g", bytes);
    return io::read_idx(folder / "g").to_vector<uint8_t>() == std::vector<uint8_t>{5, 6, 7};
  };
  const std::string whole = io::gzip(kThree);
  CHECK(good(whole));
  CHECK(good(io::gzip(kThree.substr(0, 6)) + io::gzip(kThree.substr(6))));
  CHECK(good(whole + io::gzip("")));
  for (size_t n = 2; n < whole.size(); ++n) CHECK(mentions(refusal(folder, whole.substr(0, n)), {"x.idx"}));
  CHECK(mentions(refusal(folder, whole + "garbage"), {"gzip", "header"}));
  std::string flipped = whole;
  flipped[whole.size() - 6] ^= 1;  // of the check sum
  CHECK(mentions(refusal(folder, flipped), {"check"}));
  const std::string bomb = io::gzip(kThree + std::string(30'000'000, '\0'));
  CHECK(bomb.size() < 40000);
  CHECK(mentions(refusal(folder, bomb), {"more"}));
}

TEST_CASE("BI-240 IDX paths") {
  TemporaryFolder folder;
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  for (const auto& path : {folder / "none", folder.path, folder / "fifo"})
    CHECK(mentions(message_of<RuntimeError>([&] { io::read_idx(path); }), {"[read_idx]", path.c_str()}));
}

TEST_CASE("200 truncations and 200 bit flips of an IDX file: a typed error or a result") {
  TemporaryFolder folder;
  std::string plain = idx({0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 11});
  for (int i = 0; i < 385; ++i) plain += char(i * i);
  for (const auto& bytes : {plain, io::gzip(plain)}) {
    for (const auto& damaged : truncations(bytes, 200)) CHECK(!refusal(folder, damaged).empty());
    for (const auto& damaged : bit_flips(bytes, 200, 3))
      refusal(folder, damaged);  // any other exception fails the test
  }
}
