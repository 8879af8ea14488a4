#include <tapir/train/profiler.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <tapir/autograd/engine.h>
#include <tapir/autograd/function.h>
#include <tapir/core/cuda.h>
#include <tapir/data/loader.h>
#include <tapir/io/json.h>
#include <tapir/models/gpt2.h>
#include <tapir/ops/ops.h>
#include <tapir/optim/adam.h>

#include "../catch.h"
#include "../io/temporary.h"

using namespace tapir;
using namespace tapir_tests;
using Token = io::JsonReader::Token;

namespace {

/// An event of a trace, as a reader that knows nothing of us sees it.
struct Seen {
  std::string ph, name, cat;
  double ts = -1, dur = -1;
  int64_t pid = -1, tid = -1, allocated = -1;
};
Seen read_event(io::JsonReader& in) {
  Seen e;
  for (Token t = in.next(); t != Token::EndObject; t = in.next()) {
    REQUIRE(t == Token::Key);
    const std::string key(in.text());
    t = in.next();
    const std::string value(in.text());
    if (key == "ph") e.ph = value;
    else if (key == "name") e.name = value;
    else if (key == "cat") e.cat = value;
    else if (key == "ts") e.ts = std::stod(value);
    else if (key == "dur") e.dur = std::stod(value);
    else if (key == "pid") e.pid = std::stoll(value);
    else if (key == "tid") e.tid = std::stoll(value);
    else if (key == "args" && e.ph == "C") {
      REQUIRE(in.next() == Token::Key);
      REQUIRE(in.next() == Token::Number);
      e.allocated = std::stoll(std::string(in.text()));
      REQUIRE(in.next() == Token::EndObject);
    } else in.skip(t);
  }
  return e;
}
std::vector<Seen> read_trace(const profiler::Profile& profile) {
  const TemporaryFolder folder;
  profile.export_chrome_trace(folder / "trace.json");
  const std::string text = io::read_file("test", folder / "trace.json");
  io::JsonReader in(text, "trace", 8);
  REQUIRE(in.next() == Token::BeginObject);
  std::vector<Seen> events;
  for (Token t = in.next(); t != Token::EndObject; t = in.next()) {
    REQUIRE(t == Token::Key);
    if (in.text() != "traceEvents") {
      in.skip(in.next());
      continue;
    }
    REQUIRE(in.next() == Token::BeginArray);
    for (t = in.next(); t != Token::EndArray; t = in.next()) events.push_back(read_event(in));
  }
  REQUIRE(in.next() == Token::End);
  return events;
}

/// The rules of complete events: all of them are there, and those of a track lie apart or within one another.
void check_rules(const std::vector<Seen>& events) {
  std::map<int64_t, std::vector<Seen>> tracks;
  int64_t incomplete = 0, crossed = 0;
  for (const Seen& e : events) {
    incomplete += e.name.empty() || e.pid < 0 || e.tid < 0 || (e.ph != "X" && e.ph != "M" && e.ph != "C");
    incomplete += e.ph == "C" && (e.ts < 0 || e.allocated < 0);
    if (e.ph != "X") continue;
    incomplete += e.ts < 0 || e.dur < 0 || e.cat.empty();
    tracks[e.tid].push_back(e);
  }
  constexpr double kStep = 2e-3;  // times are written with three decimals
  for (auto& [tid, track] : tracks) {
    std::vector<double> ends;
    double last = 0;
    for (const Seen& e : track) {
      crossed += e.ts < last;
      last = e.ts;
      while (!ends.empty() && ends.back() <= e.ts + kStep) ends.pop_back();
      crossed += !ends.empty() && e.ts + e.dur > ends.back() + kStep;
      ends.push_back(e.ts + e.dur);
    }
  }
  CHECK(incomplete == 0);
  CHECK(crossed == 0);
}

const profiler::ProfileRow* find(const std::vector<profiler::ProfileRow>& rows, const std::string& name) {
  for (const auto& row : rows)
    if (row.name == name) return &row;
  return nullptr;
}
int64_t count(const std::vector<profiler::ProfileRow>& rows, const std::string& name) {
  const auto* row = find(rows, name);
  return row ? row->count : 0;
}
double self_sum(const std::vector<profiler::ProfileRow>& rows) {
  double sum = 0;
  for (const auto& row : rows) sum += row.self_cpu;
  return sum;
}

struct Gpt {
  models::GPT2LMHeadModel net{{.vocab_size = 100, .n_positions = 64, .n_embd = 64, .n_layer = 2, .n_head = 2}};
  optim::AdamW opt{net.parameters(), {.lr = 1e-3}};
  Tensor tokens = randint(0, 100, {4, 64});
  Device device;
  explicit Gpt(Device device = kCPU) : device(device) { net.to(device), tokens = tokens.to(device); }
  void step() {
    opt.zero_grad();
    cross_entropy(net(tokens).view({-1, 100}), tokens.view(-1)).backward();
    opt.step();
  }
};

}  // namespace

