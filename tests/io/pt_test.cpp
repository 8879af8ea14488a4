#include <tapir/io/pt.h>

#include <tapir/io/zip.h>
#include <tapir/ops/ops.h>

#include "../catch.h"
#include "source_dir.h"
#include "temporary.h"

using namespace tapir;
using namespace tapir_tests;
using io::Value;

namespace {

struct Member {
  std::string name, bytes;
  bool deflate = false;
};
std::string archive(const std::vector<Member>& members) {
  TemporaryFolder folder;
  io::OutputFile file("test", folder / "z");
  io::ZipWriter zip(file);
  for (const auto& m : members) zip.add(m.name, m.bytes, {.deflate = m.deflate});
  zip.finish();
  file.commit();
  return slurp(folder / "z");
}
std::string refusal_of(const std::string& bytes) {
  TemporaryFolder folder;
  spit(folder / "x.pt", bytes);
  return message_of<RuntimeError>([&] { io::load_pt(folder / "x.pt"); });
}
/// A file around a pickle, with one storage "0" of 16 bytes.
std::string around(const std::string& pickle) {
  return archive({{"archive/data.pkl", "\x80\x02" + pickle},
                  {"archive/data/0", std::string(16, '\1')},
                  {"archive/version", "3\n"}});
}
std::string refusal(const std::string& pickle) { return refusal_of(around(pickle)); }
Value value_of(const std::string& pickle) {
  TemporaryFolder folder;
  spit(folder / "x.pt", around(pickle));
  return io::load_pt(folder / "x.pt");
}
std::string text(const std::string& s) { return std::string("X") + char(s.size()) + std::string(3, '\0') + s; }
std::string num(int64_t v) { return "\x8a\x08" + std::string(reinterpret_cast<const char*>(&v), 8); }
std::string tuple(const std::vector<int64_t>& v) {
  std::string out = "(";
  for (const int64_t x : v) out += num(x);
  return out + "t";
}
std::string storage(const std::string& type = "FloatStorage", int64_t count = 4, const std::string& key = "0") {
  return "(" + text("storage") + "ctorch\n" + type + "\n" + text(key) + text("cuda:7") + num(count) + "tQ";
}
std::string tensor(const std::string& storage, int64_t offset, const std::vector<int64_t>& sizes,
                   const std::vector<int64_t>& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + num(offset) + tuple(sizes) + tuple(strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR";
}
bool same(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), size_t(a.numel() * size_of(a.dtype()))) == 0);
}
constexpr DType kAll[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};
Storage* storage_of(const Value& v) { return v.to_tensor().impl().storage.get(); }

}  // namespace

TEST_CASE(".pt: what is saved comes back") {
  TemporaryFolder folder;
  StateDict weights;
  for (const DType dtype : kAll) weights.set(name_of(dtype), arange(6).to(dtype).view({2, 3}));
  const Value value = Value::dict({{"model", weights},
                                   {"none", Value()},
                                   {"flags", Value::list({true, false})},
                                   {"numbers", Value::tuple({1, -7, int64_t(1) << 40, INT64_MIN, 0.25, 1e-300})},
                                   {"huge", Value(UINT64_MAX)},
                                   {"text", "line\n\xc3\xa9"},
                                   {"bytes", Value::bytes(std::string("\0\x7f\x80\xff", 4))},
                                   {7, Value::dict({{"dtype", kBFloat16}, {true, "a bool as key"}})},
                                   {"scalar", full({}, 3.5)},
                                   {"empty", zeros({0, 4})}});
  io::save_pt(folder / "x.pt", value);
  const Value back = io::load_pt(folder / "x.pt");
  CHECK(back.size() == value.size());
  for (const auto& [name, t] : weights) CHECK(same(back["model"][name].to_tensor(), t));
  CHECK(back["none"].is_none());
  CHECK(back["flags"][0].to_bool());
  CHECK(back["numbers"].kind() == Value::Kind::Tuple);
  CHECK(back["numbers"][2].to_int() == int64_t(1) << 40);
  CHECK(back["numbers"][3].to_int() == INT64_MIN);
  CHECK(back["numbers"][5].to_double() == 1e-300);
  CHECK(back["huge"].decimal() == "18446744073709551615");
  CHECK(back["text"].to_text() == "line\n\xc3\xa9");
  CHECK(back["bytes"].to_text() == std::string("\0\x7f\x80\xff", 4));
  CHECK(back[7]["dtype"].to_dtype() == kBFloat16);
  CHECK(back["scalar"].to_tensor().shape() == Shape{});
  CHECK(back["empty"].to_tensor().shape() == Shape{0, 4});
  CHECK(names_in(folder.path).size() == 1);
}

