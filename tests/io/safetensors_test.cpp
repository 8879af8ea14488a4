#include <tapir/io/safetensors.h>

#include <sys/resource.h>
#include <sys/wait.h>

#include "../catch.h"
#include "source_dir.h"
#include "temporary.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

std::string with_header(const std::string& json, const std::string& data = "") {
  const uint64_t size = json.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + json + data;
}
std::string one(const std::string& shape, const std::string& offsets, const std::string& dtype = "\"U8\"") {
  return "{\"w\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}
std::string refusal_of(const std::string& bytes) {
  TemporaryFolder folder;
  spit(folder / "x", bytes);
  return message_of<RuntimeError>([&] { io::load_safetensors(folder / "x"); });
}
std::string refusal(const std::string& json, const std::string& data = "") {
  return refusal_of(with_header(json, data));
}
Tensor bytes_tensor(DType dtype, const Shape& shape, int salt = 0) {
  Tensor x = empty(shape, {.dtype = dtype});
  for (int64_t i = 0; i < x.numel() * size_of(dtype); ++i)
    static_cast<uint8_t*>(x.data_ptr())[i] = uint8_t(dtype == kBool ? i % 2 : (i * 31 + salt) % 251);
  return x;
}
bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.numel() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), size_t(a.numel() * size_of(a.dtype()))) == 0);
}
constexpr DType kAll[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};
StateDict sample_state() {
  StateDict state;
  for (const DType dtype : kAll)
    state.set(std::string("layer.") + std::string(name_of(dtype)), bytes_tensor(dtype, {2, 3}, int(dtype)));
  state.set("scalar", bytes_tensor(kFloat32, {}));
  state.set("empty", bytes_tensor(kFloat64, {0, 4}));
  return state;
}

}  // namespace

TEST_CASE("safetensors: what is saved comes back, metadata too") {
  TemporaryFolder folder;
  const auto state = sample_state();
  const io::Metadata metadata = {{"note", "a \"quoted\"\nline \xc3\xa9"}, {"", ""}};
  for (const bool checksum : {true, false}) {
    io::save_safetensors(folder / "m", state, metadata, {.checksum = checksum});
    io::Metadata read;
    const auto back = io::load_safetensors(folder / "m", &read);
    REQUIRE(back.size() == state.size());
    for (const auto& [name, tensor] : state) CHECK(same(back.at(name), tensor));
    CHECK(read.size() == (checksum ? 3 : 2));
    CHECK(read[0] == metadata[0]);
    io::save_safetensors(folder / "again", back, read);  // what was read can be written
    io::SafetensorsFile file(folder / "again");
    CHECK(same(file.read("scalar"), state.at("scalar")));
    CHECK(file.find("none") == -1);
    CHECK_THROWS_AS(file.read("none"), ValueError);
    CHECK_THROWS_AS(file.read(99), ValueError);
  }
}

TEST_CASE("safetensors: the reference writer's bytes") {
  TemporaryFolder folder;
  const char* base = std::getenv("TAPIR_CONFORMANCE");
  const std::string cases =
      (base ? std::string(base) : std::string(TAPIR_SOURCE_DIR) + "/../shared/conformance") + "/files/";
  if (access(cases.c_str(), R_OK) != 0) SKIP_TEST("no conformance cases");
  for (const char* number : {"000", "001", "002", "003"}) {
    const std::string path = cases + "safetensors_" + number + ".safetensors";
    io::Metadata metadata;
    const auto state = io::load_safetensors(path, &metadata);
    io::save_safetensors(folder / "m", state, metadata, {.checksum = false});
    CHECK(slurp(folder / "m") == slurp(path));
  }
  int damaged = 0;
  for (const auto& name : names_in(cases))
    if (name.starts_with("damaged_safetensors_")) {
      CHECK_THROWS_AS(io::load_safetensors(cases + name), RuntimeError);
      ++damaged;
    }
  CHECK(damaged > 0);
}

