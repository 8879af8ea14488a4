// Fused calls on the device, written by hand, against the calls that they stand for: bit by bit where nothing is summed.
#include "fused_steps.h"

#include <filesystem>
#include <thread>

#include <tapir/core/formulas/binary.h>
#include <tapir/core/formulas/ternary.h>
#include <tapir/core/formulas/unary.h>

using namespace tapir_tests;
using formulas::Family;

namespace {

const DType kTypes[] = {kFloat32, kFloat64, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};
const DType kAll[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};

bool takes(Family f, DType t) {
  if (f == Family::None) return false;
  if (f == Family::All || f == Family::Power || f == Family::Test || f == Family::Compare || f == Family::Select)
    return true;
  if (f == Family::Integers || f == Family::Bitwise) return !is_floating(t);
  if (f == Family::Shift) return is_integral(t);
  return is_floating(t);
}

/// Calls `step(steps, op)` for each of the operations, several of them to a call, each with an output of its own.
template <class F> void check_operations(DType t, const std::vector<int>& ops, int inputs, F&& step) {
  const Shape shape = {203};
  for (size_t first = 0; first < ops.size(); first += kFusedOutputs) {
    Steps s;
    Operands operands;
    std::vector<uint8_t> loaded;
    for (int k = 0; k < inputs; ++k) operands.in(t, shape), loaded.push_back(s.load(k, t));
    for (size_t i = first; i < std::min(first + kFusedOutputs, ops.size()); ++i) {
      const uint8_t v = step(s, loaded, ops[i]);
      operands.out(s.type(v), shape);
      s.store(v, int(i - first));
    }
    INFO(name_of(t) << " operations from " << ops[first]);
    CHECK(differs(s, operands) == "");
  }
}

}  // namespace

TEST_CASE("CUDA fused: every operation gives its kernel's bits") {
  NEEDS_CUDA;
  for (const DType t : kTypes) {
    std::vector<int> unary, binary, ternary;
    for (int op = 0; op <= int(UnaryOp::SignBit); ++op)
      if (takes(formulas::family_of(UnaryOp(op)), t)) unary.push_back(op);
    for (int op = 0; op <= int(BinaryOp::SincGrad); ++op)
      if (const Family f = formulas::family_of(BinaryOp(op)); takes(f, t) && (is_floating(t) || f != Family::Division))
        binary.push_back(op);
    for (int op = 0; op <= int(TernaryOp::GluGrad); ++op)
      if (takes(formulas::family_of(TernaryOp(op)), t)) ternary.push_back(op);
    check_operations(t, unary, 1, [](Steps& s, const auto& v, int op) {
      const bool whole = UnaryOp(op) == UnaryOp::Polygamma || UnaryOp(op) == UnaryOp::RoundTo;
      return s.unary(UnaryOp(op), v[0], whole ? 2.0 : 0.375, 2.0, 0.5);
    });
    check_operations(t, binary, 2,
                     [](Steps& s, const auto& v, int op) { return s.binary(BinaryOp(op), v[0], v[1], 0.25, 0.5, 2); });
    check_operations(t, ternary, 3, [](Steps& s, const auto& v, int op) {
      const bool where = TernaryOp(op) == TernaryOp::Where;
      const uint8_t first = where && s.type(v[0]) != kBool ? s.cast(v[0], kBool) : v[0];
      return s.ternary(TernaryOp(op), first, v[1], v[2], 2);
    });
  }
}

TEST_CASE("CUDA fused: usual exponents and forms that calls choose by their numbers") {
  NEEDS_CUDA;
  Steps s;
  Operands o;
  const Shape shape = {67};
  const uint8_t x = (o.in(kFloat32, shape), s.load(0, kFloat32));
  int out = 0;
  for (const double a : {2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 1.7}) {
    o.out(kFloat32, shape);
    s.store(s.unary(UnaryOp::PowScalar, x, a), out++);
  }
  for (const double a : {0.0, 1.0}) {
    o.out(kFloat32, shape).out(kFloat32, shape);
    s.store(s.unary(UnaryOp::Gelu, x, a), out++);
    s.store(s.binary(BinaryOp::GeluGrad, x, x, a), out++);
  }
  CHECK(differs(s, o) == "");
}

