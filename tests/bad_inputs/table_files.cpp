// Files, their names, what stands in them, and values that become files.
#include <sys/stat.h>
#include <unistd.h>

#include <tapir/io/json_value.h>

#include "table.h"

using namespace bad_inputs;
using io::Value;

namespace {
const std::string kNul("file\0.svg", 9);
Tensor grown() { return ones({2}).requires_grad_() * 2; }
/// A path to what is no file.
std::string special(const char* kind) {
  const std::string path = temporary(kind);
  if (std::string(kind) == "fifo.svg") ::mkfifo(path.c_str(), 0600);
  else if (std::string(kind) == "loop.svg") (void)!::symlink(path.c_str(), path.c_str());
  else std::filesystem::create_directories(path);
  return path;
}
Value nested(int levels) {
  Value v;
  for (int i = 0; i < levels; ++i) {
    std::vector<Value> items;
    items.push_back(std::move(v));
    v = Value::list(std::move(items));
  }
  return v;
}
io::CsvTable csv(const std::string& text, const io::CsvOptions& options = {}) {
  io::write_file("csv", temporary("csv"), text);
  return io::read_csv(temporary("csv"), options);
}
data::BPETokenizer bpe() {
  io::write_file("bpe", temporary("vocab.json"), R"({"a":0,"b":1,"ab":2})");
  io::write_file("bpe", temporary("merges.txt"), "a b\n");
  return data::BPETokenizer(temporary("vocab.json"), temporary("merges.txt"), {});
}
/// A safetensors file of this header, without data.
StateDict header(const std::string& text) {
  const uint64_t size = text.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  io::write_file("header", temporary("header"), bytes + text);
  return io::load_safetensors(temporary("header"));
}
struct Thrower {
  StateDict state_dict() { throw 5; }
  void load_state_dict(const StateDict&) {}
};
}  // namespace

R(920, ("save_graph", "file\\x00.svg"), save_graph(temporary(kNul), grown()))
R(921, ("save_graph", "fifo.svg"), save_graph(special("fifo.svg"), grown()))
R(922, ("save_graph", "folder.svg"), save_graph(special("folder.svg"), grown()))
R(923, ("save_graph", "loop.svg"), save_graph(special("loop.svg"), grown()))
R(924, ("SummaryWriter", "without NUL"), train::SummaryWriter(temporary(kNul)))
V(925, ("SummaryWriter", "moved from"), train::SummaryWriter w(temporary("log"));
  train::SummaryWriter taken = std::move(w); w.add_scalar("loss", 1, 1))
V(926, ("SummaryWriter", "UTF-8", "\\xff"), train::SummaryWriter(temporary("log")).add_scalar("\xff", 1, 1))
R(927, ("ImageFolder", "without NUL"), data::ImageFolder(temporary(kNul)))
R(928, ("Checkpoint", "NUL"), train::Checkpoint(temporary(kNul)))
R(929, ("load_safetensors", "No such file", "a\\x1b[31mb"), io::load_safetensors(temporary("a\x1b[31mb")))
R(930, ("load_npy", "too long", "bytes) ..."), io::load_npy(std::string(1 << 20, 'x')))
R(931, ("load_pt", "FIFO"), io::load_pt(special("fifo.svg")))
R(932, ("read_csv", "symbolic links"), io::read_csv(special("loop.svg")))
R(933, ("save_npy", "FIFO"), io::save_npy(special("fifo.svg"), ones({2})))
R(934, ("save_pt", "folder"), io::save_pt(special("folder.svg"), Value(1)))
R(935, ("load_pt", "empty"), io::load_pt("/proc/self/status"))
V(936, ("Value", "1000 levels"), nested(1001))
V(937, ("Value", "1000 levels"), nested(1000000))
FINE(938, const Value v = nested(1000), copy = v; expect(copy.size() == 1))
V(939, ("save_pt", "200 levels"), io::save_pt(temporary("pt"), nested(201)))
V(940, ("Value", "4096 bytes", "100000"), Value::big_int(std::string(100000, '\x7f')).decimal())
FINE(941, expect(Value::big_int("").decimal() == "0"))
FINE(942, Value v = Value::list({1}); v.push_back(v);
     expect(v.size() == 2 && v[1].size() == 1, "a copy of itself inside"))