TEST_CASE("BI-298 BI-317 .pt: shared memory stays shared, else logical elements alone are written") {
  TemporaryFolder folder;
  const Tensor base = arange(24).view({4, 6}), wide = full({1, 1000}, 2.0).expand({1000, 1000});
  io::save_pt(folder / "x.pt", Value::dict({{"base", base},
                                            {"row", base.select(0, 1)},
                                            {"turned", base.t()},
                                            {"tied", base},
                                            {"wide", full({1, 1}, 2.0).expand({300, 300})},
                                            {"rows", wide.slice(0, 0, {}, 500)},
                                            {"last", base.detach().clone().t()}}));
  const Value back = io::load_pt(folder / "x.pt");
  for (const char* name : {"row", "turned", "tied"}) CHECK(storage_of(back[name]) == storage_of(back["base"]));
  CHECK(same(back["turned"].to_tensor(), base.t()));
  CHECK(back["turned"].to_tensor().strides() == Strides{1, 6});
  CHECK(same(back["row"].to_tensor(), base.select(0, 1)));
  CHECK(back["last"].to_tensor().strides() == Strides{1, 6});
  CHECK(storage_of(back["last"]) != storage_of(back["base"]));
  CHECK(same(back["wide"].to_tensor(), full({300, 300}, 2.0)));
  CHECK(same(back["rows"].to_tensor(), full({2, 1000}, 2.0)));
  CHECK(slurp(folder / "x.pt").size() < 400'000 + 10'000);
  Tensor one = base.slice(0, 1, 2), two = base.slice(0, 2, 3);  // neighbours that do not overlap: two storages
  io::save_pt(folder / "y.pt", Value::list({one, two}));
  const Value pair = io::load_pt(folder / "y.pt");
  CHECK(storage_of(pair[0]) != storage_of(pair[1]));
  CHECK(pair[0].to_tensor().impl().storage->bytes == 48);
}

TEST_CASE("Value: StateDict both ways") {
  const Value v = Value::dict(
      {{"state", Value::dict({{0, Value::dict({{"exp_avg", full({2}, 1.0)}, {"step", 3}})}})},
       {"param_groups",
        Value::list({Value::dict({{"lr", 0.5}, {"fused", Value()}, {"betas", Value::tuple({0.9, 0.99})}})})}});
  const StateDict flat = io::to_state_dict(v);
  CHECK(flat.size() == 5);
  CHECK(flat.at("state.0.exp_avg").shape() == Shape{2});
  CHECK(flat.at("state.0.step").item<int64_t>() == 3);
  CHECK(flat.at("param_groups.0.lr").item() == 0.5);
  CHECK(flat.at("param_groups.0.betas.1").item() == 0.99);
  CHECK_THROWS_AS(io::to_state_dict(Value(3)), ValueError);
  const auto twice = [](const Value& v) { return message_of<ValueError>([&] { io::to_state_dict(v); }); };
  CHECK(mentions(twice(Value::dict({{1, 2}, {"1", 3}})), {"[to_state_dict]", "\"1\""}));
  CHECK(mentions(twice(Value::dict({{"a", Value::list({2})}, {"a.0", 3}})), {"[to_state_dict]", "a.0"}));
  CHECK(mentions(twice(Value::dict({{"n", uint64_t(1) << 63}})), {"[to_state_dict]", "9223372036854775808", "\"n\""}));
  const Value both = Value::dict({{1, 2}, {"1", 3}}), back = Value::dict({{"1", 3}, {1, 2}});
  CHECK((both["1"].to_int() == 3 && back["1"].to_int() == 3));
  CHECK((Value::dict({{1, 2}})["1"].to_int() == 2 && both.find("2") == nullptr));
  CHECK_THROWS_AS(v["none"], ValueError);
  CHECK_THROWS_AS(v["state"].to_int(), ValueError);
  CHECK_THROWS_AS(v["param_groups"][1], ValueError);
}

