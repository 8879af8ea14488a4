// Kernels of compiled functions are made in the background: calls run as they are until they are there. On the emulated device, whose
// compiler counts, waits and refuses as tests want; each in a process of its own, with an empty cache.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "../compile/steps.h"
#include "../stderr_of.h"
#include "cuda.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

/// Two fused calls, one on each side of a minimum, which none takes along.
Tensor function(const Tensor& x) {
  const Tensor y = tanh(x * 2) + 1;
  return exp(y - amin(y)) * y;
}
Tensor numbers(int i) { return wave({257}, 0.1 * (i + 1)).cuda().narrow(0, 1, 256); }  // not at a multiple of 16 bytes

/// The folder of a test and of the processes that it starts: its cache, and its files.
class Place {
 public:
  Place() : path_(std::filesystem::temp_directory_path() / "tapir_background.XXXXXX") {
    if (!mkdtemp(path_.data())) path_.clear();
  }
  ~Place() { std::filesystem::remove_all(path_); }
  std::string settings() const {
    return "TAPIR_BACKGROUND_TEST=" + path_ + " TAPIR_CACHE=" + path_ + "/cache TAPIR_EMULATED_COMPILE_LOG=" + path_ +
           "/log TAPIR_EMULATED_COMPILE_HOLD=" + path_ + "/hold ";
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// In a process that was started: its files.
std::string own_file(const char* name) { return std::string(std::getenv("TAPIR_BACKGROUND_TEST")) + "/" + name; }
bool is_started() { return std::getenv("TAPIR_BACKGROUND_TEST") != nullptr; }
std::map<std::string, int> lines_of(const std::string& file) {
  std::map<std::string, int> counts;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) ++counts[line];
  return counts;
}
void add_line(const std::string& file, const std::string& line) { std::ofstream(file, std::ios::app) << line + "\n"; }
/// Waits for it, a minute and a half at most.
template <class F> bool comes(F&& condition) {
  for (int i = 0; i < 9000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10)))
    if (condition()) return true;
  return false;
}
/// While it lives, compilations wait.
struct Hold {
  std::string file;
  explicit Hold(std::string f) : file(std::move(f)) { add_line(file, ""); }
  ~Hold() { std::filesystem::remove(file); }
};

#define NEEDS_EMULATION \
  NEEDS_CUDA            \
  if (!is_emulated()) SKIP_TEST("needs the emulated device's compiler");

}  // namespace

TEST_CASE("cuda background: calls run as they are until kernels are there, then they are replayed") {
  NEEDS_EMULATION
  if (!is_started()) {
    const Place place;
    CHECK(run_alone(place.settings(), "cuda background: calls run as they are*") == 0);
    return;
  }
  auto fast = compile(function, {.verify = 0});
  {
    const Hold hold(own_file("hold"));
    for (int i = 0; i < 8; ++i) CHECK(same_bits(fast(numbers(i)).cpu(), function(numbers(i)).cpu()));
    CHECK(fast.programs() == 0);
    CHECK(contains(fast.explain(), "not replayed yet: its kernels are being compiled"));
    CHECK(contains(fast.explain(), "recorded 2 times, replayed 0 times"));
    if (get_num_threads() > 1) CHECK(comes([] { return lines_of(own_file("log")).size() == 2; }));  // both at once
  }
  REQUIRE(comes([&] { return fast(numbers(0)), fast.programs() == 1; }));
  for (int i = 0; i < 8; ++i) CHECK(same_bits(fast(numbers(i)).cpu(), function(numbers(i)).cpu()));
  const std::string text = fast.explain();
  INFO(text.substr(0, 400));
  CHECK(contains(text, "replayed 9 times"));
  CHECK(contains(text, "one graph, launched 8 times; 1 runs call by call\n"));  // no capture failed
  CHECK(lines_of(own_file("log")).size() == 2);  // a replay's own addresses are those that kernels were asked for
}

TEST_CASE("cuda background: the call waits where that is asked for, and in deterministic mode") {
  NEEDS_EMULATION
  if (!is_started()) {
    for (const char* how : {"option", "mode", "host"}) {
      INFO(how);
      const Place place;
      CHECK(run_alone(place.settings() + "TAPIR_BACKGROUND_HOW=" + how, "cuda background: the call waits*") == 0);
    }
    return;
  }
  const std::string how = std::getenv("TAPIR_BACKGROUND_HOW");
  if (how == "mode") use_deterministic_algorithms(true);
  const auto called = [&](const Tensor& x) {
    if (how == "host") custom_call("nothing", {}, {}, [](const auto&, const auto&) {});  // as collectives
    return function(x);
  };
  auto fast = compile(called, {.verify = 0, .background = how != "option"});
  for (int i = 0; i < 5; ++i) CHECK(same_bits(fast(numbers(i)).cpu(), function(numbers(i)).cpu()));
  CHECK(fast.programs() == 1);
  CHECK(contains(fast.explain(), "recorded 2 times, replayed 3 times"));
  CHECK(lines_of(own_file("log")).size() == 2);
}