V(943, ("read_csv", "missing", "1e+300"), csv("a,b\n1,\n", {.missing = 1e300}))
R(944, ("read_csv", "float32", "1e39"), csv("a\n1e39\n"))
R(945, ("read_csv", "line 1", "16777216"), csv(std::string(1 << 25, 'a')))
V(946, ("make_grid", "2^24", "9223372036854775807"), io::make_grid(ones({4, 3, 2, 2}), 2, kMost))
V(947, ("make_grid", "300", "uint8"), io::make_grid(ones({4, 3, 2, 2}, {.dtype = kUInt8}), 2, 1, 300))
V(948, ("make_grid", "N above 0", "(0, 3, 2, 2)"), io::make_grid(ones({0, 3, 2, 2})))
V(949, ("write_image", "65500", "70000"),
  data::write_image(temporary("a.jpg"), full({3, 1, 70000}, 1, {.dtype = kUInt8})))
V(950, ("save_safetensors", "names in UTF-8", "a\\xff"), io::save_safetensors(temporary("st"), {{"a\xff", ones({1})}}))
V(951, ("save_safetensors", "metadata in UTF-8", "\\xff"), io::save_safetensors(temporary("st"), {}, {{"a", "\xff"}}))
FINE(952, StateDict s; for (const std::string& n
                            : {std::string("a\0b", 3), std::string("../../x"), std::string(""), std::string("a\nb"),
                               std::string("\xef\xbb\xbf")}) s.append(n, ones({1}));
     io::save_safetensors(temporary("st"), s); io::save_npz(temporary("npz"), s); io::save_pt(temporary("pt"), s);
     const StateDict a = io::load_safetensors(temporary("st")), b = io::load_npz(temporary("npz"));
     const Value c = io::load_pt(temporary("pt"));
     for (auto& [n, t]
          : s) expect(a.contains(n) && b.contains(n) && c.find(n), n.c_str()))
V(953, ("StateDict", "b\\x1b[31m"), StateDict{{"a", ones({1})}}.at("b\x1b[31m"))
R(954, ("load_safetensors", "16 dimensions", "100001"), std::string extents = "0";
  for (int i = 0; i < 100000; ++i) extents += ",1";
  header("{\"a\":{\"dtype\":\"F32\",\"shape\":[" + extents + "],\"data_offsets\":[0,0]}}"))
R(955, ("load_safetensors", "2^63"),
  header(R"({"a":{"dtype":"F32","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[0,0]}})"))
R(956, ("read", "32 levels"), io::write_file("x", temporary("json"), "{\"a\":" + std::string(1000000, '['));
  io::read_json_file("read", temporary("json")))
V(957, ("Shared", "moved from"), auto t = bpe(); auto taken = std::move(t); t.encode("ab"))
V(958, ("Shared", "moved from"), auto t = bpe(); auto taken = std::move(t); t.size())
V(959, ("BPETokenizer", "integer dtype", "float32"), bpe().decode(tensor({0.5})))
FINE(960, expect(bpe().encode(std::string(1 << 18, 'a')).numel() == 1 << 18, "time that does not grow with the square"))
V(961, ("decode_image", "part with pixels", "-2 x 3"),
  data::decode_image(io::encode_png(full({3, 8, 8}, 1, {.dtype = kUInt8})), {.part = {0, 0, -2, 3}}))
R(962, ("decode_image", "do not hold the part"),
  data::decode_image(io::encode_png(full({3, 8, 8}, 1, {.dtype = kUInt8})), {.part = {kMost, kMost, kMost, kMost}}))
FINE(
    963, train::Checkpoint c(temporary("ck")); Thrower t; c.add("t", t); int caught = 0; try {
      c.save(1);
    } catch (int i) { caught = i; } expect(caught == 5 && c.files().empty(), "the part's own exception, and no file"))
V(1140, ("to_state_dict", "18446744073709551615", "step"),
  io::to_state_dict(Value::dict({{"step", std::numeric_limits<uint64_t>::max()}})))
V(1141, ("to_state_dict", "1"), io::to_state_dict(Value::dict({{1, ones({2})}, {"1", ones({3})}})))
FINE(1142, expect(Value::dict({{1, 2}, {"1", 3}})["1"].to_int() == 3, "the text key"))
