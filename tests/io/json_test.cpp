#include <tapir/io/json.h>

#include "../catch.h"
#include "temporary.h"

using namespace tapir;
using namespace tapir_tests;
using Token = io::JsonReader::Token;

namespace {
std::string tokens(std::string_view text, int depth = 8) {
  io::JsonReader json(text, "[t]", depth);
  std::string out;
  for (Token token = json.next(); token != Token::End; token = json.next()) {
    out += "{}[]KSNTFZ"[int(token)];
    if (token == Token::Key || token == Token::String || token == Token::Number)
      out += "<" + std::string(json.text()) + ">";
  }
  return out;
}
}  // namespace

TEST_CASE("JSON tokens") {
  CHECK(tokens(R"( {"a": [1, -2.5e+3, 0], "b":{}, "c": [[]], "d": null, "e":true,"f":false} )") ==
        "{K<a>[N<1>N<-2.5e+3>N<0>]K<b>{}K<c>[[]]K<d>ZK<e>TK<f>F}");
  CHECK(tokens("3") == "N<3>");
  CHECK(tokens(R"(["\u0061\n\"\\\/\u20ac\ud83d\ude00", "\u0000"])") ==
        std::string("[S<a\n\"\\/\xe2\x82\xac\xf0\x9f\x98\x80>S<\0>]", 21));
}

TEST_CASE("BI-269 what is not JSON is an error with its offset") {
  for (const char* text :
       {"",         " ",          "{",       "[",         "}",           "[1,]",        "{\"a\"}",
        "{\"a\":}", "{\"a\":1,}", "{a:1}",   "{'a':1}",   "[1 2]",       "01",          "1.",
        ".5",       "+1",         "1e",      "-",         "nul",         "tru",         "NaN",
        "Infinity", "\"",         "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0061\"",
        "\"a\nb\"", "{} {}",      "[] x",    "{\"a\":1]", "[1}",         "[,1]",        "{,}",
        "//",       "[1]\x01"})
    CHECK(mentions(message_of<RuntimeError>([&] { tokens(text); }), {"[t]", "expected", "at byte"}));
  CHECK_THROWS_AS(tokens(std::string("{}\0\0", 4)), RuntimeError);
  CHECK(mentions(message_of<RuntimeError>([&] { tokens("[\"\xed\xa0\x80\"]"); }), {"UTF-8", "byte 2"}));
}

TEST_CASE("BI-272 depth is bounded") {
  CHECK(tokens("[[[[]]]]", 4) == "[[[[]]]]");
  CHECK_THROWS_AS(tokens("[[[[[]]]]]", 4), RuntimeError);
  CHECK_THROWS_AS(tokens(std::string(1000000, '['), 64), RuntimeError);
}

TEST_CASE("JSON integers, skipping, writing") {
  io::JsonReader json("[7, -1, 1.0, 9223372036854775807, 9223372036854775808, {\"x\":[1,{}]}, 5]", "[t]", 8);
  json.expect(Token::BeginArray, "the list");
  const int64_t good[] = {7, -1, -1, INT64_MAX, -1};
  for (const int64_t wanted : good) {
    int64_t value = -1;
    json.expect(Token::Number, "a number");
    CHECK(json.to_int(value) == (wanted >= 0));
    if (wanted >= 0) CHECK(value == wanted);
  }
  json.skip(json.next());
  json.expect(Token::Number, "a number");
  CHECK(json.text() == "5");
  CHECK(mentions(message_of<RuntimeError>([&] { json.expect(Token::String, "the name", "x"); }),
                 {"a string as the name of \"x\""}));
  std::string out;
  io::append_json_string(out, std::string_view("a\"\\\n\x01\xc3\xa9", 7));
  CHECK(out == "\"a\\\"\\\\\\n\\u0001\xc3\xa9\"");
  CHECK(tokens(out).size() == 7 + 3);
  CHECK_THROWS_AS(io::append_json_string(out, "\xff"), ValueError);
}
