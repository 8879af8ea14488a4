#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <tapir/core/modes.h>
#include <tapir/core/trace.h>
#include <tapir/io/json.h>
#include <tapir/io/safetensors.h>

#include "../catch.h"
#include "../stderr_of.h"
#include "messages.h"

using namespace tapir;
using tapir_tests::contains;
using tapir_tests::message_of;
using tapir_tests::stderr_of;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tapir_trace_" + std::to_string(getpid()));
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
  std::vector<fs::path> cases() const {
    std::vector<fs::path> found;
    if (fs::exists(path))
      for (const auto& e : fs::directory_iterator(path))
        if (e.path().extension() == ".jsonl") found.push_back(e.path());
    return found;
  }
  /// The only new case; reads and removes it, for the next.
  std::string take_line(StateDict& tensors) const {
    const auto found = cases();
    REQUIRE(found.size() == 1);
    std::ifstream file(found[0]);
    std::string line;
    std::getline(file, line);
    fs::path data = found[0];
    tensors = io::load_safetensors(data.replace_extension(".safetensors").string());
    fs::remove_all(path);
    return line;
  }
};

/// The arguments of a dumped line, on tensors of the file: what a runner does.
class Replay {
 public:
  Replay(const std::string& line, const StateDict& tensors) : json_(line, "[replay]", 16), tensors_(tensors) {
    json_.expect(Token::BeginObject, "an object");
    for (Token t = json_.next(); t == Token::Key; t = json_.next()) {
      const std::string key(json_.text());
      if (key == "args") read_args();
      else if (t = json_.next(); key == "entry") entry = json_.text();
    }
  }
  std::string entry;
  std::vector<TraceArg> args;

 private:
  using Token = io::JsonReader::Token;
  void read_args() {
    json_.expect(Token::BeginArray, "the arguments");
    for (Token t = json_.next(); t != Token::EndArray; t = json_.next()) {
      TraceArg a;
      if (t == Token::BeginArray) {
        a.kind = TraceArg::Kind::List;
        while ((t = json_.next()) != Token::EndArray) {
          TraceArg item;
          read(t, item);
          a.list.push_back(item.view);
        }
      } else read(t, a);
      args.push_back(a);
    }
  }
  Dims read_dims() {
    Dims d;
    json_.expect(Token::BeginArray, "numbers");
    while (json_.next() != Token::EndArray) d.push_back(std::stoll(std::string(json_.text())));
    return d;
  }
  void read(Token t, TraceArg& a) {
    if (t == Token::Null) return;
    std::string tensor, dtype, number, kind;
    Dims shape, strides;
    int64_t offset = 0;
    for (t = json_.next(); t == Token::Key; t = json_.next()) {
      const std::string key(json_.text());
      if (key == "shape") shape = read_dims();
      else if (key == "strides") strides = read_dims();
      else {
        t = json_.next();
        const std::string value(t == Token::Null ? std::string_view() : json_.text());
        if (key == "tensor") tensor = value;
        if (key == "dtype") dtype = value;
        if (key == "offset") offset = std::stoll(value);
        if (key == "number") number = value;
        if (key == "kind") kind = value;
        if (key == "bytes") {
          a.kind = TraceArg::Kind::Bytes;
          for (size_t i = 0; i < value.size(); i += 2) a.bytes += char(std::stoi(value.substr(i, 2), nullptr, 16));
        }
      }
    }
    if (a.kind == TraceArg::Kind::Bytes) return;
    if (!number.empty())
      a.view =
          TensorView(kind == "float" ? Scalar(std::stod(number)) : Scalar(std::stoll(number)), dtype_from_name(dtype));
    else if (tensor.empty()) a.view = TensorView(empty(shape, {.dtype = dtype_from_name(dtype)}));
    else a.view = TensorView(alias(tensors_.at(tensor), shape, strides, offset));
  }
  io::JsonReader json_;
  const StateDict& tensors_;
};

struct TableInUse {  // the thread's table, restored at the end
  explicit TableInUse(const BackendTable& t) : guard(modes.tables[0], &t) {}
  ScopedMode<const BackendTable*> guard;
};

const BackendTable& real_table() { return *built_in_backend(DeviceType::CPU); }

Tensor divided(const Tensor& a, const Tensor& b, const Tensor& out) {
  backend(a).binary(context(a), {out, a, b, {BinaryOp::Div}});
  return out;
}

}  // namespace