TEST_CASE("BI-267 BI-268 safetensors: length of the header") {
  for (const size_t n : {0, 1, 7})
    CHECK(mentions(refusal_of(std::string(n, 'x')), {"8 bytes", std::to_string(n).c_str()}));
  CHECK(mentions(refusal_of(std::string(8, '\xff')), {"18446744073709551615", "100000000"}));
  for (const uint64_t size : {uint64_t(100'000'001), uint64_t(3), uint64_t(1) << 63})
    CHECK(mentions(refusal_of(std::string(reinterpret_cast<const char*>(&size), 8) + "{}"),
                   {std::to_string(size).c_str()}));
}

TEST_CASE("BI-269 BI-270 safetensors: the header is JSON in UTF-8, an object") {
  for (const char* json : {"", "[]", "3", "\"x\"", "null", "{", "{\"\xff\":1}", "{\"\\ud800\":{}}", "{}x"})
    CHECK(mentions(refusal(json), {"[load_safetensors]", "byte"}));
  CHECK(!refusal(std::string("{}\0\0\0\0\0\0", 8)).empty());
  CHECK(refusal("  {} \n ").empty());
  CHECK(refusal("{}").empty());
}

TEST_CASE("BI-271 safetensors: duplicate keys, after unescaping too") {
  const std::string t = ":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  CHECK(mentions(refusal("{\"a\"" + t + ",\"b\"" + t + ",\"a\"" + t + "}"), {"\"a\" twice"}));
  CHECK(mentions(refusal("{\"a\"" + t + ",\"\\u0061\"" + t + "}"), {"\"a\" twice"}));
  CHECK(mentions(refusal("{\"__metadata__\":{\"k\":\"1\",\"\\u006b\":\"2\"}}"), {"\"k\" twice"}));
  CHECK(!refusal("{\"__metadata__\":{},\"__metadata__\":{}}").empty());
  CHECK(mentions(refusal("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"),
                 {"dtype", "once"}));
}

TEST_CASE("BI-272 safetensors: nesting") {
  CHECK(mentions(refusal(std::string(50'000'000, '[')), {"object", "header"}));
  CHECK(mentions(refusal("{\"a\":{\"x\":" + std::string(50'000'000, '[') + "}"), {"nesting"}));
}

