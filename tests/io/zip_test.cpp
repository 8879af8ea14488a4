#include <tapir/io/zip.h>

#include "../catch.h"
#include "temporary.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

std::string archive(bool deflate = false, int64_t align = 1) {
  TemporaryFolder folder;
  io::OutputFile file("test", folder / "z");
  io::ZipWriter zip(file);
  zip.add("one", std::string(500, 'a'), {.align = align, .deflate = deflate});
  zip.add("two", "bb", {.align = align, .deflate = deflate});
  zip.finish();
  file.commit();
  return slurp(folder / "z");
}
std::string refusal(const std::string& bytes, bool read = false) {
  TemporaryFolder folder;
  spit(folder / "x.zip", bytes);
  return message_of<RuntimeError>([&] {
    io::ZipReader zip("read", folder / "x.zip");
    if (read)
      for (const auto& m : zip.members()) zip.read(m, 1 << 20);
  });
}
void put(std::string& bytes, size_t at, uint64_t v, int size) {
  for (int i = 0; i < size; ++i) bytes[at + size_t(i)] = char(v >> 8 * i);
}
/// Where the entry of that member begins in the directory, and the end record.
size_t member(const std::string& bytes, int number) {
  size_t at = bytes.find("PK\1\2");
  while (number-- > 0) at = bytes.find("PK\1\2", at + 1);
  return at;
}
size_t end_record(const std::string& bytes) { return bytes.rfind("PK\5\6"); }

}  // namespace

TEST_CASE("zip: members come back, stored and deflated, aligned") {
  TemporaryFolder folder;
  for (const bool deflate : {false, true}) {
    spit(folder / "z", archive(deflate, 64));
    io::ZipReader zip("read", folder / "z");
    REQUIRE(zip.members().size() == 2);
    CHECK(zip.read(*zip.find("one"), 500) == std::string(500, 'a'));
    CHECK(zip.read(*zip.find("two"), 500) == "bb");
    CHECK(zip.find("three") == nullptr);
    for (const auto& m : zip.members()) CHECK(m.data_at % 64 == 0);
    CHECK(mentions(message_of<RuntimeError>([&] { zip.read(*zip.find("one"), 499); }), {"one", "499", "500"}));
    io::ZipStream stream(zip, *zip.find("one"));
    char c = 0;
    stream.read(&c, 1);
    CHECK_THROWS_AS(stream.finish(), RuntimeError);
    char more[500];
    CHECK_THROWS_AS(stream.read(more, 500), RuntimeError);
  }
}

TEST_CASE("BI-286 BI-287 zip: directory, headers, zip64") {
  const std::string good = archive();
  CHECK(refusal(good, true).empty());
  CHECK(refusal(good + "x").find("end of its directory") != std::string::npos);
  const auto changed = [&](size_t at, uint64_t v, int size) {
    std::string bytes = good;
    put(bytes, at, v, size);
    return refusal(bytes, true);
  };
  const size_t end = end_record(good), one = member(good, 0), two = member(good, 1);
  CHECK(mentions(changed(end + 10, 3, 2), {"several"}));
  std::string bytes = good;
  put(bytes, end + 8, 1, 2), put(bytes, end + 10, 1, 2);
  CHECK(mentions(refusal(bytes), {"1 members", "more"}));
  put(bytes, end + 8, 3, 2), put(bytes, end + 10, 3, 2);
  CHECK(mentions(refusal(bytes), {"at most 2 members", "3"}));
  put(bytes, end + 8, 60000, 2), put(bytes, end + 10, 60000, 2);
  CHECK(mentions(refusal(bytes), {"60000"}));
  CHECK(mentions(changed(end + 16, 0x7fffffff, 4), {"directory", "2147483647"}));
  CHECK(mentions(changed(end + 12, 0, 4), {"directory"}));
  CHECK(mentions(changed(end + 4, 1, 2), {"several"}));
  CHECK(mentions(changed(one + 8, 1, 2), {"one", "encrypted"}));
  CHECK(mentions(changed(one + 10, 12, 2), {"one", "method", "12"}));
  CHECK(mentions(changed(one + 42, 1, 4), {"one", "header"}));
  CHECK(mentions(changed(two + 42, 0x7ffffff0, 4), {"two", "impossible"}));
  CHECK(mentions(changed(one + 20, 499, 4), {"one", "impossible"}));
  CHECK(mentions(changed(one + 46, 'x', 1), {"disagree"}));
  CHECK(mentions(changed(14, 0, 4), {"one", "disagree"}));
  CHECK(mentions(changed(18, 7, 4), {"one", "disagree"}));
  CHECK(mentions(changed(6, 9, 2), {"one", "disagree"}));
  CHECK(mentions(changed(26, 60000, 2), {"x.zip"}));
  CHECK(mentions(changed(40, 'b', 1), {"one", "CRC-32"}));
  bytes = good;  // both entries are the first member
  bytes.replace(two + 46, 3, "one");
  CHECK(!refusal(bytes).empty());
  bytes = good;  // the first member covers the second
  for (const size_t at : {size_t(18), size_t(22), one + 20, one + 24}) put(bytes, at, 520, 4);
  CHECK(mentions(refusal(bytes), {"one", "520"}));

  const std::string packed = archive(true);
  const size_t first = member(packed, 0);
  const auto repacked = [&](uint64_t size) {
    std::string b = packed;
    put(b, 22, size, 4), put(b, first + 24, size, 4);
    return refusal(b, true);
  };
  CHECK(mentions(repacked(499), {"one", "more"}));
  CHECK(mentions(repacked(501), {"one"}));
  CHECK(mentions(repacked(0x7fffffff), {"one", "impossible"}));  // more than deflate can pack: nothing is allocated
}

TEST_CASE("zip: 70000 members make a zip64 directory, which may not lie") {
  TemporaryFolder folder;
  {
    io::OutputFile file("test", folder / "z");
    io::ZipWriter zip(file);
    for (int i = 0; i < 70000; ++i) zip.add(std::to_string(i), "x");
    zip.finish();
    file.commit();
  }
  io::ZipReader zip("read", folder / "z");
  CHECK(zip.members().size() == 70000);
  CHECK(zip.read(*zip.find("69999"), 10) == "x");
  std::string bytes = slurp(folder / "z");
  const size_t record = bytes.rfind("PK\6\6");
  for (const size_t field : {4, 24, 32, 40, 48}) {
    std::string lie = bytes;
    lie[record + field] = char(lie[record + field] ^ 1);
    CHECK(mentions(refusal(lie), {"x.zip"}));
  }
  std::string lie = bytes;
  put(lie, bytes.rfind("PK\6\7") + 8, uint64_t(1) << 63, 8);
  CHECK(mentions(refusal(lie), {"zip64"}));
}
