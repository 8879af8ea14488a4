// cuda_kernels/fused/fused_layout.cpp, fused_source.cpp, kernel_files.cpp, vendor/nvrtc.cpp: what a fused call's kernel is, and that NVRTC takes it.
// Needs no device.
#include "../../cuda_kernels/fused/fused_source.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../../cuda_kernels/fused/kernel_files.h"
#include "../../cuda_kernels/vendor/nvrtc.h"
#include "fused_steps.h"

using namespace tapir_tests;
using namespace tapir::cuda_kernels;

namespace {

alignas(64) char memory[1 << 16];  // never read

TensorView view(DType t, const Shape& shape, std::vector<int64_t> strides = {}, int64_t offset = 0) {
  TensorView v(Scalar(0), t);
  v.is_scalar = false, v.rank = shape.size(), v.data = memory + offset * size_of(t);
  int64_t step = 1;
  for (int64_t d = v.rank; d-- > 0;) {
    v.sizes[d] = shape[d], v.strides[d] = strides.empty() ? step : strides[size_t(d)];
    step *= shape[d];
  }
  return v;
}
using Views = std::vector<TensorView>;

/// x + y, stored.
Steps sum(DType t) {
  Steps s;
  s.store(s.binary(BinaryOp::Add, s.load(0, t), s.load(1, t)), 0);
  return s;
}
std::string text_of(const Steps& s, const Views& outs, const Views& ins) {
  return source_of(FusedLayout(outs, ins, s.params), s.params, "kernel");
}
bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// NVRTC's words for a wrong text, or nothing.
std::string refused(const Steps& s, const Views& outs, const Views& ins, int capability) {
  try {
    const std::string binary = nvrtc::compile(text_of(s, outs, ins), "kernel", capability);
    return binary.size() > 100 ? "" : "an empty binary";
  } catch (const InternalError& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("fused layout: dimensions are joined, and packs are as wide as operands allow") {
  const Steps s = sum(kFloat32);
  const auto lie = [&](const TensorView& out, const TensorView& x, const TensorView& y) {
    return FusedLayout(Views{out}, Views{x, y}, s.params);
  };
  const Shape shape = {6, 8, 4};
  const TensorView whole = view(kFloat32, shape);
  const FusedLayout line = lie(whole, whole, whole);
  CHECK((line.rank == 1 && line.width == 4 && line.packs == 48 && line.line == 192));
  CHECK((line.place[0] == Place::Pack && line.flat[1]));
  const FusedLayout broadcast = lie(whole, whole, view(kFloat32, {8, 4}));
  CHECK((broadcast.rank == 2 && broadcast.width == 4 && broadcast.packs == 48));
  CHECK((broadcast.flat[0] && !broadcast.flat[2] && broadcast.place[2] == Place::Pack));
  CHECK(lie(whole, whole, view(kFloat32, {1})).place[2] == Place::One);
  CHECK(lie(whole, whole, view(kFloat32, {8, 1})).place[2] == Place::Same);
  CHECK(lie(whole, whole, view(kFloat32, shape, {}, 1)).place[2] == Place::Spread);
  CHECK(lie(view(kFloat32, shape, {}, 1), whole, whole).width == 1);
  // One order that is not row-major is a line too; odd rows are taken one by one.
  const TensorView across = view(kFloat32, shape, {1, 24, 6});
  CHECK(lie(across, across, across).rank == 1);
  CHECK(lie(view(kFloat32, {6, 33}), view(kFloat32, {6, 33}), view(kFloat32, {33})).width == 1);
  CHECK(lie(view(kFloat32, {1027}), view(kFloat32, {1027}), view(kFloat32, {1027})).packs == 257);
  CHECK(lie(view(kBFloat16, {64}), view(kBFloat16, {64}), view(kFloat32, {64})).width == 8);
  const FusedLayout large = lie(view(kInt8, {int64_t(1) << 40}), view(kInt8, {1}), view(kInt8, {int64_t(1) << 40}));
  CHECK((large.wide && large.packs == int64_t(1) << 37));
}

TEST_CASE("fused layout: a call that draws keeps the order of elements") {
  Steps s;
  s.store(s.keep(0.5, 1, 2), 0);
  const FusedLayout across(Views{view(kBool, {8, 4}, {1, 8})}, Views{}, s.params);
  CHECK((across.rank == 2 && across.width == 1));
  CHECK(FusedLayout(Views{view(kBool, {8, 4})}, Views{}, s.params).width == 8);
}

TEST_CASE("fused signature: kernels serve sizes, strides and numbers, not dtypes, operations or places") {
  const auto of = [](const Steps& s, const TensorView& out, const TensorView& x, const TensorView& y) {
    const FusedLayout l(Views{out}, Views{x, y}, s.params);
    return call_of(l, s.params).signature + "\n" + source_of(l, s.params, "kernel");
  };
  const Steps s = sum(kFloat32);
  const TensorView a = view(kFloat32, {64}), b = view(kFloat32, {4096});
  const std::string first = of(s, a, a, a);
  CHECK(of(s, b, b, b) == first);
  CHECK(of(s, a, a, view(kFloat32, {1})) != first);
  Steps scaled = sum(kFloat32), more = sum(kFloat32), other = sum(kFloat32);
  scaled.params.steps[2].numbers[0] = 0.25, more.params.steps[2].numbers[0] = 1e-3;
  other.params.steps[2].op = uint8_t(BinaryOp::Sub);
  CHECK(of(scaled, a, a, a) != first);  // 1 is part of the text
  CHECK(of(scaled, a, a, a) == of(more, a, a, a));
  CHECK(of(other, a, a, a) != first);
  const TensorView d = view(kFloat64, {64});
  CHECK(of(sum(kFloat64), d, d, d) != first);
}

TEST_CASE("fused source: a kernel, which may be launched early, waits before it reads anything") {
  const std::string text =
      text_of(sum(kFloat32), {view(kFloat32, {5, 7})}, {view(kFloat32, {5, 7}), view(kFloat32, {7})});
  const size_t waits = text.find("griddepcontrol.wait"), begins = text.find("(const Args a)");
  REQUIRE(begins != std::string::npos);
  REQUIRE(waits != std::string::npos);
  CHECK(begins < waits);
  CHECK(waits < text.find("a.data", begins));
  CHECK(waits < text.find("a.words", begins));
}

TEST_CASE("fused source: values known for all are made once, and what cannot be is refused") {
  Steps s;
  const uint8_t scale = s.unary(UnaryOp::Exp, s.load(1, kFloat32));
  s.store(s.binary(BinaryOp::Mul, s.load(0, kFloat32), scale), 0);
  const std::string text = text_of(s, {view(kFloat32, {64})}, {view(kFloat32, {64}), view(kFloat32, {})});
  CHECK(text.find("UnaryOp") < text.find("for ("));
  CHECK(text.find("BinaryOp") > text.find("for ("));
  Steps divides = sum(kInt32);
  divides.params.steps[2].op = uint8_t(BinaryOp::Div);
  const TensorView i = view(kInt32, {64});
  CHECK_THROWS_AS(text_of(divides, {i}, {i, i}), ValueError);
  Steps reduces = sum(kFloat32);
  reduces.params.steps[2] = {.kind = FusedKind::Reduce, .op = uint8_t(ReduceOp::Sum), .type = kFloat32, .operand = {0}};
  const TensorView f = view(kFloat32, {64});
  CHECK_THROWS_AS(text_of(reduces, {f}, {f, f}), InternalError);  // no rows
  Steps kept;
  kept.params.row_dims = 1;
  kept.store(kept.load(0, kFloat32), 0);
  const TensorView row = view(kFloat32, {4, 16}, {1, 0});
  CHECK_THROWS_AS(text_of(kept, {row}, {view(kFloat32, {4, 16})}), InternalError);  // many numbers to one place
}

TEST_CASE("fused source: NVRTC takes every operation, dtype and layout") {
  if (!nvrtc::why_not().empty()) SKIP_TEST(nvrtc::why_not().c_str());
  const Shape shape = {9, 64};
  for (const DType t : {kFloat32, kFloat64, kInt64, kUInt8, kBool}) {  // all operations of a dtype, in a few kernels
    Steps s;
    const uint8_t x = s.load(0, t), y = s.load(1, t);
    int out = 0;
    Views outs;
    const auto flush = [&](bool all) {
      if (out < kFusedOutputs && !all) return;
      INFO(name_of(t) << " " << int(s.params.steps[2].op));
      CHECK(refused(s, outs, {view(t, shape), view(t, {64})}, 90) == "");
      s.params.count = 2, outs.clear(), out = 0;
    };
    const auto keep = [&](uint8_t v) {
      outs.push_back(view(s.type(v), shape));
      s.store(v, out++);
      flush(false);
    };
    const auto try_each = [&](int last, auto make) {
      for (int op = 0; op <= last; ++op) {
        const auto before = s.params.count;
        const uint8_t v = make(op);
        try {
          computes_in(s.params, v);
          keep(v);
        } catch (const ValueError&) {
          s.params.count = before;  // none for this dtype
        }
      }
    };
    try_each(int(UnaryOp::SignBit), [&](int op) { return s.unary(UnaryOp(op), x, 0.375, 2, 0.5); });
    try_each(int(BinaryOp::SincGrad), [&](int op) { return s.binary(BinaryOp(op), x, y, 0.25, 2, 0.5); });
    try_each(int(TernaryOp::GluGrad),
             [&](int op) { return s.ternary(TernaryOp(op), op == 0 ? s.cast(x, kBool) : x, x, y, 3); });
    if (out) flush(true);
  }
}

TEST_CASE("fused source: NVRTC takes casts, drawing, rows; for each architecture") {
  if (!nvrtc::why_not().empty()) SKIP_TEST(nvrtc::why_not().c_str());
  Steps s;
  Views outs;
  const uint8_t x = s.load(0, kFloat16), wide = s.cast(x, kFloat32);
  int out = 0;
  for (const DType t : {kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    outs.push_back(view(t, {8, 64}));
    s.store(s.cast(wide, t), out++);
  }
  const uint8_t keep = s.keep(0.25, 5, 6, s.load(2, kInt64));
  outs.push_back(view(kFloat32, {8, 64}));
  s.store(s.ternary(TernaryOp::Where, keep, s.load(1, kFloat32), s.number(0.0, kFloat32)), out);
  const Views ins = {view(kFloat16, {8, 64}), view(kFloat32, {8, 64}, {1, 8}), view(kInt64, {})};
  for (const int capability : {80, 90, 999}) {
    INFO(capability);
    CHECK(refused(s, outs, ins, capability) == "");
  }
  for (const int64_t n : {64, 4096}) {
    Steps row;
    row.params.row_dims = 1;
    const uint8_t v = row.load(0, kFloat32), most = row.reduce(ReduceOp::Max, v);
    const uint8_t total = row.reduce(ReduceOp::Sum, row.unary(UnaryOp::Exp, row.binary(BinaryOp::Sub, v, most)));
    row.store(row.binary(BinaryOp::Div, v, total), 0);
    row.store(total, 1);
    for (const int capability : {80, 90})
      CHECK(refused(row, {view(kFloat32, {4, n}), view(kFloat32, {4, n}, {1, 0})}, {view(kFloat32, {4, n})},
                    capability) == "");
  }
  CHECK_THROWS_AS(nvrtc::compile("what is this", "kernel", 90), InternalError);
}

TEST_CASE("fused source: NVRTC moves 16 bytes at a time, and rounds products apart from sums") {
  if (!nvrtc::why_not().empty()) SKIP_TEST(nvrtc::why_not().c_str());
  Steps s;
  s.store(
      s.binary(BinaryOp::Add, s.binary(BinaryOp::Mul, s.load(0, kFloat32), s.load(1, kFloat32)), s.load(1, kFloat32)),
      0);
  const TensorView line = view(kFloat32, {1024});
  const std::string ptx =
      nvrtc::compile(text_of(s, {line}, {line, line}), "kernel", 999);  // text, for drivers of later devices
  CHECK(has(ptx, "ld.global.v4.f32"));
  CHECK(has(ptx, "st.global.v4.f32"));
  CHECK(has(ptx, "mul.rn.f32"));
  CHECK(has(ptx, "add.rn.f32"));
  CHECK(!has(ptx, "fma"));
}

TEST_CASE("fused source: the key of what is kept names NVRTC's file and options") {
  if (!nvrtc::why_not().empty()) SKIP_TEST(nvrtc::why_not().c_str());
  for (const char* part : {"nvrtc 1", "libnvrtc.so", "-fmad=false", "-std=c++20", "-default-device"})
    CHECK(has(nvrtc::version(), part));
}

namespace {

/// What the stand-in's kinds of trouble become; in a process that has it for its NVRTC.
void check_stand_in(std::string_view settings) {
  const std::string why = nvrtc::why_not();
  if (settings == "11.8 works") CHECK(has(why, "expected NVRTC of CUDA 12.0 or newer, got 11.8"));
  if (settings == "12.4 breaks") CHECK(has(why, "libnvrtc-builtins"));
  if (settings == "12.4 works") {
    CHECK(why == "");
    CHECK(nvrtc::why_not(90, 12000) == "");  // machine code
    CHECK(nvrtc::why_not(90, 13000) == "");
    CHECK(has(nvrtc::why_not(90, 11080), "for CUDA 11.8"));
    CHECK(nvrtc::why_not(100, 12040) == "");  // text
    CHECK(has(nvrtc::why_not(100, 12020), "12.4"));
    CHECK(has(nvrtc::why_not(75, 12040), "up to 75"));
    CHECK(has(nvrtc::compile("", "kernel", 90), "a binary"));
  }
  if (settings == "12.4 empties") {
    CHECK(why == "");
    CHECK_THROWS_AS(nvrtc::compile("", "kernel", 90), InternalError);
  }
}

}  // namespace

TEST_CASE("fused source: NVRTC that does not work, or not with this driver, is none") {
  if (const char* settings = std::getenv("TAPIR_NVRTC")) return check_stand_in(settings);
  const std::string own = own_path(), folder = own.substr(0, own.rfind('/')) + "/cuda_emulation/nvrtc_stand_in";
  if (!std::filesystem::exists(folder + "/libnvrtc.so.13")) SKIP_TEST("the stand-in was not built");
  for (const char* settings : {"11.8 works", "12.4 works", "12.4 breaks", "12.4 empties"}) {
    INFO(settings);
    CHECK(run_alone("LD_LIBRARY_PATH='" + folder + "' TAPIR_NVRTC='" + settings + "'",
                    "fused source: NVRTC that does not work*") == 0);
  }
}

TEST_CASE("kernel files: found again, never in part, by many at once") {
  std::string folder = std::string(std::filesystem::temp_directory_path()) + "/tapir_kernels.XXXXXX";
  REQUIRE(mkdtemp(folder.data()));
  const KernelFiles files(folder), none("");
  const std::string binary(100000, 'b');
  CHECK(files.find("key") == "");
  files.keep("key", binary), none.keep("key", binary);
  CHECK(files.find("key") == binary);
  CHECK(KernelFiles(folder).find("key") == binary);
  CHECK((files.find("other") == "" && none.find("key") == ""));
  std::filesystem::copy_file(files.path_of("key"), files.path_of("other"));
  CHECK(files.find("other") == "");  // it is another key's
  std::filesystem::resize_file(files.path_of("key"), 5000);
  CHECK(files.find("key") == "");
  std::ofstream(files.path_of("key")) << "not ours";
  CHECK(files.find("key") == "");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        files.keep("shared", binary);
        wrong += files.find("shared") != binary;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  for (const auto& file : std::filesystem::directory_iterator(folder + "/kernels"))
    CHECK(file.path().extension() == "");  // no parts are left
  std::filesystem::remove_all(folder);
}

TEST_CASE("kernel files: many that want one kernel make it once") {
  std::string folder = std::string(std::filesystem::temp_directory_path()) + "/tapir_kernels.XXXXXX";
  REQUIRE(mkdtemp(folder.data()));
  std::atomic<int> made{0}, wrong{0};
  const auto make = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return ++made, std::string("binary");
  };
  const auto patient = [] { return false; };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { wrong += KernelFiles(folder).find_or_make("key", make, patient) != "binary"; });
  for (std::thread& t : threads) t.join();
  CHECK((made == 1 && wrong == 0));
  CHECK_THROWS_AS(KernelFiles(folder).find_or_make(
                      "other", []() -> std::string { throw 1; }, patient),
                  int);
  for (const auto& file : std::filesystem::directory_iterator(folder + "/kernels"))
    CHECK(file.path().extension() == "");  // no locks are left
  CHECK(KernelFiles("").find_or_make("key", make, patient) == "binary");
  CHECK(KernelFiles("/dev/null/none").find_or_make("key", make, patient) == "binary");  // no file can be there
  CHECK(made == 3);
  std::filesystem::remove_all(folder);
}

TEST_CASE("kernel files: a process that dies while it makes a kernel, or a hurry, ends the waiting") {
  std::string folder = std::string(std::filesystem::temp_directory_path()) + "/tapir_kernels.XXXXXX";
  REQUIRE(mkdtemp(folder.data()));
  const KernelFiles files(folder);
  const std::string begun = folder + "/begun";
  const pid_t child = fork();
  if (child == 0) {
    files.find_or_make(
        "key",
        [&]() -> std::string {
          close(open(begun.c_str(), O_WRONLY | O_CREAT, 0600));
          for (;;) pause();
        },
        [] { return false; });
    _exit(1);
  }
  while (access(begun.c_str(), F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(files.find_or_make(
            "key", [] { return std::string("hurried"); }, [] { return true; }) == "hurried");
  std::filesystem::remove(files.path_of("key"));
  std::atomic<bool> made{false};
  std::string got;
  std::thread waits([&] {
    got = files.find_or_make(
        "key", [&] { return made = true, std::string("binary"); }, [] { return false; });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(!made);
  kill(child, SIGKILL), waitpid(child, nullptr, 0);
  waits.join();
  CHECK((made && got == "binary"));
  CHECK(!std::filesystem::exists(files.path_of("key") + ".lock"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("kernel files: what a process that died has left keeps nobody from keeping") {
  std::string folder = std::string(std::filesystem::temp_directory_path()) + "/tapir_kernels.XXXXXX";
  REQUIRE(mkdtemp(folder.data()));
  const KernelFiles files(folder);
  std::filesystem::create_directories(folder + "/kernels");
  for (int i = 0; i < 2000; ++i)  // by names that count, of a process of the same number: as in a container
    std::ofstream(files.path_of("key") + "." + std::to_string(getpid()) + "." + std::to_string(i) + ".part") << "half";
  files.keep("key", "binary");
  CHECK(files.find("key") == "binary");
  const auto mode = std::filesystem::status(files.path_of("key")).permissions();
  CHECK((mode & (std::filesystem::perms::group_write | std::filesystem::perms::others_write)) ==
        std::filesystem::perms::none);
  std::filesystem::remove_all(folder);
}
