#include <tapir/io/npy.h>

#include <tapir/io/zip.h>
#include <tapir/ops/ops.h>

#include "../catch.h"
#include "temporary.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

std::string npy(const std::string& header, const std::string& data = "", int version = 1) {
  std::string out = "\x93NUMPY";
  out += char(version), out += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) out += char(header.size() >> 8 * i);
  return out + header + data;
}
std::string dict(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}
std::string refusal(const std::string& bytes) {
  TemporaryFolder folder;
  spit(folder / "x.npy", bytes);
  return message_of<RuntimeError>([&] { io::load_npy(folder / "x.npy"); });
}
Tensor read(const std::string& bytes) {
  TemporaryFolder folder;
  spit(folder / "x.npy", bytes);
  return io::load_npy(folder / "x.npy");
}
constexpr DType kAll[] = {kFloat32, kFloat64, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};
bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.to_vector<double>() == b.to_vector<double>();
}
const std::string kTwo(2, '\1');

}  // namespace

TEST_CASE("npy and npz: what is saved comes back") {
  TemporaryFolder folder;
  StateDict state;
  for (const DType dtype : kAll)
    for (const Shape& shape : {Shape{2, 3}, Shape{6}, Shape{}, Shape{0, 3}}) {
      const Tensor x = arange(numel_of(shape)).to(dtype).view(shape);
      io::save_npy(folder / "x.npy", x);
      CHECK(same(io::load_npy(folder / "x.npy"), x));
      state.set(tapir::format("{}{}", dtype, shape), x);
    }
  state.set("turned", arange(6).view({2, 3}).t());
  CHECK(slurp(folder / "x.npy").size() % 64 == 0);
  for (const bool compress : {false, true}) {
    io::save_npz(folder / "x.npz", state, {.compress = compress});
    const StateDict back = io::load_npz(folder / "x.npz");
    REQUIRE(back.size() == state.size());
    for (const auto& [name, x] : state) CHECK(same(back.at(name), x));
  }
  CHECK_THROWS_AS(io::save_npy(folder / "y", zeros({2}, {.dtype = kBFloat16})), ValueError);
  CHECK_THROWS_AS(io::save_npy(folder / "y", Tensor()), ValueError);
  StateDict twice;
  twice.append("a", zeros({1})), twice.append("a", zeros({1}));
  CHECK_THROWS_AS(io::save_npz(folder / "y", twice), ValueError);
  CHECK(names_in(folder.path).size() == 2);
}