TEST_CASE("cuda background: a differentiable call waits for the kernels of both programs") {
  NEEDS_EMULATION
  if (!is_started()) {
    const Place place;
    CHECK(run_alone(place.settings(), "cuda background: a differentiable call*") == 0);
    return;
  }
  const Tensor w = numbers(3).clone().requires_grad_(), v = w.detach().clone().requires_grad_();
  auto fast = compile([&](const Tensor& x) { return function(x * w); }, {.verify = 0, .rows = false});
  const auto step = [&](int i) {
    w.set_grad({}), v.set_grad({});
    sum(fast(numbers(i))).backward(), sum(function(numbers(i) * v)).backward();
    return same_bits(w.grad().cpu(), v.grad().cpu());
  };
  {
    const Hold hold(own_file("hold"));
    for (int i = 0; i < 8; ++i) CHECK(step(i));
    CHECK(fast.programs() == 0);
  }
  REQUIRE(comes([&] { return step(0), fast.programs() == 1; }));
  const auto compiled = lines_of(own_file("log"));
  for (int i = 0; i < 8; ++i) CHECK(step(i));
  CHECK(contains(fast.explain(), "replayed 9 times"));
  CHECK(lines_of(own_file("log")) == compiled);
  CHECK(compiled.size() >= 3);
}

TEST_CASE("cuda background: processes that want the same kernels at once compile each of them once") {
  NEEDS_EMULATION
  if (is_started()) {
    auto fast = compile(function, {.verify = 0});
    for (int i = 0; i < 3; ++i) fast(numbers(i));
    add_line(own_file("asked"), "asked");
    REQUIRE(comes([&] { return fast(numbers(0)), fast.programs() == 1; }));
    CHECK(same_bits(fast(numbers(5)).cpu(), function(numbers(5)).cpu()));
    add_line(own_file("done"), "done");
    return;
  }
  const Place place;
  const std::string name = "cuda background: processes that want*";
  auto hold = std::make_unique<Hold>(place.path() + "/hold");
  std::thread other([&] { comes([&] { return lines_of(place.path() + "/asked")["asked"] == 2; }), hold.reset(); });
  const std::string first =
      place.settings() + own_path() + " '" + filter_of(name) + "' > " + place.path() + "/out 2>&1 & ";
  CHECK(run_alone(first + place.settings(), name) == 0);
  other.join();
  CHECK(comes([&] { return lines_of(place.path() + "/done")["done"] == 2; }));
  const auto compiled = lines_of(place.path() + "/log");
  CHECK(compiled.size() == 2);
  for (const auto& [kernel, times] : compiled) CHECK(times == 1);
  for (const auto& file : std::filesystem::directory_iterator(place.path() + "/cache/kernels"))
    CHECK(file.path().extension() == "");  // no locks are left
}

TEST_CASE("cuda background: what a compiler says is told once, and the function runs as it is") {
  NEEDS_EMULATION
  if (!is_started()) {
    for (const char* how : {"option", "background"}) {
      INFO(how);
      const Place place;
      CHECK(run_alone(place.settings() + "TAPIR_EMULATED_COMPILE_REFUSE=1 TAPIR_BACKGROUND_HOW=" + how,
                      "cuda background: what a compiler says*") == 0);
    }
    return;
  }
  const bool background = std::string(std::getenv("TAPIR_BACKGROUND_HOW")) == "background";
  auto fast = compile(function, {.verify = 0, .background = background});
  const std::string told = stderr_of([&] {
    comes([&] {
      CHECK(same_bits(fast(numbers(1)).cpu(), function(numbers(1)).cpu()));
      return contains(fast.explain(), "runs as it is: ");
    });
    for (int i = 0; i < 4; ++i) CHECK(same_bits(fast(numbers(i)).cpu(), function(numbers(i)).cpu()));
  });
  CHECK(contains(fast.explain(), "[fused] NVRTC: error 6: refused"));
  const size_t first = told.find("NVRTC: error 6: refused");
  CHECK(first != std::string::npos);
  CHECK(told.find("error 6", first + 20) == std::string::npos);
  CHECK(fast.programs() == 0);
  unsetenv("TAPIR_EMULATED_COMPILE_REFUSE");  // the next one asks again
  auto again = compile(function, {.verify = 0, .background = false});
  for (int i = 0; i < 4; ++i) again(numbers(i));
  CHECK(again.programs() == 1);
}

TEST_CASE("cuda background: a program that ends while kernels are compiled ends well") {
  NEEDS_EMULATION
  if (!is_started()) {
    const Place place;
    CHECK(run_alone(place.settings() + "OMP_NUM_THREADS=1", "cuda background: a program that ends*") == 0);
    CHECK(lines_of(place.path() + "/log").size() == 1);  // the other one had not begun, and never did
    return;
  }
  add_line(own_file("hold"), "");
  {
    auto fast = compile(function, {.verify = 0});
    for (int i = 0; i < 3; ++i) fast(numbers(i));
    CHECK(comes([] { return lines_of(own_file("log")).size() == 1; }));
  }
  CHECK(std::system(("(sleep 3; rm -f " + own_file("hold") + ") > /dev/null 2>&1 &").c_str()) == 0);
}
