// tests/fuzz/corpus/bpe holds three small tokenizers that Hugging Face's `tokenizers` trained; bpe_cases.json what tokenizers 0.23.3 makes of
// hostile texts: the text, then for each tokenizer its tokens as `encode` gives them, and without special tokens.
#include <tapir/data/bpe.h>
#include <tapir/io/file.h>
#include <tapir/io/json.h>

#include <thread>

#include "../catch.h"
#include "../io/temporary.h"
#include "source_dir.h"

using namespace tapir;
using namespace tapir_tests;
using Token = io::JsonReader::Token;

namespace {

const std::string kCorpus = TAPIR_SOURCE_DIR "/tests/fuzz/corpus/bpe/";

std::vector<int64_t> ids(const Tensor& tokens) { return tokens.to_vector<int64_t>(); }

/// A tokenizer.json of six tokens, changed: each pair is a part of it and what stands there instead.
std::string changed(std::initializer_list<std::pair<const char*, const char*>> changes) {
  std::string json =
      R"({"added_tokens":[{"id":5,"content":"<e>","special":true}],"normalizer":null,)"
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"post_processor":{"type":"ByteLevel"},)"
      R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
      R"("vocab":{"a":0,"b":1,"Ġ":2,"ab":3,"Ġab":4},"merges":["a b",["Ġ","ab"]]}})";
  for (auto& [part, other] : changes) {
    const size_t at = json.find(part);
    REQUIRE(at != std::string::npos);
    json.replace(at, std::strlen(part), other);
  }
  return json;
}
std::string refusal(const TemporaryFolder& folder, std::initializer_list<std::pair<const char*, const char*>> changes) {
  spit(folder / "t.json", changed(changes));
  return message_of<RuntimeError>([&] { data::BPETokenizer(folder / "t.json"); });
}

}  // namespace

TEST_CASE("BPE gives the tokens of Hugging Face's tokenizers, and takes them back") {
  const data::BPETokenizer tokenizers[] = {data::BPETokenizer(kCorpus + "gpt2.json"),
                                           data::BPETokenizer(kCorpus + "llama3.json"),
                                           data::BPETokenizer(kCorpus + "roberta.json")};
  const std::string text = io::read_file("test", TAPIR_SOURCE_DIR "/tests/data/bpe_cases.json");
  io::JsonReader json(text, "[cases]", 4);
  json.expect(Token::BeginArray, "the cases");
  int64_t count = 0;
  for (; json.next() == Token::BeginArray; ++count) {
    json.expect(Token::String, "the text");
    const std::string input(json.text());
    for (int which = 0; which < 6; ++which) {
      const data::BPETokenizer& tokenizer = tokenizers[which / 2];
      std::vector<int64_t> want;
      json.expect(Token::BeginArray, "the tokens");
      while (json.next() == Token::Number) json.to_int(want.emplace_back());
      INFO(input << " by tokenizer " << which);
      const Tensor got = which % 2 ? tokenizer.encode(input, {.allow_special = false, .add_special_tokens = false})
                                   : tokenizer.encode(input);
      CHECK(ids(got) == want);
      if (which < 4) CHECK(tokenizer.decode(got, {.skip_special_tokens = true}).size() <= input.size());
      if (which == 1 || which == 3) CHECK(tokenizer.decode(got) == input);
    }
    json.expect(Token::EndArray, "the end of a case");
  }
  CHECK(count > 80);
}

TEST_CASE("BPE: any bytes round trip") {
  for (const char* name : {"gpt2.json", "llama3.json"}) {
    const data::BPETokenizer tokenizer(kCorpus + name);
    for (uint64_t seed = 0; seed < 300; ++seed) {
      std::string bytes;
      for (uint64_t i = 0; i < seed; ++i) {
        const uint32_t word = Philox::block(seed, i).word[0];
        bytes += char(seed % 3 == 0 ? word : seed % 3 == 1 ? "\xE2\x80\xA8 \n'sa1"[word % 9] : 0x80 | (word & 0x7f));
      }
      const Tensor tokens = tokenizer.encode(bytes, {.allow_special = false, .add_special_tokens = false});
      CHECK(tokenizer.decode(tokens) == bytes);
      std::string piecewise;
      for (const int64_t token : ids(tokens)) piecewise += tokenizer.decode(token);
      CHECK(piecewise == bytes);
    }
  }
}

TEST_CASE("BPE: a vocabulary and merges of GPT-2's form, tokens by name, special tokens") {
  const TemporaryFolder folder;
  spit(folder / "vocab.json", R"({"a":0,"b":1,"Ġ":2,"ab":3,"Ġab":4,"<|endoftext|>":5})");
  spit(folder / "merges.txt", "#version: 0.2\na b\r\n\nĠ ab");
  const data::BPETokenizer t(folder / "vocab.json", folder / "merges.txt");
  CHECK(t.size() == 6);
  CHECK(ids(t.encode("ab ab a<|endoftext|>b")) == std::vector<int64_t>{3, 4, 2, 0, 5, 1});
  CHECK(t.encode("").shape() == Shape{0});
  CHECK(t.decode({3, 4, 5}) == "ab ab<|endoftext|>");
  CHECK(t.decode(tensor({4, 5, 1}), {.skip_special_tokens = true}) == " abb");
  CHECK(t.token_to_id("Ġab") == 4);
  CHECK(!t.token_to_id("c"));
  CHECK(t.id_to_token(4) == "Ġab");
  CHECK_THROWS_AS(t.decode(6), ValueError);
  CHECK_THROWS_AS(t.decode({0, -1}), ValueError);
  CHECK_THROWS_AS(t.id_to_token(6), ValueError);
  CHECK(mentions(message_of<ValueError>([&] { t.encode("abc"); }), {"vocabulary", "99"}));
  CHECK_THROWS_AS(t.encode("<|endoftext|>", {.allow_special = false}), ValueError);
  spit(folder / "merges.txt", "a b\na b Ġ\n");
  CHECK(mentions(message_of<RuntimeError>([&] { data::BPETokenizer(folder / "vocab.json", folder / "merges.txt"); }),
                 {"merges.txt", "line 2"}));
}