TEST_CASE("BI-284 BI-285 .pt: other files, with hints") {
  CHECK(mentions(refusal_of(""), {"x.pt", "empty"}));
  CHECK(mentions(refusal_of("hello"), {"x.pt", "zip archive", "hello"}));
  std::string tar(1024, '\0');
  tar.replace(257, 5, "ustar");
  CHECK(mentions(refusal_of(tar), {"before 1.6", "torch.save"}));
  CHECK(mentions(refusal_of("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."), {"before 1.6"}));
  CHECK(mentions(refusal_of(archive({{"m/data.pkl", "\x80\x02N."}, {"m/constants.pkl", "\x80\x02)."}})),
                 {"TorchScript", "state_dict"}));
  CHECK(mentions(refusal_of(archive({{"m/data.pkl", "\x80\x02N."}, {"m/byteorder", "big"}})), {"byte order", "big"}));
  TemporaryFolder folder;
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  for (const auto& path : {folder / "none", folder.path, folder / "fifo"})
    CHECK(mentions(message_of<RuntimeError>([&] { io::load_pt(path); }), {"[load_pt]", path.c_str()}));
}

TEST_CASE("BI-287 BI-288 BI-289 .pt: members") {
  CHECK(mentions(refusal_of(archive({{"m/x", "3"}})), {"data.pkl", "found 0"}));
  CHECK(mentions(refusal_of(archive({{"m/data.pkl", "\x80\x02N."}, {"n/data.pkl", "\x80\x02N."}})),
                 {"data.pkl", "found 2"}));
  CHECK(refusal_of(archive({{"m/data.pkl", "\x80\x02N."}, {"../../x", "3"}, {"/etc/x", "3"}})).empty());
  CHECK(refusal_of(archive({{"m/data.pkl", "\x80\x02N.", true}})).empty());  // deflated
  CHECK(mentions(refusal(""), {"STOP"}));
  CHECK(mentions(refusal("N"), {"STOP", "byte 3"}));
  CHECK(mentions(refusal("N.N"), {"STOP"}));
  CHECK(mentions(refusal("NN."), {"one value"}));
  CHECK(mentions(refusal("N(."), {"one value"}));
}

TEST_CASE("BI-290 .pt: no flipped bit goes unseen") {
  TemporaryFolder folder;
  io::save_pt(folder / "x.pt", Value::dict({{"w", arange(64)}, {"b", Value::list({1, 2.5, "text"})}}));
  const std::string good = slurp(folder / "x.pt");
  const Value want = io::load_pt(folder / "x.pt");
  for (const auto& damaged : truncations(good, 300)) CHECK(!refusal_of(damaged).empty());
  int survived = 0;
  for (const auto& damaged : bit_flips(good, 2000, 7)) {
    spit(folder / "y.pt", damaged);
    try {
      const Value got = io::load_pt(folder / "y.pt");  // a bit that nothing depends on: a date, padding
      CHECK(same(got["w"].to_tensor(), want["w"].to_tensor()));
      CHECK(got["b"][1].to_double() == 2.5);
      CHECK(got["b"][2].to_text() == "text");
      ++survived;
    } catch (const RuntimeError&) {}
  }
  CHECK(survived < 1500);
}