TEST_CASE("a GPT step in a profile") {
  Gpt gpt;
  gpt.step();
  profiler::Profile profile({.record_shapes = true});
  for (int i = 0; i < 3; ++i) gpt.step();
  profile.stop();
  const auto rows = profile.key_averages();

  SECTION("has its operations, modules, backward nodes and the optimizer") {
    for (const char* name : {"GPT2LMHeadModel", "GPT2Model", "LayerNorm", "Embedding", "embedding", "layer_norm",
                             "dropout", "cross_entropy", "backward", "layer_normBackward", "cross_entropyBackward",
                             "AccumulateGrad", "Optimizer.step#AdamW.step"}) {
      INFO(name << "\n" << profile.table());
      CHECK(find(rows, name));
    }
    CHECK(count(rows, "GPT2LMHeadModel") == 3);
    CHECK(count(rows, "GPT2Block") == 6);
    CHECK(count(rows, "Optimizer.step#AdamW.step") == 3);
    CHECK(count(rows, "cross_entropyBackward") == 3);
  }
  SECTION("adds up to the step's time") {
    CHECK(self_sum(rows) > 0.9 * profile.duration());
    CHECK(self_sum(rows) <= profile.duration() * 1.0001);
    for (const auto& row : rows) CHECK((row.self_cpu >= 0 && row.cpu >= row.self_cpu * 0.999));
  }
  SECTION("is a trace that obeys the rules") {
    const auto events = read_trace(profile);
    check_rules(events);
    std::map<std::string, int64_t> kinds;
    for (const Seen& e : events) ++kinds[e.ph + " " + e.cat];
    CHECK(kinds["X optimizer"] == 3);
    CHECK(kinds["X op"] > 100);
    CHECK(kinds["X kernel"] > 100);
    CHECK(kinds["X backward"] > 50);
    CHECK(kinds["C "] > 100);
  }
  SECTION("shows shapes where they were recorded") {
    const std::string text = profile.table({.group_by_input_shape = true});
    INFO(text);
    CHECK(text.find("[256, 100]") != std::string::npos);
  }
}

TEST_CASE("what a table says of memory") {
  profiler::Profile profile;
  Tensor x = ones({1000});
  {
    const profiler::Range range("scratch");
    const Tensor y = x + 1, z = x.eq(y);
    x = y * 2;
  }
  profile.stop();
  const auto rows = profile.key_averages({.sort_by = "count"});
  CHECK(find(rows, "ones")->self_bytes == 4000);
  CHECK(find(rows, "add")->self_bytes == 4000);
  CHECK(find(rows, "eq")->self_bytes == 1000);
  CHECK(find(rows, "scratch")->bytes == 0);  // 4000 + 1000 + 4000 came, x, y and z went
  CHECK(find(rows, "mul")->count == 1);
  CHECK_THROWS_AS(profile.key_averages({.sort_by = "size"}), ValueError);
}

TEST_CASE("what a table says of arithmetic and traffic") {
  const Tensor a = ones({64, 32}), b = ones({32, 16});
  profiler::Profile profile;
  {
    const profiler::Range range("products");
    for (int i = 0; i < 3; ++i) (void)matmul(a, b);
  }
  (void)relu(a);
  profile.stop();
  const auto rows = profile.key_averages();
  CHECK(find(rows, "matmul")->flops == 3 * 2. * 64 * 32 * 16);
  CHECK(find(rows, "matmul")->traffic == 3 * 4. * (64 * 32 + 32 * 16 + 64 * 16));
  CHECK(find(rows, "relu")->flops == 0);
  CHECK(find(rows, "relu")->traffic == 2 * 4. * 64 * 32);
  CHECK(find(rows, "products")->flops == 0);  // they are its matmuls' own
  const std::string text = profile.table();
  INFO(text);
  std::map<std::string, std::vector<std::string>> lines;  // the words of each line by its first
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, word;
    for (words >> name; words >> word;) lines[name].push_back(word);
  }
  REQUIRE(lines["name"].size() >= 2);
  CHECK(lines["name"].end()[-2] == "GFLOP/s");
  CHECK(lines["name"].end()[-1] == "GB/s");
  REQUIRE(lines["matmul"].size() >= 2);
  CHECK(std::stod(lines["matmul"].end()[-2]) ==
        Approx(find(rows, "matmul")->flops / find(rows, "matmul")->self_cpu * 1e-9).margin(0.051));
  CHECK(std::stod(lines["matmul"].end()[-1]) ==
        Approx(find(rows, "matmul")->traffic / find(rows, "matmul")->self_cpu * 1e-9).margin(0.051));
  CHECK(lines["relu"].end()[-2] == "-");
  CHECK(lines["products"].end()[-1] == "-");
}

TEST_CASE("one profile at a time, in any thread") {
  profiler::Profile profile;
  CHECK_THROWS_AS(profiler::Profile(), ValueError);
  CHECK_THROWS_AS(profile.key_averages(), ValueError);
  std::thread([] { CHECK_THROWS_AS(profiler::Profile(), ValueError); }).join();
  profile.stop();
  profile.stop();
  profiler::Profile next;
  (void)ones({2});
  next.stop();
  CHECK(count(next.key_averages(), "ones") == 1);
}