TEST_CASE("CUDA fused: every cast, every number") {
  NEEDS_CUDA;
  for (const DType from : kAll) {
    Steps s;
    Operands o;
    const Shape shape = {501};
    o.in(from, shape);
    const uint8_t x = s.load(0, from);
    int out = 0;
    for (const DType to : kAll) {
      o.out(to, shape);
      s.store(s.cast(x, to), out++);
    }
    for (const Scalar v : {Scalar(0), Scalar(-1), Scalar(1e30), Scalar(true), Scalar(0.1)}) {
      o.out(from, shape);
      s.store(s.number(v, from), out++);
    }
    INFO(name_of(from));
    CHECK(differs(s, o) == "");
  }
}

namespace {
/// y = bfloat16(gelu(float(x) * w + b)), and float(x) * w, of operands that lie as the caller says.
struct Chain {
  Steps steps;
  Operands operands;
  Chain() {
    const uint8_t x = steps.cast(steps.load(0, kFloat16), kFloat32), w = steps.load(1, kFloat32),
                  b = steps.load(2, kFloat32);
    const uint8_t product = steps.binary(BinaryOp::Mul, x, w);
    const uint8_t y = steps.unary(UnaryOp::Gelu, steps.binary(BinaryOp::Add, product, b));
    steps.store(steps.cast(y, kBFloat16), 0);
    steps.store(product, 1);
  }
};
}  // namespace

TEST_CASE("CUDA fused: operands lie in any way") {
  NEEDS_CUDA;
  struct Case {
    Shape shape;
    std::vector<int> out, x, w, w_repeats;
    int64_t offset;
  };
  const Case cases[] = {
      {{1003}, {}, {}, {}, {}, 0},                           // packs and a rest
      {{1003}, {}, {}, {}, {0}, 0},                          // one element
      {{1003}, {}, {}, {}, {}, 1},                           // not at a multiple of a pack
      {{6, 10, 8}, {2, 0, 1}, {2, 0, 1}, {2, 0, 1}, {}, 0},  // one order, not row-major
      {{9, 64}, {}, {}, {}, {0}, 0},                         // rows that meet a row
      {{9, 64}, {}, {}, {}, {1}, 0},                         // rows, each with an element
      {{9, 64}, {}, {1, 0}, {}, {}, 0},                      // transposed
      {{9, 33}, {}, {1, 0}, {}, {0}, 0},                     // transposed, odd rows
      {{3, 2, 5, 3, 2}, {}, {4, 2, 0, 1, 3}, {}, {1}, 1},    // any strides
      {{9, 33}, {1, 0}, {}, {}, {0}, 0},                     // an output across
      {{1}, {}, {}, {}, {}, 0},
      {{2}, {}, {}, {}, {}, 0},
      {{}, {}, {}, {}, {}, 0},
      {{0, 3}, {}, {}, {}, {}, 0},
      {{1, 1, 7, 1}, {}, {}, {}, {0, 1, 3}, 0},
  };
  for (const Case& c : cases) {
    Chain chain;
    chain.operands.in(kFloat16, c.shape, c.x, {}, c.offset)
        .in(kFloat32, c.shape, c.w, c.w_repeats)
        .in(kFloat32, c.shape);
    chain.operands.out(kBFloat16, c.shape, c.out).out(kFloat32, c.shape, c.out, {}, c.offset);
    INFO("case " << &c - cases);
    CHECK(differs(chain.steps, chain.operands) == "");
  }
}

TEST_CASE("CUDA fused: inputs of fewer dimensions, outputs in the place of inputs, slices") {
  NEEDS_CUDA;
  Steps s;
  const uint8_t x = s.load(0, kFloat32), y = s.load(1, kFloat32), z = s.load(2, kFloat32);
  const uint8_t sum = s.binary(BinaryOp::Add, x, y, 0.3);
  s.store(s.binary(BinaryOp::Mul, sum, z), 0);
  s.store(s.binary(BinaryOp::Sub, x, sum), 1);
  for (const int64_t rows : {1, 5, 300}) {
    Operands o;
    const Shape shape = {rows, 12};
    o.in(kFloat32, shape).in(kFloat32, shape).in(kFloat32, {12}).out_is_in(1).out_is_in(0);
    CHECK(differs(s, o) == "");
    Operands slices;  // rows of a wider matrix
    slices.in(kFloat32, {rows, 30}).in(kFloat32, {rows, 30}).in(kFloat32, {12});
    for (int k = 0; k < 2; ++k) slices.ins[size_t(k)].shape = shape;
    slices.ins[1].offset = 4;
    slices.out_is_in(1).out_is_in(0);
    CHECK(differs(s, slices) == "");
  }
}