TEST_CASE("BI-291 .pt: nothing is called but the functions of tensors") {
  for (const char* name :
       {"os\nsystem", "builtins\neval", "__builtin__\ngetattr", "nt\nsystem", "torch\nload", "numpy\narray"})
    CHECK(mentions(refusal("c" + std::string(name) + "\n" + text("x") + "\x85R."),
                   {"not plain data", std::string(name).substr(std::string(name).find('\n') + 1).c_str()}));
  CHECK(mentions(refusal("\x8c\2os\x8c\6system\x93)R."), {"os.system"}));
  CHECK(mentions(refusal("ctorch\nFloatStorage\n)R."), {"torch.FloatStorage", "not called"}));
  CHECK(mentions(refusal("ccollections\nOrderedDict\n."), {"bare class"}));
  CHECK(mentions(refusal("NN\x85R."), {"known function"}));
  CHECK(mentions(refusal("ccollections\nOrderedDict\nNR."), {"tuple of arguments"}));
  CHECK(mentions(refusal("ccollections\nOrderedDict\nK\1\x85R."), {"pairs"}));
  CHECK(value_of("ccollections\nCounter\n}K\1K\2s\x85R.")[1].to_int() == 2);
}

TEST_CASE("BI-292 .pt: opcodes and protocols") {
  for (const char* op :
       {"I1\n", "F1.0\n", "S'x'\n", "L1L\n", "0", "1", "2", "\x82\1", "\x97", "o", "d", "l", "P1\n", "\xff"})
    CHECK(mentions(refusal("N" + std::string(op) + "."), {"opcode 0x", "byte 3"}));
  for (const int protocol : {0, 1, 6, 200}) {
    const std::string bytes = std::string("\x80") + char(protocol) + "N.";
    CHECK(mentions(refusal_of(archive({{"archive/data.pkl", bytes}})), {"protocol", std::to_string(protocol).c_str()}));
  }
  for (const char protocol : {3, 4, 5}) {
    std::string four = std::string("\x80") + protocol + "\x95" + std::string("\x10\0\0\0\0\0\0\0", 8);
    four +=
        "}\x94\x8c\1a\x94\x8c\xb"
        "collections\x94\x8c\xbOrderedDict\x94\x93\x94)R\x94s\x8c\1b"
        "C\2\x80\xff\x94s.";
    TemporaryFolder folder;
    spit(folder / "x", archive({{"archive/data.pkl", four}}));
    const Value v = io::load_pt(folder / "x");
    CHECK(v["a"].kind() == Value::Kind::Dict);
    CHECK(v["b"].to_text() == "\x80\xff");
  }
}

TEST_CASE("BI-293 BI-294 .pt: wrong objects, memo, stack, marks") {
  CHECK(mentions(refusal("NK\1K\2s."), {"dict"}));
  CHECK(mentions(refusal("}K\1a."), {"list"}));
  CHECK(mentions(refusal("](K\1u."), {"dict"}));
  CHECK(mentions(refusal("}(K\1u."), {"pairs"}));
  CHECK(mentions(refusal("K\1}b."), {"OrderedDict"}));
  CHECK(mentions(refusal("}}b."), {"OrderedDict"}));
  CHECK(mentions(refusal("h\5."), {"memo", "byte 2"}));
  CHECK(mentions(refusal(std::string("Nr\xff\xff\xff\xff"
                                     "0",
                                     7)),
                 {"opcode"}));  // setting slot 2^32 - 1 is no allocation
  CHECK(mentions(refusal("j\xff\xff\xff\x7f."), {"memo"}));
  for (const char* pickle : {".", "\x85.", "N\x86.", "s.", "a.", "R.", "b.", "q\1.", "Q."})
    CHECK(mentions(refusal(pickle), {"byte"}));
  CHECK(mentions(refusal("t."), {"mark"}));
  CHECK(mentions(refusal("]e."), {"mark"}));
  CHECK(mentions(refusal("](a."), {"stack"}));  // what lies below a mark is out of reach
  CHECK(mentions(refusal("X\xff\xff\xff\xff"
                         "a."),
                 {"more bytes"}));
  CHECK(mentions(refusal("X\1" + std::string(3, '\0') + "\xff."), {"UTF-8"}));
  CHECK(mentions(refusal("}]K\1s."), {"keys"}));
  CHECK(value_of("}(K\1K\2K\1K\3u.")[1].to_int() == 3);  // the last value of a key counts
}

