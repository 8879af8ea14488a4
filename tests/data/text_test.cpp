#include <tapir/data/text.h>

#include <tapir/ops/ops.h>

#include "../catch.h"
#include "../errors.h"
#include "../io/temporary.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("CharVocabulary and CharDataset") {
  const std::string text = "h\xc3\xa9llo \xf0\x9f\x98\x80 w\xe2\x82\xacrld";
  const data::CharVocabulary vocabulary(text);
  const Tensor tokens = vocabulary.encode(text);
  CHECK(tokens.numel() == 13);
  CHECK(vocabulary.size() == 10);
  CHECK(vocabulary.decode(tokens) == text);
  CHECK(vocabulary.decode(0) == " ");
  CHECK(mentions(error_of([&] { vocabulary.encode("hi"); }), {"\"i\"", "position 1"}));
  CHECK(!error_of([&] { vocabulary.encode("\xff"); }).empty());
  CHECK(!error_of([&] { vocabulary.decode(10); }).empty());
  CHECK_THROWS_AS(data::CharVocabulary("a\xff"), RuntimeError);
  const data::CharDataset windows(tokens, 4);
  CHECK(windows.size() == 9);
  const auto [x, y] = windows.get(8);
  CHECK(x.to_vector<int64_t>() == tokens.narrow(0, 8, 4).to_vector<int64_t>());
  CHECK(y.to_vector<int64_t>() == tokens.narrow(0, 9, 4).to_vector<int64_t>());
  CHECK_THROWS_AS(windows.get(9), ValueError);
  CHECK(mentions(error_of([&] { data::CharDataset(tokens, 13); }), {"13"}));
}

TEST_CASE("BI-264 BI-266 TokenFile: windows, sizes, vocabulary, a file that shrinks") {
  TemporaryFolder folder;
  const std::string path = folder / "t.bin";
  for (const DType dtype : {kInt16, kInt32})
    for (const bool map : {false, true}) {
      data::write_tokens(path, arange(100) + 65400, dtype);
      data::TokenFile file(path, 8, {.dtype = dtype, .stride = 3, .map = map});
      data::TokenFile moved = std::move(file);
      CHECK(moved.tokens() == 100);
      CHECK(moved.size() == 31);
      const auto [x, y] = moved.get(30);
      CHECK(x.to_vector<int64_t>() == arange(65490, 65498).to_vector<int64_t>());
      CHECK(y.to_vector<int64_t>() == arange(65491, 65499).to_vector<int64_t>());
      CHECK_THROWS_AS(moved.get(31), ValueError);
      data::TokenFile small(path, 8, {.dtype = dtype, .vocabulary = 65410, .map = map});
      small.get(0);
      CHECK(mentions(message_of<RuntimeError>([&] { small.get(5); }), {"t.bin", "65410", "position 10"}));
      REQUIRE(truncate(path.c_str(), 20) == 0);
      CHECK(mentions(message_of<RuntimeError>([&] { moved.get(20); }), {"t.bin"}));
    }
  spit(path, std::string(21, 'x'));
  CHECK(mentions(message_of<RuntimeError>([&] { data::TokenFile(path, 8); }), {"2 bytes", "21"}));
  spit(path, std::string(16, 'x'));
  CHECK(mentions(message_of<RuntimeError>([&] { data::TokenFile(path, 8); }), {"more than 8", "8"}));
  for (const auto& bad : {folder / "none", folder.path})
    CHECK(mentions(message_of<RuntimeError>([&] { data::TokenFile(bad, 8); }), {bad.c_str()}));
  CHECK(!error_of([&] { data::TokenFile(path, 0); }).empty());
  CHECK(!error_of([&] { data::TokenFile(path, 2, {.dtype = kFloat32}); }).empty());
  CHECK(mentions(error_of([&] { data::write_tokens(path, tensor({1, 65536})); }), {"65536", "position 1"}));
  CHECK(!error_of([&] { data::write_tokens(path, tensor({-1})); }).empty());
}