TEST_CASE("CUDA fused: 24 inputs, 16 outputs, 64 steps") {
  NEEDS_CUDA;
  Steps s;
  Operands o;
  const Shape shape = {4, 36};
  std::vector<uint8_t> v;
  for (int i = 0; i < kFusedInputs; ++i) o.in(kFloat32, shape), v.push_back(s.load(i, kFloat32));
  for (int i = 0; i + 1 < kFusedInputs; ++i)
    v[size_t(i + 1)] = s.binary(BinaryOp::Add, v[size_t(i)], v[size_t(i + 1)], 0.5);
  for (int i = 0; i < kFusedOutputs; ++i) o.out(kFloat32, shape), s.store(v[size_t(kFusedInputs - 1 - i)], i);
  s.unary(UnaryOp::Neg, v[0]);
  CHECK(s.params.count == kFusedSteps);
  CHECK(differs(s, o) == "");
}

TEST_CASE("CUDA fused: dropout's numbers") {
  NEEDS_CUDA;
  for (const bool based : {false, true})
    for (const Shape& shape : {Shape{1003}, Shape{8, 64}, Shape{9, 33}, Shape{6, 5, 4}, Shape{3}})
      for (const bool across : {false, true}) {
        Steps s;
        Operands o;
        std::vector<int> order;
        if (across)
          for (int d = int(shape.size()); d-- > 0;) order.push_back(d);
        o.in(kFloat32, shape, order).out(kFloat32, shape).out(kBool, shape, order);
        const uint8_t x = s.load(0, kFloat32);
        int base = -1;
        if (based) o.in(kInt64, {}), base = s.load(1, kInt64);
        const uint8_t keep = s.keep(0.3, 0x1234567890abcdef, 77, base);
        s.store(s.ternary(TernaryOp::Where, keep, s.binary(BinaryOp::Mul, x, s.number(1 / 0.7, kFloat32)),
                          s.number(0.0, kFloat32)),
                0);
        s.store(keep, 1);
        INFO(tapir::format("{} based {} across {}", shape, based, across));
        CHECK(differs(s, o) == "");
      }
}

TEST_CASE("CUDA fused: rows, by warps and by blocks, in any layout") {
  NEEDS_CUDA;
  for (const int64_t n : {1, 3, 64, 1000, 3001})
    for (const bool across : {false, true})
      for (const DType t : {kFloat32, kBFloat16}) {
        Steps
            s;  // softmax, its log-sum, and the row less its mean: two folds one behind the other, and one beside them
        s.params.row_dims = 1;
        const uint8_t x = t == kFloat32 ? s.load(0, t) : s.cast(s.load(0, t), kFloat32), bias = s.load(1, kFloat32);
        const uint8_t most = s.reduce(ReduceOp::Max, x), e = s.unary(UnaryOp::Exp, s.binary(BinaryOp::Sub, x, most));
        const uint8_t total = s.reduce(ReduceOp::Sum, e), mean = s.reduce(ReduceOp::Sum, x);
        const uint8_t log = s.binary(BinaryOp::Add, s.unary(UnaryOp::Log, total), most);
        s.store(s.binary(BinaryOp::Div, e, total), 0);
        s.store(log, 1);
        const uint8_t scaled = s.binary(BinaryOp::Mul, mean, s.number(1.0 / double(n), kFloat32));
        s.store(s.binary(BinaryOp::Add, s.binary(BinaryOp::Sub, x, scaled), bias), 2);
        Operands o;
        const Shape shape = {7, n};
        const std::vector<int> order = across ? std::vector<int>{1, 0} : std::vector<int>{};
        o.in(t, shape, order).in(kFloat32, shape, {}, {0});
        for (Tensor& base : o.bases)
          base = remainder(arange(base.numel()) * 37, 101).to(kFloat32).mul_(0.07).to(base.dtype()).cuda();
        o.out(kFloat32, shape, order).out(kFloat32, shape, {}, n > 1 ? std::vector<int>{1} : std::vector<int>{});
        if (t == kFloat32) o.out_is_in(0);
        else o.out(kFloat32, shape);
        INFO(n << " across " << across << " " << name_of(t));
        CHECK(differs(s, o, 1e-5) == "");
      }
}

TEST_CASE("CUDA fused: rows that draw") {
  NEEDS_CUDA;
  for (const int64_t n : {64, 33, 2000}) {
    Steps s;
    s.params.row_dims = 1;
    const uint8_t x = s.load(0, kFloat32), keep = s.keep(0.4, 11, 12);
    const uint8_t kept = s.ternary(TernaryOp::Where, keep, x, s.number(0.0, kFloat32));
    s.store(s.reduce(ReduceOp::Sum, kept), 0);
    s.store(keep, 1);
    Operands o;
    o.in(kFloat32, {5, n}).out(kFloat32, {5, n}, {}, {1}).out(kBool, {5, n});
    o.bases[0] = (remainder(arange(5 * n) * 37, 101) - 50).to(kFloat32).cuda();
    INFO(n);
    CHECK(differs(s, o) == "");  // of integers: exact
  }
}