TEST_CASE("BI-295 .pt: depth, cycles, and sharing that multiplies") {
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += ")";
  deep = "N";
  for (int i = 0; i < 1'000'000; ++i) deep += "\x85";
  CHECK(mentions(refusal(deep + "."), {"200 levels"}));
  CHECK(mentions(refusal("]q\1h\1a."), {"within itself"}));
  CHECK(mentions(refusal("}q\1K\1h\1s."), {"within itself"}));
  std::string bomb = "]q";
  bomb += '\0';
  for (int i = 1; i < 100; ++i) {  // each list holds the one before twice
    bomb += "](h" + std::string(1, char(i - 1)) + "h" + std::string(1, char(i - 1)) + "eq" + std::string(1, char(i));
    bomb += "\x85";
  }
  CHECK(!refusal(bomb + ".").empty());
  std::string doubling = "](K\1K\2eq";
  doubling += '\0';
  std::string list = "(" + doubling;
  for (int i = 1; i < 100; ++i)
    list += "](h" + std::string(1, char(i - 1)) + "h" + std::string(1, char(i - 1)) + "eq" + std::string(1, char(i));
  CHECK(mentions(refusal(list + "t."), {"multiply"}));
}

TEST_CASE("BI-296 BI-297 BI-299 .pt: storages and geometry") {
  const Value good = value_of(tensor(storage(), 0, {2, 2}, {2, 1}) + ".");
  CHECK(good.to_tensor().shape() == Shape{2, 2});
  CHECK(good.to_tensor().device() == kCPU);  // whatever device it was saved from
  for (const int64_t count : {int64_t(3), int64_t(5), int64_t(0), int64_t(1) << 62})
    CHECK(mentions(refusal(tensor(storage("FloatStorage", count), 0, {1}, {1}) + "."),
                   {"storage \"0\"", "16 bytes", std::to_string(count).c_str()}));
  CHECK(mentions(refusal(tensor(storage("FloatStorage", -1), 0, {1}, {1}) + "."), {"count"}));
  CHECK(mentions(refusal(tensor(storage("DoubleStorage", 4), 0, {1}, {1}) + "."), {"16 bytes"}));
  CHECK(mentions(refusal(tensor(storage("FloatStorage", 4, "9"), 0, {1}, {1}) + "."), {"archive/data/9"}));
  CHECK(mentions(refusal(tensor(storage("FloatStorage", 4, "../0"), 0, {1}, {1}) + "."), {"none"}));
  CHECK(mentions(refusal(tensor(storage("ComplexFloatStorage", 2), 0, {1}, {1}) + "."),
                 {"ComplexFloatStorage", "lacks"}));
  CHECK(mentions(refusal(tensor(storage("NewStorage", 2), 0, {1}, {1}) + "."), {"NewStorage"}));
  CHECK(mentions(refusal("(" + text("module") +
                         "Nt"
                         "Q."),
                 {"persistent"}));
  CHECK(mentions(refusal(storage() + "."), {"bare"}));
  const struct {
    int64_t offset;
    std::vector<int64_t> sizes, strides;
  } bad[] = {{0, {5}, {1}},
             {1, {4}, {1}},
             {-1, {1}, {1}},
             {0, {-1}, {1}},
             {0, {2}, {-1}},
             {0, {2}, {4}},
             {5, {0}, {1}},
             {0, {1, 1}, {1}},
             {0, {1}, {1, 1}},
             {0, {int64_t(1) << 32, int64_t(1) << 32}, {0, 0}},
             {0, {2, 2}, {INT64_MAX, INT64_MAX}},
             {INT64_MAX, {2}, {1}},
             {0, {INT64_MAX}, {INT64_MAX}}};
  for (const auto& b : bad)
    CHECK(mentions(refusal(tensor(storage(), b.offset, b.sizes, b.strides) + "."), {"tensor on storage \"0\""}));
  CHECK(!refusal(tensor(storage(), 0, std::vector<int64_t>(17, 1), std::vector<int64_t>(17, 1)) + ".").empty());
  CHECK(value_of(tensor(storage(), 3, {2, 0}, {9, 9}) + ".").to_tensor().numel() == 0);
  CHECK(value_of(tensor(storage(), 2, {3, 2}, {0, 1}) + ".").to_tensor().strides() == Strides{0, 1});
}