TEST_CASE("exceptions leave a profile whole") {
  const Tensor a = ones({2, 3});
  profiler::Profile profile;
  try {
    const profiler::Range outer("outer");
    const profiler::Range inner("inner");
    (void)a.matmul(a);
  } catch (const ValueError&) {}
  CHECK_THROWS_AS(embedding(tensor(std::vector<int64_t>{9}), a), ValueError);
  (void)(a + a);
  profile.stop();
  const auto rows = profile.key_averages();
  CHECK(count(rows, "outer") == 1);
  CHECK(count(rows, "inner") == 1);
  CHECK(count(rows, "add") == 1);
  check_rules(read_trace(profile));
}

TEST_CASE("a range that is open when the profile ends, or that is older than it") {
  const profiler::Range before("before");
  auto profile = std::make_unique<profiler::Profile>();
  {
    const profiler::Range open("open");
    (void)ones({2});
    profile->stop();
  }
  const auto rows = profile->key_averages();
  CHECK(count(rows, "open") == 1);
  CHECK(count(rows, "before") == 0);
  const auto next = std::make_unique<profiler::Profile>();
  { const profiler::Range range(std::string("n\xff") + "ame"); }  // not UTF-8
  next->stop();
  CHECK(next->key_averages().size() == 1);
  check_rules(read_trace(*next));
}

TEST_CASE("threads record into logs of their own") {
  const auto work = [](const std::atomic<bool>& stop) {
    const Tensor x = ones({100}).requires_grad_();
    while (!stop) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      const profiler::Range range("work");
      sum(x * x).backward();
    }
  };
  std::atomic<bool> end{false};
  std::thread older([&] { work(end); });  // before and behind every profile
  for (int round = 0; round < 3; ++round) {
    profiler::Profile profile;
    std::atomic<bool> stop{false};
    std::thread younger([&] { work(stop); });
    for (int i = 0; i < 50; ++i) {
      const profiler::Range range("own");
      (void)sum(ones({10}));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others come to record, on slow machines too
    profile.stop();
    const auto rows = profile.key_averages();
    CHECK(count(rows, "own") == 50);
    CHECK(count(rows, "work") > 0);
    CHECK(count(rows, "mulBackward") > 0);
    check_rules(read_trace(profile));
    stop = true;
    younger.join();
  }
  end = true;
  older.join();
  (void)(ones({2}) + 1);  // the tables are what they were
}

TEST_CASE("a loader's work and the wait for it") {
  const auto dataset = data::map(data::TensorDataset(arange(64)), [](const Tensor& x) { return std::array{x + 1}; });
  for (const int64_t workers : {0, 2}) {
    data::DataLoader loader(dataset, {.batch_size = 8, .num_workers = workers, .seed = 1});
    profiler::Profile profile;
    for (auto& batch : loader) CHECK(batch[0].numel() == 8);
    profile.stop();
    const auto rows = profile.key_averages();
    CHECK(count(rows, "DataLoader.load") == 8);
    CHECK(count(rows, "DataLoader.wait") == (workers ? 8 : 0));
    CHECK(count(rows, "add") == 64);
    check_rules(read_trace(profile));
  }
}

TEST_CASE("a custom function is an operation, and so is its gradient") {
  const auto twice = custom_function(
      "twice", [](const Tensor& x) { return x * 2; },
      [](const Tensor& g, const Tensor&, const Tensor&) { return g * 2; });
  const Tensor x = ones({3}).requires_grad_();
  profiler::Profile profile;
  sum(twice(x)).backward();
  profile.stop();
  CHECK(count(profile.key_averages(), "twice") == 1);
  CHECK(count(profile.key_averages(), "twiceBackward") == 1);
}

TEST_CASE("a step on a CUDA device, with the time of its kernels") {
  if (!cuda::is_available()) return;
  Gpt gpt(kCUDA);
  gpt.step();
  cuda::synchronize();
  profiler::Profile profile;
  for (int i = 0; i < 2; ++i) gpt.step();
  profile.stop();
  double cuda = 0;
  for (const auto& row : profile.key_averages({.sort_by = "self_cuda_time_total"})) cuda += row.self_cuda;
  CHECK(cuda > 0);
  CHECK(profile.table().find("self CUDA") != std::string::npos);
  const auto events = read_trace(profile);
  check_rules(events);
  int64_t on_streams = 0;
  for (const Seen& e : events) on_streams += e.ph == "X" && e.tid >= 1000;
  CHECK(on_streams > 100);
  CHECK(find(profile.key_averages(), "linear")->flops > 0);
}

TEST_CASE("profiler: the product of a quantized layer counts as the layer's own") {
  nn::Sequential net(nn::Linear(64, 32));
  auto quantized = quant::quantize_dynamic(net);
  NoGrad guard;
  profiler::Profile profile;
  quantized(randn({2, 8, 64}));
  profile.stop();
  const auto rows = profile.key_averages();
  const auto* row = find(rows, "quantized_linear");
  REQUIRE(row);
  CHECK(row->flops == 2. * 16 * 64 * 32);
  CHECK(row->count == 1);
}