TEST_CASE("BI-273 safetensors: a header of many tensors takes linear time and memory") {
  std::string json = "{";
  json.reserve(40'000'000);
  for (int i = 0; i < 400'000; ++i)
    json += (i ? ",\"" : "\"") + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" +
            std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  json += '}';
  TemporaryFolder folder;
  spit(folder / "x", with_header(json, std::string(400'000, '\7')));
  const auto state = io::load_safetensors(folder / "x");
  CHECK(state.size() == 400'000);
  CHECK(state.begin()[399'999].second.item<int>() == 7);
}

TEST_CASE("BI-274 BI-275 safetensors: shapes") {
  for (const char* dim : {"-1", "1.5", "1e2", "9223372036854775808", "\"2\"", "true", "null", "[1]", "{}"})
    CHECK(mentions(refusal(one("[" + std::string(dim) + "]", "[0,2]"), "xx"), {"\"w\"", "shape"}));
  for (const char* shape : {"2", "null", "{}", "\"2\""})
    CHECK(mentions(refusal(one(shape, "[0,2]"), "xx"), {"\"w\"", "shape"}));
  for (const char* shape : {"[9223372036854775807,4]", "[4294967296,4294967296]", "[4611686018427387904,4]",
                            "[0,4611686018427387904,4611686018427387904]", "[1152921504606846976,2]"})
    CHECK(mentions(refusal(one(shape, "[0,2]", "\"F64\""), "xx"), {"\"w\"", "shape"}));
  CHECK(mentions(refusal(one("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), "x"), {"\"w\"", "17"}));
}

TEST_CASE("BI-276 BI-277 safetensors: offsets") {
  const auto two = [](const char* a, const char* b, int bytes) {
    return refusal("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" + std::string(a) +
                       "},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" + b + "}}",
                   std::string(size_t(bytes), 'x'));
  };
  CHECK(two("[0,2]", "[2,4]", 4).empty());
  CHECK(two("[2,4]", "[0,2]", 4).empty());  // order in the header is free
  CHECK(mentions(two("[2,0]", "[2,4]", 4), {"\"a\"", "[2, 0]"}));
  CHECK(mentions(two("[0,2]", "[1,3]", 4), {"\"b\"", "[1, 3]"}));
  CHECK(mentions(two("[0,2]", "[0,2]", 4), {"[0, 2]"}));
  CHECK(mentions(two("[0,2]", "[3,5]", 5), {"\"b\"", "[3, 5]"}));
  CHECK(mentions(two("[1,3]", "[3,5]", 5), {"\"a\"", "[1, 3]"}));
  CHECK(mentions(two("[0,2]", "[2,4]", 3), {"\"b\"", "[2, 4]"}));
  CHECK(mentions(two("[0,2]", "[2,4]", 5), {"4 bytes", "5"}));
  CHECK(mentions(two("[0,2]", "[2,5]", 5), {"2 bytes", "3 bytes"}));
  for (const char* offsets :
       {"[0]", "[0,1,2]", "[-1,1]", "[0,1.0]", "[0,\"2\"]", "3", "[0,99999999999999999999]", "[]"})
    CHECK(mentions(refusal(one("[2]", offsets), "xx"), {"data_offsets", "\"w\""}));
  CHECK(mentions(refusal("{\"w\":{\"dtype\":\"U8\",\"shape\":[2]}}", "xx"), {"data_offsets", "\"w\""}));
}

TEST_CASE("BI-278 safetensors: dtypes that Tapir lacks leave the others readable") {
  TemporaryFolder folder;
  spit(folder / "x",
       with_header(
           "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
           "\"data_offsets\":[2,4]},\"c\":{\"dtype\":\"NEW9\",\"shape\":[2],\"data_offsets\":[4,5]}}",
           "xxyyz"));
  io::SafetensorsFile file(folder / "x");
  CHECK(file.read("b").to_vector<uint8_t>() == std::vector<uint8_t>{'y', 'y'});
  CHECK(mentions(message_of<RuntimeError>([&] { file.read("a"); }), {"\"a\"", "F8_E4M3", "BF16"}));
  CHECK(mentions(message_of<RuntimeError>([&] { file.read("c"); }), {"\"c\"", "NEW9"}));
  CHECK_THROWS_AS(io::load_safetensors(folder / "x"), RuntimeError);
  for (const char* dtype : {"U16", "U32", "U64", "C64", "F4"})
    CHECK(!refusal(one("[8]", "[0,8]", "\"" + std::string(dtype) + "\""), "xxxxxxxx").empty());
  CHECK(mentions(refusal(one("[3]", "[0,2]", "\"F4\""), "xx"), {"whole bytes", "\"w\""}));
  CHECK(mentions(refusal(one("[2]", "[0,2]", "7"), "xx"), {"dtype", "\"w\""}));
}

TEST_CASE("BI-279 safetensors: metadata") {
  for (const char* value : {"3", "null", "[]", "{\"a\":1}", "{\"a\":null}", "{\"a\":{}}"})
    CHECK(mentions(refusal("{\"__metadata__\":" + std::string(value) + "}"), {"metadata"}));
  CHECK(refusal("{\"__metadata__\":{\"a\":\"b\"}}").empty());
}

TEST_CASE("BI-280 safetensors: a name is only a name") {
  TemporaryFolder folder;
  StateDict state;
  for (const std::string& name :
       {std::string(), std::string("../../x"), std::string("a\nb\0c", 5), std::string(10'000'000, 'n')})
    state.set(name, bytes_tensor(kUInt8, {1}));
  io::save_safetensors(folder / "x", state);
  CHECK(io::load_safetensors(folder / "x").size() == 4);
  CHECK(names_in(folder.path).size() == 1);
  const auto message = refusal("{\"" + std::string(1'000'000, 'n') + "\":3}");
  CHECK((message.size() < 500 && mentions(message, {"1000000 bytes"})));
}

TEST_CASE("BI-281 safetensors: empty, 0-dim, NaN payload; bools become 0 and 1") {
  TemporaryFolder folder;
  const std::string nan("\x01\x00\xc0\x7f", 4);
  spit(folder / "x", with_header(one("[]", "[0,4]", "\"F32\""), nan));
  CHECK(std::memcmp(io::load_safetensors(folder / "x").at("w").data_ptr(), nan.data(), 4) == 0);
  spit(folder / "y", with_header(one("[3]", "[0,3]", "\"BOOL\""), std::string("\x00\x02\xff", 3)));
  CHECK(io::load_safetensors(folder / "y").at("w").to_vector<bool>() == std::vector<bool>{false, true, true});
  spit(folder / "z", with_header(one("[0,5]", "[0,0]", "\"F32\"")));
  CHECK(io::load_safetensors(folder / "z").at("w").shape() == Shape{0, 5});
  for (const DType dtype : {kFloat32, kFloat64, kBool})  // all that a tensor can be comes back
    for (int bit = 58; bit < 63; ++bit) {
      const int64_t n = int64_t(1) << bit;
      Tensor wide;
      try {
        wide = zeros({0, n}, {.dtype = dtype});
      } catch (const ValueError&) {
        break;
      }
      io::save_safetensors(folder / "wide", {{"w", wide}});
      CHECK(io::load_safetensors(folder / "wide").at("w").shape() == Shape{0, n});
    }
}

TEST_CASE("BI-282 safetensors: sharded checkpoints") {
  TemporaryFolder folder;
  StateDict first, second;
  first.set("a", bytes_tensor(kUInt8, {2}));
  second.set("b", bytes_tensor(kUInt8, {3}));
  io::save_safetensors(folder / "m-1.safetensors", first);
  io::save_safetensors(folder / "m-2.safetensors", second);
  const auto load = [&](const std::string& map) {
    spit(folder / "m.safetensors.index.json", "{\"metadata\":{\"total_size\":5},\"weight_map\":" + map + "}");
    return io::load_safetensors(folder / "m.safetensors.index.json");
  };
  const auto whole = load(R"({"b":"m-2.safetensors","a":"m-1.safetensors"})");
  CHECK((whole.size() == 2 && same(whole.at("a"), first.at("a")) && same(whole.at("b"), second.at("b"))));
  REQUIRE(symlink("m-1.safetensors", (folder / "link.safetensors").c_str()) == 0);
  for (const char* shard : {"../m-1.safetensors", "/etc/passwd", "", ".", "..", "none.safetensors", "link.safetensors",
                            "x\\u0000y", "m-2.safetensors"})
    CHECK(mentions(message_of<RuntimeError>([&] { load("{\"a\":\"" + std::string(shard) + "\"}"); }), {"m"}));
  for (const char* map : {"3", "{\"a\":3}", "{\"a\":\"m-1.safetensors\",\"\\u0061\":\"m-1.safetensors\"}"})
    CHECK_THROWS_AS(load(map), RuntimeError);
  spit(folder / "m.safetensors.index.json", "{}");
  CHECK_THROWS_AS(io::load_safetensors(folder / "m.safetensors.index.json"), RuntimeError);
}

TEST_CASE("BI-283 safetensors: no flipped bit of our files stays unseen") {
  TemporaryFolder folder;
  io::save_safetensors(folder / "x", sample_state(), {{"epoch", "3"}});
  const auto bytes = slurp(folder / "x");
  std::string flipped = bytes;
  flipped.back() ^= 4;
  CHECK(mentions(refusal_of(flipped), {"checksum", "\"layer.bool\""}));
  int silent = 0;
  std::string copy = bytes;
  for (size_t at = 0; at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      copy[at] = char(bytes[at] ^ 1 << bit);
      spit(folder / "y", copy);
      silent += message_of<RuntimeError>([&] { io::load_safetensors(folder / "y"); }).empty();
      copy[at] = bytes[at];
    }
  CHECK(silent == 0);
}

TEST_CASE("200 truncations and 200 bit flips of a safetensors file: a typed error or a result") {
  TemporaryFolder folder;
  for (const bool checksum : {true, false}) {
    io::save_safetensors(folder / "x", sample_state(), {}, {.checksum = checksum});
    const auto bytes = slurp(folder / "x");
    for (const auto& damaged : truncations(bytes, 200)) CHECK(!refusal_of(damaged).empty());
    for (const auto& damaged : bit_flips(bytes, 200, 5)) refusal_of(damaged);  // any other exception fails the test
  }
}

TEST_CASE("safetensors: what cannot be written is refused before the file is touched") {
  TemporaryFolder folder;
  spit(folder / "x", "old");
  const Tensor t = bytes_tensor(kUInt8, {1});
  StateDict twice;
  twice.append("a", t);
  twice.append("a", t);
  const auto refused = [&](const StateDict& state, const io::Metadata& metadata = {}) {
    return message_of<ValueError>([&] { io::save_safetensors(folder / "x", state, metadata); });
  };
  CHECK(mentions(refused(twice), {"\"a\" twice"}));
  CHECK(mentions(refused({{"a", Tensor()}}), {"undefined", "\"a\""}));
  CHECK(mentions(refused({{"__metadata__", t}}), {"__metadata__"}));
  CHECK(mentions(refused({{"\xff", t}}), {"UTF-8"}));
  CHECK(mentions(refused({}, {{"k", "1"}, {"k", "2"}}), {"\"k\" twice"}));
  CHECK(mentions(refused({}, {{"k", "\xff"}}), {"UTF-8"}));
  CHECK(mentions(refused({}, {{"tapir.crc32", "1"}}), {"tapir.crc32"}));
  CHECK(slurp(folder / "x") == "old");
}

TEST_CASE("BI-313 BI-314 safetensors: saving fails at the k-th call") {
  for (const int error : {ENOSPC, EIO})
    for (int k = 1, done = 0; !done; ++k) {
      TemporaryFolder folder;
      StateDict old{{"a", bytes_tensor(kFloat32, {4}, 1)}},
          next{{"a", bytes_tensor(kFloat32, {4}, 2)}, {"b", bytes_tensor(kInt8, {3})}};
      io::save_safetensors(folder / "x", old);
      bool reached;
      {
        FailingCalls failing(k, error, k % 2);
        const auto message = message_of<RuntimeError>([&] { io::save_safetensors(folder / "x", next); });
        reached = failing.reached();
        CHECK(message.empty() != reached);
      }
      const auto a = io::load_safetensors(folder / "x").at("a");
      CHECK((same(a, old.at("a")) || same(a, next.at("a"))));
      CHECK(names_in(folder.path).size() == 1);
      done = !reached;
    }
  TemporaryFolder folder;
  CHECK(mentions(message_of<RuntimeError>([&] { io::save_safetensors(folder / "no/x", {}); }), {"no/x"}));
}

TEST_CASE("BI-317 safetensors: the logical elements of any layout") {
  TemporaryFolder folder;
  const Tensor base = tensor({{1., 2., 3.}, {4., 5., 6.}});
  io::save_safetensors(
      folder / "x",
      {{"t", base.t()}, {"e", base.narrow(1, 0, 1).expand({2, 4})}, {"s", base.select(1, 2)}, {"f", base.slice(0, 1)}});
  const auto back = io::load_safetensors(folder / "x");
  CHECK(back.at("t").to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(back.at("e").to_vector<float>() == std::vector<float>{1, 1, 1, 1, 4, 4, 4, 4});
  CHECK(back.at("s").to_vector<float>() == std::vector<float>{3, 6});
  CHECK(back.at("f").to_vector<float>() == std::vector<float>{4, 5, 6});
}