TEST_CASE("BI-313 BI-314 .pt: a write that fails loses nothing") {
  TemporaryFolder folder;
  const std::string path = folder / "x.pt";
  io::save_pt(path, Value(arange(3)));
  const std::string before = slurp(path);
  for (const bool sticky : {false, true})
    for (const int error : {ENOSPC, EIO, EDQUOT, EINTR, 0})
      for (int k = 1; k < 40; ++k) {
        bool failed = false, reached = false;
        {
          FailingCalls calls(k, error, sticky);
          try {
            io::save_pt(path, Value(arange(100)));
          } catch (const RuntimeError& e) {
            failed = true;
            CHECK(mentions(e.what(), {"x.pt"}));
          }
          reached = calls.reached();
        }
        if (failed && slurp(path) != before)
          CHECK(io::load_pt(path).to_tensor().numel() == 100);  // failed after the rename
        CHECK(names_in(folder.path).size() == 1);
        spit(path, before);
        if (!reached || (error == EINTR && sticky)) break;  // EINTR for ever: 100000 tries each
      }
  CHECK(mentions(message_of<RuntimeError>([&] { io::save_pt(folder / "no/x.pt", Value(1)); }), {"no/x.pt"}));
  CHECK(mentions(message_of<RuntimeError>([&] { io::save_pt(folder.path, Value(1)); }), {"folder"}));
  Value deep;
  for (int i = 0; i < 300; ++i) deep = Value::list({deep});
  CHECK_THROWS_AS(io::save_pt(path, deep), ValueError);
  CHECK_THROWS_AS(io::save_pt(path, Value("\xff")), ValueError);
  CHECK(slurp(path) == before);
}

TEST_CASE("the recorded .pt files") {
  const char* base = std::getenv("TAPIR_CONFORMANCE");
  const std::string cases =
      (base ? std::string(base) : std::string(TAPIR_SOURCE_DIR) + "/../shared/conformance") + "/files/";
  if (access(cases.c_str(), R_OK) != 0) SKIP_TEST("no conformance cases");
  TemporaryFolder folder;
  int good = 0;
  for (const auto& name : names_in(cases)) {
    if (!name.ends_with(".pt")) continue;
    if (name.starts_with("damaged") || name.starts_with("hostile") || name.starts_with("module")) {
      CHECK_THROWS_AS(io::load_pt(cases + name), RuntimeError);
      continue;
    }
    const Value v = io::load_pt(cases + name);  // and what was read can be written
    io::save_pt(folder / "y.pt", v);
    CHECK(io::load_pt(folder / "y.pt").size() == v.size());
    ++good;
  }
  CHECK(good > 5);
}

TEST_CASE("review 11: Value::dict takes x[i]") {
  const Tensor x = arange(6).view({2, 3});
  const Value v = Value::dict({{"row", x[1]}, {"list", Value::list({x[0], 2})}, {"none", {}}, {"x", x}});
  CHECK(v["row"].to_tensor().to_vector<int64_t>() == std::vector<int64_t>{3, 4, 5});
  CHECK(v["list"][0].to_tensor().shape() == Shape{3});
  CHECK((v["none"].is_none() && v["x"].to_tensor().is_same(x)));
}

TEST_CASE(".pt: two equal names and an undefined tensor are refused") {
  TemporaryFolder folder;
  const std::string path = folder / "x.pt";
  StateDict twice{{"w", ones({2})}, {"w", zeros({2})}};
  CHECK(mentions(message_of<ValueError>([&] { io::save_pt(path, Value(twice)); }), {"save_pt", "\"w\" twice"}));
  CHECK(mentions(message_of<ValueError>([&] {
                   io::save_pt(path, Value::dict({{"a", 1}, {"b", Value::dict({{"c", 1}, {"c", 2}})}}));
                 }),
                 {"save_pt", "\"c\" twice"}));
  CHECK(mentions(message_of<ValueError>([&] {
                   io::save_pt(path, Value(StateDict{{"w", Tensor()}}));
                 }),
                 {"undefined", "\"w\""}));
  CHECK(mentions(message_of<ValueError>([&] { io::save_pt(path, Value::list({Value(Tensor())})); }),
                 {"save_pt", "undefined"}));
  CHECK(names_in(folder.path).empty());
}