TEST_CASE("BI-300 npy: magic, version, length") {
  const std::string good = npy(dict("<i2", "(1,)"), kTwo);
  CHECK(read(good).item<int>() == 257);
  for (const size_t n : {0, 1, 9}) CHECK(mentions(refusal(good.substr(0, n)), {"10 bytes", std::to_string(n).c_str()}));
  CHECK(mentions(refusal("x" + good), {"NUMPY"}));
  CHECK(mentions(refusal("\x93NUMPY\x09\x09" + good.substr(8)), {"version", "9.9"}));
  CHECK(mentions(refusal(npy(dict("<i2", "(1,)"), kTwo, 4)), {"version"}));
  for (const int version : {2, 3}) CHECK(read(npy(dict("<i2", "(1,)"), kTwo, version)).item<int>() == 257);
  CHECK(mentions(refusal("\x93NUMPY\x02" + std::string("\0\xff\xff\xff\xff", 5) + good), {"header", "4294967295"}));
  CHECK(mentions(refusal(good.substr(0, 30)), {"header"}));
  CHECK(mentions(refusal(npy(dict("<i2", "(1,)") + std::string(20000, ' ') + "\n", kTwo)), {"header"}));
  CHECK(mentions(refusal(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (1,), } ", kTwo)), {"newline"}));
}

TEST_CASE("BI-301 BI-302 npy: dtypes, byte order, Fortran order") {
  for (const char* descr : {"|O", "<U3", "|S3", "<M8[ns]", "<f16", "<c8", "f4", "?f4", "<u2", "<i3", ""})
    CHECK(mentions(refusal(npy(dict(descr, "(1,)"), kTwo)), {"descr", "f4"}));
  CHECK(mentions(refusal(npy("{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (1,)}\n", kTwo)),
                 {"structured"}));
  CHECK(read(npy(dict(">i2", "(2,)"), std::string("\0\1\1\0", 4))).to_vector<int16_t>() ==
        std::vector<int16_t>{1, 256});
  const Tensor x = read(npy(dict("|u1", "(2, 3)", "True"), "\1\2\3\4\5\6"));
  CHECK(x.strides() == Strides{1, 2});
  CHECK(x.to_vector<uint8_t>() == std::vector<uint8_t>{1, 3, 5, 2, 4, 6});
  CHECK(read(npy(dict("|b1", "(2,)"), std::string("\0\7", 2))).to_vector<uint8_t>() == std::vector<uint8_t>{0, 1});
}

TEST_CASE("BI-303 npy: shapes against the bytes present") {
  CHECK(mentions(refusal(npy(dict("<f4", "(65536, 65536)"), kTwo)), {"17179869184", "2"}));
  for (const char* shape :
       {"(-1,)", "(1.0,)", "('a',)", "(1)", "1", "[1]", "(1 2)", "(1,,)", "(99999999999999999999,)", "None", "(1,"})
    CHECK(mentions(refusal(npy(dict("<i2", shape), kTwo)), {"header"}));
  CHECK(mentions(refusal(npy(dict("<i2", "(3,)"), kTwo + kTwo)), {"6 bytes", "4"}));
  CHECK(mentions(refusal(npy(dict("<i2", "(1,)"), kTwo + "x")), {"2 bytes", "3"}));
  CHECK(
      mentions(refusal(npy(dict("<i2", "(4611686018427387904, 4611686018427387904, 16)"), kTwo)), {"more than 2^63"}));
  CHECK(mentions(refusal(npy(dict("<i2", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), kTwo)), {"16"}));
}

TEST_CASE("BI-304 npy: the header is data") {
  for (const char* header :
       {"__import__('os').system('x')\n", "{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,)}\n",
        "{}\n", "\n", "{\n", "{'descr': '<i2', 'fortran_order': False}\n",
        "{'descr': '<i2', 'fortran_order': 0, 'shape': (1,)}\n",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (1,), 'x': 1}\n",
        "{'descr': '<i2', 'descr': '<i2', 'fortran_order': False, 'shape': (1,)}\n",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (1,)} x\n",
        "{'descr': '<i2' 'fortran_order': False, 'shape': (1,)}\n",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (1,)\n", "[]\n", "{'descr: '<i2'}\n"})
    CHECK(mentions(refusal(npy(header, kTwo)), {"header", "expected"}));
  CHECK(read(npy("{\"descr\": \"<i2\", \"fortran_order\": False, \"shape\": (1L,)}\n", kTwo)).numel() == 1);
}

TEST_CASE("BI-305 npz: members") {
  TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& bytes, bool deflate = false) {
    io::OutputFile file("test", folder / "x.npz");
    io::ZipWriter zip(file);
    zip.add(name, bytes, {.deflate = deflate});
    zip.finish();
    file.commit();
    return message_of<RuntimeError>([&] { io::load_npz(folder / "x.npz"); });
  };
  const std::string good = npy(dict("<i2", "(1,)"), kTwo);
  for (const bool deflate : {false, true}) {
    CHECK(write("a.npy", good, deflate).empty());
    CHECK(mentions(write("a.txt", good, deflate), {"a.txt", ".npy"}));
    CHECK(mentions(write("a.npy", good + "x", deflate), {"a.npy", "2 bytes"}));
    CHECK(mentions(write("a.npy", "", deflate), {"a.npy", "10 bytes"}));
    CHECK(mentions(write("a.npy", npy(dict("<f8", "(1000000000,)"), kTwo), deflate), {"8000000000"}));
  }
  StateDict state;
  state.set("a", arange(100)), state.set("b", arange(9));
  for (const bool compress : {false, true}) {
    io::save_npz(folder / "x.npz", state, {.compress = compress});
    const std::string bytes = slurp(folder / "x.npz");
    for (const auto& damaged : truncations(bytes, 200)) {
      spit(folder / "y.npz", damaged);
      CHECK_THROWS_AS(io::load_npz(folder / "y.npz"), RuntimeError);
    }
    for (const auto& damaged : bit_flips(bytes, 1000, 11)) {
      spit(folder / "y.npz", damaged);
      try {
        const StateDict got = io::load_npz(folder / "y.npz");
        CHECK(got.begin()[0].second.to_vector<int64_t>() == state.at("a").to_vector<int64_t>());
      } catch (const RuntimeError&) {}
    }
  }
}

TEST_CASE("review 12: npz: the other members beside one of an unsupported dtype") {
  TemporaryFolder folder;
  {
    io::OutputFile file("test", folder / "x.npz");
    io::ZipWriter zip(file);
    zip.add("a.npy", npy(dict("<i2", "(1,)"), kTwo), {});
    zip.add("u2.npy", npy(dict("<u2", "(2,)"), std::string("\1\0\xff\xff", 4)), {});
    zip.add("u4.npy", npy(dict(">u4", "(1, 2)", "True"), std::string("\xff\xff\xff\xfe\0\0\0\1", 8)),
            {.deflate = true});
    zip.add("z.npy", npy(dict("<c8", "(1,)"), std::string(8, '\0')), {.deflate = true});
    zip.add("s.npy",
            npy("{'descr': [('a', '<i2'), ('b]', '|u1', (2,))], 'fortran_order': False, 'shape': (1,)}\n", "1234"), {});
    zip.add("b.npy", npy(dict("|u1", "(1,)"), "\7"), {});
    zip.finish();
    file.commit();
  }
  const auto load = [&](const io::LoadNpzOptions& options) { return io::load_npz(folder / "x.npz", options); };
  const auto text = [&](const io::LoadNpzOptions& options) { return message_of<RuntimeError>([&] { load(options); }); };
  CHECK(mentions(text({}), {"u2.npy", "<u2", ".widen_unsigned", ".skip_unsupported"}));
  CHECK(mentions(text({.widen_unsigned = true}), {"z.npy", "<c8", ".skip_unsupported"}));
  CHECK(!mentions(text({.widen_unsigned = true}), {".widen_unsigned"}));
  const StateDict some = load({.skip_unsupported = true});
  CHECK((some.size() == 2 && some["a"].item() == 257 && some["b"].item() == 7));
  const StateDict most = load({.widen_unsigned = true, .skip_unsupported = true});
  CHECK(most.size() == 4);
  CHECK(same(most["u2"], tensor({1, 65535}, {.dtype = kInt32})));
  CHECK(same(most["u4"], tensor({{int64_t(0xfffffffe), int64_t(1)}})));
  spit(folder / "u.npy", npy(dict("<u4", "(1,)"), std::string(4, '\xff')));
  CHECK(io::load_npy(folder / "u.npy", {.widen_unsigned = true}).item<int64_t>() == 0xffffffff);
  CHECK(mentions(message_of<RuntimeError>([&] { io::load_npy(folder / "u.npy"); }), {"<u4", ".widen_unsigned"}));
  CHECK(same(io::load_npz(folder / "x.npz", {.widen_unsigned = true, .skip_unsupported = true})["b"],
             tensor({7}, {.dtype = kUInt8})));
}