TEST_CASE("TAPIR_LOG: a line per kernel call") {
  const Tensor a = tensor({{1., 2.}, {3., 4.}}), out = tensor({{0., 0.}, {0., 0.}});
  const std::string text = stderr_of([&] {
    TableInUse guard(make_traced(real_table(), DeviceType::CPU, true, ""));
    divided(a, alias(a, {2, 2}, {1, 2}, 0), out);
  });
  CHECK(contains(text, "[tapir] binary(Div)  float32 (2, 2), float32 (2, 2), float32 (2, 2) strides (1, 2)"));
  CHECK(contains(text, " us\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(out.to_vector<float>()[1] == 2.0f / 3.0f);
}

TEST_CASE("TAPIR_DUMP: a call that makes a NaN of finite operands becomes a case that can be replayed") {
  Folder folder;
  TableInUse guard(make_traced(real_table(), DeviceType::CPU, false, folder.path.string()));
  const Tensor base = tensor({0., 1., 2., 3., 4., 5.});
  const Tensor a = alias(base, {2, 2}, {1, 2}, 0), b = alias(base, {2, 2}, {0, 1}, 0);  // (0 2; 1 3) / (0 1; 0 1)
  stderr_of([&] { divided(a, b, empty({2, 2})); });
  StateDict tensors;
  const std::string line = folder.take_line(tensors);
  CHECK(contains(line, "\"entry\":\"binary\""));
  CHECK(contains(line, "NaN or infinity"));
  CHECK(tensors.size() == 2);  // a and b share memory

  Replay replay(line, tensors);
  REQUIRE(replay.args.size() == 4);
  Context& ctx = context(kCPU);
  call_entry(real_table(), replay.entry, ctx, replay.args);
  const float* y = replay.args[0].view.as<float>();
  CHECK(std::isnan(y[0]));
  CHECK(y[1] == 2);
  CHECK(std::isinf(y[2]));
  CHECK(y[3] == 3);
  CHECK_THROWS_AS(call_entry(real_table(), entry::Id::unary, ctx, replay.args), ValueError);
  CHECK_THROWS_AS(call_entry(real_table(), "no such entry", ctx, replay.args), ValueError);
}

TEST_CASE("TAPIR_DUMP: what is right, or was not finite before, is not dumped") {
  Folder folder;
  TableInUse guard(make_traced(real_table(), DeviceType::CPU, false, folder.path.string()));
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor bad = tensor(std::vector<float>{inf, 1}), good = tensor({2., 4.});
  divided(good, good, empty({2}));
  divided(bad, good, empty({2}));
  backend(good).binary(context(good), {empty({2}), good, TensorView(Scalar(inf), kFloat32), {BinaryOp::Mul}});
  backend(good).fill(context(good), {good, -inf});
  CHECK(folder.cases().empty());
}

TEST_CASE("TAPIR_DUMP: bad values and exceptions") {
  static bool throws;
  static BackendTable table;
  table = real_table();
  table.optimizer_step = [](Context& ctx, const entry::OptimizerStep&) {
    if (throws) throw std::runtime_error("a \"bad\" day");
    ctx.bad_value(3, -7, 5);
  };
  const Tensor p = tensor({1., 2.}), lr = tensor(0.1, {.dtype = kFloat64}), step = tensor(1);
  const TensorView views[] = {p};
  const entry::OptimizerStep call{
      .values = views, .grads = views, .lr = lr, .step = step, .params = {.op = OptimizerOp::AdamW}};
  for (const bool is_thrown : {false, true}) {
    throws = is_thrown;
    Folder folder;
    TableInUse guard(make_traced(table, DeviceType::CPU, false, folder.path.string()));
    const auto run = [&] { backend(p).optimizer_step(context(p), call); };
    stderr_of([&] { CHECK(message_of<std::runtime_error>(run) == (is_thrown ? "a \"bad\" day" : "nothing")); });
    StateDict tensors;
    const std::string line = folder.take_line(tensors);
    CHECK(contains(line, is_thrown ? "a \\\"bad\\\" day" : "bad value -7 at position 3, bound 5"));
    CHECK(Replay(line, tensors).args.size() == 12);
  }
}

TEST_CASE("without the variables the real table is used") {
  if (std::getenv("TAPIR_LOG") || std::getenv("TAPIR_DUMP")) SKIP_TEST("TAPIR_LOG or TAPIR_DUMP is set");
  CHECK(&traced(real_table(), DeviceType::CPU) == &real_table());
  CHECK(&load_backend(kCPU) == &real_table());
}