TEST_CASE("BPE: long words in time that is not the square of their length, one tokenizer for many threads") {
  const data::BPETokenizer tokenizer(kCorpus + "gpt2.json");
  std::string letters;
  for (uint64_t i = 0; i < 200000; ++i) letters += char('a' + Philox::block(3, i).word[0] % 26);
  const std::vector<int64_t> want = ids(tokenizer.encode(letters));
  CHECK(tokenizer.decode(want) == letters);
  std::vector<std::thread> threads;
  std::vector<std::vector<int64_t>> got(4);
  for (auto& g : got) threads.emplace_back([&] { g = ids(tokenizer.encode(letters)); });
  for (std::thread& t : threads) t.join();
  for (auto& g : got) CHECK(g == want);
}

TEST_CASE("BI-265 a tokenizer.json that would be mistaken is an error that names the field") {
  const TemporaryFolder folder;
  CHECK(refusal(folder, {}).empty());
  const auto says = [&](std::initializer_list<std::pair<const char*, const char*>> changes,
                        std::initializer_list<const char*> words) {
    const std::string message = refusal(folder, changes);
    INFO(message);
    CHECK(mentions(message, words));
    CHECK(mentions(message, {"[BPETokenizer]", "t.json", "expected"}));
  };
  const char* pre = R"({"type":"ByteLevel","add_prefix_space":false})";
  says({{pre, R"({"type":"Metaspace"})"}}, {"pre_tokenizer.type", "Metaspace"});
  says({{pre, "null"}}, {"pre_tokenizer", "ByteLevel"});
  says({{pre,
         R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"x"},"behavior":"Isolated"}]})"}},
       {"pre_tokenizer.pretokenizers[0].pattern.Regex", "\"x\""});
  says({{"\"add_prefix_space\":false", "\"strange\":1"}}, {"strange", "pre_tokenizer"});
  says({{R"("normalizer":null)", R"("normalizer":{"type":"NFC"})"}}, {"normalizer.type", "NFC"});
  says({{R"("decoder":{"type":"ByteLevel"})", R"("decoder":{"type":"Fuse"})"}}, {"decoder.type", "Fuse"});
  says({{R"({"type":"ByteLevel"},"decoder")", R"({"type":"X"},"decoder")"}}, {"post_processor.type", "X"});
  says({{R"("type":"BPE")", R"("type":"WordPiece")"}}, {"model.type", "WordPiece"});
  says({{R"("dropout":null)", R"("dropout":0.5)"}}, {"model.dropout"});
  says({{R"("dropout":null)", R"("byte_fallback":true)"}}, {"model.byte_fallback"});
  says({{R"("dropout":null)", R"("end_of_word_suffix":"</w>")"}}, {"model.end_of_word_suffix", "</w>"});
  says({{R"("unk_token":null)", R"("unk_token":"<u>")"}}, {"model.unk_token", "<u>"});
  says({{R"("unk_token":null)", R"("new":1)"}}, {"new", "model"});
  says({{"\"a b\"", "\"a c\""}}, {"merges[0]", "\"c\" is none"});
  says({{"\"a b\"", "\"b a\""}}, {"merges[0]", "\"ba\" is none"});
  says({{"\"a b\"", "\"ab\""}}, {"merges"});
  says({{R"(["Ġ","ab"])", R"(["Ġ","ab","a"])"}}, {"merge"});
  says({{"\"ab\":3", "\"ab\":1"}}, {"vocab", "\"b\"", "\"ab\""});
  says({{"\"ab\":3", "\"a\":3"}}, {"vocab", "\"a\" twice"});
  says({{"\"ab\":3", "\"ab\":-3"}}, {"id", "-3"});
  says({{"\"ab\":3", "\"ab\":3000000000"}}, {"vocab", "3000000000"});
  says({{"\"id\":5", "\"id\":4"}}, {"added_tokens[0]", "4"});
  says({{R"("id":5,"content":"<e>")", R"("id":5,"content":"ab")"}}, {"added_tokens[0].id", "3"});
  says({{"\"special\":true", "\"single_word\":true"}}, {"added_tokens[0].single_word"});
  says({{R"("merges":[)", R"("merged":[)"}}, {"merges"});
  says({{R"("post_processor":{"type":"ByteLevel"})",
         R"("post_processor":{"type":"BertProcessing","cls":["x",9],"sep":["y",0]})"}},
       {"post_processor", "9"});
  for (const char* text :
       {"", "[]", "{}", "{\"model\":3}", "{\"model\":{}}", "{\"model\":{\"vocab\":{},\"merges\":{}}}"}) {
    spit(folder / "t.json", text);
    CHECK_THROWS_AS(data::BPETokenizer(folder / "t.json"), RuntimeError);
  }
  CHECK_THROWS_AS(data::BPETokenizer(folder / "missing.json"), RuntimeError);
  const std::string whole = slurp(kCorpus + "llama3.json");
  for (const std::string& damaged : truncations(whole, 60)) {
    spit(folder / "t.json", damaged);
    CHECK_THROWS_AS(data::BPETokenizer(folder / "t.json"), RuntimeError);
  }
  for (const std::string& damaged : bit_flips(whole, 300, 7)) {
    spit(folder / "t.json", damaged);
    message_of<RuntimeError>([&] { data::BPETokenizer(folder / "t.json"); });  // nothing else, and no crash
  }
}