TEST_CASE("CUDA fused: rows of several dimensions and other types") {
  NEEDS_CUDA;
  for (const DType t : {kFloat64, kInt64, kInt32, kUInt8, kBool}) {
    Steps s;
    s.params.row_dims = 2;
    const uint8_t x = s.load(0, t);
    s.store(s.reduce(ReduceOp::Sum, x), 0);
    s.store(s.reduce(ReduceOp::Max, x), 1);
    Operands o;
    const Shape shape = {3, 2, 5, 6};
    o.in(t, shape, {2, 0, 3, 1}).out(t, shape, {}, {2, 3}).out(t, shape, {}, {2, 3});
    o.bases[0] = (arange(o.bases[0].numel()) * 7 - 300).to(t).cuda();
    INFO(name_of(t));
    CHECK(differs(s, o, is_floating(t) ? 1e-12 : 0) == "");
  }
}

TEST_CASE("CUDA fused: one kernel serves sizes and numbers") {
  NEEDS_CUDA;
  for (const int64_t n : {64, 200, 8, 4096})
    for (const double a : {0.5, -3.0, 7.25}) {
      Steps s;
      Operands o;
      o.in(kFloat32, {n}).in(kFloat32, {n}).out(kFloat32, {n});
      const uint8_t x = s.load(0, kFloat32), y = s.load(1, kFloat32);
      s.store(s.binary(BinaryOp::Mul, s.binary(BinaryOp::Add, x, y, a), s.number(a + 0.1, kFloat32)), 0);
      CHECK(differs(s, o) == "");
    }
}

TEST_CASE("CUDA fused: a kernel that several threads ask for at once") {
  NEEDS_CUDA;
  const auto chain = [](int length) {
    Steps s;
    uint8_t v = s.load(0, kFloat32);
    for (int i = 0; i < length; ++i) v = s.unary(UnaryOp::Sigmoid, v);
    s.store(v, 0);
    return s;
  };
  std::vector<std::string> words(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < words.size(); ++i)
    threads.emplace_back([&, i] {
      Operands o;
      o.in(kFloat32, {500}).out(kFloat32, {500});
      words[i] = differs(chain(i % 2 ? 4 : 5), o);
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& w : words) CHECK(w == "");
}

TEST_CASE("CUDA fused: a thread whose first work is a fused call") {
  NEEDS_CUDA;
  Steps s;
  s.store(s.unary(UnaryOp::Neg, s.load(0, kFloat32)), 0);
  const Tensor x = ones({100}, {.device = kCUDA}), y = empty_like(x), z = empty_like(x);
  run_fused(s.params, {y}, {x});  // the kernel is there
  std::string thrown;
  std::thread([&] { thrown = message_of<std::exception>([&] { run_fused(s.params, {z}, {x}); }); }).join();
  CHECK(thrown == "");
  CHECK(z.sum().item<float>() == -100);
}

TEST_CASE("CUDA fused: kernels outlive the program, and a broken file is none") {
  NEEDS_CUDA;
  if (!is_emulated()) SKIP_TEST("counts what the emulation's compiler makes");
  std::string folder = std::string(std::filesystem::temp_directory_path()) + "/tapir_cache.XXXXXX";
  REQUIRE(mkdtemp(folder.data()));
  const auto run = [&] {
    return run_alone("TAPIR_CACHE=" + folder, "CUDA fused: one kernel serves sizes and numbers");
  };
  const auto files = [&] {
    std::vector<std::filesystem::path> list;
    for (const auto& file : std::filesystem::directory_iterator(folder + "/kernels")) list.push_back(file.path());
    return list;
  };
  CHECK(run() == 0);
  REQUIRE(files().size() == 1);  // for twelve calls
  const auto made = std::filesystem::last_write_time(files()[0]);
  CHECK(run() == 0);
  CHECK(std::filesystem::last_write_time(files()[0]) == made);
  std::filesystem::resize_file(files()[0], 1000);
  CHECK(run() == 0);
  CHECK(files().size() == 1);
  CHECK(std::filesystem::file_size(files()[0]) > 1000);
  std::filesystem::remove_all(folder);
}
