// Softmax, norms and sums along rows, fused with the pointwise calls around them.
#include <random>

#include <tapir/compile/passes/passes.h>
#include <tapir/compile/record/record.h>
#include <tapir/core/fused.h>
#include <tapir/core/parallel.h>

#include "../core/messages.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;
using ir::Program;

namespace {

int64_t fused_rows(const Program& p) {
  int64_t n = 0;
  for (const ir::Call& call : p.calls) n += ir::is<entry::Fused>(call) && call.params<FusedParams>().row_dims > 0;
  return n;
}

double rounding_of(DType dtype) {
  return dtype == kFloat64 ? 1e-11 : dtype == kFloat32 ? 2e-5 : dtype == kFloat16 ? 4e-3 : 3e-2;
}

/// The program as it is and with fused rows, from the same state, twice; how many calls on rows were made.
int64_t check_rows(const Program& program, double tolerance) {
  Program fused = program;
  ir::fuse(fused, ir::FuseRows::All);
  INFO(to_string(program) << "\nfused\n" << to_string(fused));
  ir::Memory before = ir::copy_of_outside(program), after = ir::copy_of_outside(program);
  for (int step = 0; step < 2; ++step) {
    const std::vector<Tensor> expected = interpret(program, before), got = interpret(fused, after);
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO("output " << i);
      CHECK(same_values(expected[i], got[i], tolerance));
    }
  }
  return fused_rows(fused);
}

template <class F> int64_t check_function(F f, double tolerance) {
  ir::Recording recording;
  NoGrad off;
  std::vector<Tensor> out = f();
  const Program p = recording.finish(out);
  out.clear();
  return check_rows(p, tolerance);
}

/// Random calls on (n, m) and (n, 1): pointwise, on rows, in place, on views.
struct RandomRows {
  std::mt19937 random;
  DType dtype;
  int64_t n, m;
  std::vector<Tensor> full, column;
  Tensor row, spread;  // norms of numbers that lie close together would magnify their rounding

  int below(int k) { return int(random() % unsigned(k)); }
  RandomRows(unsigned seed, DType dtype, int64_t n, int64_t m) : random(seed), dtype(dtype), n(n), m(m) {
    for (int i = 0; i < 3; ++i) full.push_back(made({n, m}));
    column.push_back(made({n, 1})), row = made({m}), spread = made({n, m});
    full[2] = made({n, m + 5}).narrow(1, 2, m);
  }
  Tensor made(const Shape& shape) { return randn(shape).to(dtype); }
  Tensor any() { return full[size_t(below(int(full.size())))]; }
  Tensor stat() { return column[size_t(below(int(column.size())))]; }
  void step() {
    switch (below(17)) {
      case 0: full.push_back(softmax(any(), 1)); break;
      case 1: full.push_back(log_softmax(any(), 1)); break;
      case 2: full.push_back(layer_norm(any() + spread, {m}, row, row)); break;
      case 3: full.push_back(rms_norm(any() + spread, {m}, row)); break;
      case 4: column.push_back(sum(any(), 1, {.keepdim = true}) * (1.0 / double(m))); break;
      case 5: column.push_back(mean(any(), 1, {.keepdim = true})); break;
      case 6: column.push_back(amax(any(), 1, {.keepdim = true})); break;
      case 7: column.push_back(tanh(stat() + 0.5)); break;
      case 8: full.push_back(any() - stat()); break;
      case 9: full.push_back(tanh(any() * stat())); break;
      case 10: full.push_back(any() * row + 0.5); break;
      case 11: full.push_back(clamp(any() + any(), -4, 4)); break;
      case 12: full.push_back(dropout(any(), 0.3)); break;
      case 13: any().mul_(0.5); break;
      case 14: any().copy_(tanh(any())); break;
      case 15: full.push_back(where(any() > 0, any(), tanh(any()))); break;
      default: full.push_back(gelu(view(any().contiguous(), {-1})).view({n, m})); break;
    }
  }
  std::vector<Tensor> run() {
    for (int i = 6 + below(16); i > 0; --i) step();
    std::vector<Tensor> out = {any(), full.back(), stat(), column.back()};
    out.insert(out.end(), full.begin(), full.begin() + 3);  // that were there before
    return out;
  }
};

}  // namespace

TEST_CASE("random calls on rows, fused, are the single calls within rounding") {
  int64_t made = 0;
  for (unsigned seed = 0; seed < 240; ++seed) {
    constexpr DType types[] = {kFloat32, kFloat32, kFloat64, kFloat16, kBFloat16};
    constexpr int64_t rows[] = {1, 3, 64, 7, 130}, sizes[] = {2, 1, 17, 64, 100, 513, 3001, 9000, 128, 384};
    const DType dtype = types[seed % 5];
    INFO("seed " << seed);
    manual_seed(seed);
    RandomRows rows_of(seed, dtype, rows[seed % 4 + seed % 2], sizes[seed / 5 % 10]);
    made += check_function([&] { return rows_of.run(); }, rounding_of(dtype));
  }
  CHECK(made > 100);
}

TEST_CASE("rows that a norm or softmax shares with pointwise calls are one call, alone they are what they were") {
  const Tensor x = randn({6, 40}), y = randn({6, 40}), w = randn({40}), b = randn({40});
  const auto groups = [&](auto f) { return check_function([&] { return std::vector<Tensor>{f()}; }, 1e-5); };
  CHECK(groups([&] { return layer_norm(x + y, {40}, w, b); }) == 1);
  CHECK(groups([&] { return rms_norm(x, {40}, w) * 2; }) == 1);
  CHECK(groups([&] { return dropout(softmax(x * 0.125 + y, -1), 0.1); }) == 1);
  CHECK(groups([&] { return mean(square(x - y), 1); }) == 1);
  CHECK(groups([&] { return mean(square(x - y)); }) == 1);
  CHECK(groups([&] {  // softmax by hand
          const Tensor e = exp(x - amax(x, 1, {.keepdim = true}));
          return e / sum(e, 1, {.keepdim = true});
        }) == 1);
  CHECK(groups([&] { return x * rsqrt(mean(square(x), 1, {.keepdim = true}) + 1e-5) * w; }) == 1);
  CHECK(groups([&] { return softmax(x, -1); }) == 0);
  CHECK(groups([&] { return layer_norm(softmax(x, -1), {40}); }) == 0);
  CHECK(groups([&] { return softmax(x + y, 0); }) == 0);
  CHECK(groups([&] { return sum(x + y, 0); }) == 0);
  CHECK(groups([&] { return t(softmax(t(x).contiguous() * 2, 0)); }) == 0);
  const Tensor wide = randn({2, 9000});
  CHECK(groups([&] { return softmax(wide * 2, -1); }) == 0);
  const Tensor deep = randn({2, 3, 4, 5});
  CHECK(groups([&] { return layer_norm(deep * 2, {4, 5}) + deep; }) == 1);
  CHECK(groups([&] { return softmax(deep * 2 + randn({4, 5}), -1); }) == 1);
}

TEST_CASE("fused rows of NaN and infinity are those of the single calls") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const double value : {inf, -inf, nan})
    for (const int64_t m : {5, 100}) {
      INFO(value << ", rows of " << m);
      Tensor x = randn({4, m});
      x[0].fill_(value), x[1][m / 2].fill_(value), x[2][0].fill_(-inf);
      CHECK(check_function(
                [&] {
                  const Tensor a = x * 1;
                  return std::vector<Tensor>{softmax(a, 1), log_softmax(a, 1), layer_norm(a, {m}),
                                             sum(a, 1),     amax(a, 1),        mean(a, 1)};
                },
                1e-5) >= 1);
    }
}

TEST_CASE("fused rows that are larger than the caches, by any number of threads") {
  const Tensor x = randn({9001, 512}), y = randn({9001, 512});
  const auto run = [&] {
    Tensor z;
    ir::Recording recording;
    NoGrad off;
    z = layer_norm(x + y, {512}) * mean(x, 1, {.keepdim = true});
    Program p = recording.finish(std::array{z});
    ir::fuse(p, ir::FuseRows::All);
    CHECK(fused_rows(p) == 1);
    ir::Memory memory = ir::copy_of_outside(p);
    return interpret(p, memory)[0];
  };
  const int threads = get_num_threads();
  set_num_threads(1);
  const Tensor one = run();
  set_num_threads(4);
  CHECK(same_bits(run(), one));
  set_num_threads(threads);
  CHECK(same_values(one, layer_norm(x + y, {512}) * mean(x, 1, {.keepdim = true}), 1e-5));
}

TEST_CASE("no rows, and rows of nothing") {
  for (const Shape& shape : {Shape{0, 4}, Shape{4, 0}, Shape{1, 1}, Shape{5, 1}}) {
    const Tensor x = randn(shape);
    check_function([&] { return std::vector<Tensor>{softmax(x * 2, 1) + 1, sum(x + 1, 1)}; }, 1e-5);
  }
}

TEST_CASE("the option leaves rows alone") {
  const Tensor x = randn({6, 40});
  for (const bool rows : {true, false}) {
    auto f = compile(
        [&] {
          NoGrad off;
          return sum(x * 2, -1) + 1;
        },
        {.rows = rows});
    for (int i = 0; i < 4; ++i) f();
    CHECK(contains(f.explain(), "fused(Mul Sum Add)") == rows);
  }
}

namespace {

/// Attention written by hand, norms and dropout. (A bias of keys has no gradient but rounding, of which AdamW makes whole steps.)
struct Handmade : nn::Module {
  nn::Embedding embed{13, 16};
  nn::Linear qkv{16, 48, {.bias = false}}, out{16, 16}, up{16, 32}, down{32, 16}, head{16, 13};
  nn::LayerNorm first{16};
  nn::RMSNorm second{16};
  Tensor forward(const Tensor& tokens) {
    Tensor x = embed(tokens);  // (B, T, C)
    const int64_t batch = x.size(0), time = x.size(1);
    const auto heads = [&](const Tensor& t) { return t.view({batch, time, 2, 8}).transpose(1, 2); };
    const std::vector<Tensor> parts = chunk(qkv(first(x)), 3, -1);
    Tensor scores = matmul(heads(parts[0]), heads(parts[1]).transpose(-1, -2)) * 0.35;
    const Tensor hidden = gt(arange(time).view({1, time}), arange(time).view({time, 1}));
    scores = dropout(softmax(masked_fill(scores, hidden, -1e9), -1), 0.1, bool(training));
    const Tensor mixed = matmul(scores, heads(parts[2])).transpose(1, 2).reshape({batch, time, 16});
    x = x + dropout(out(mixed), 0.1, bool(training));
    x = x + down(gelu(up(second(x))));
    return head(x);
  }
  TAPIR_FIELDS(embed, qkv, out, up, down, head, first, second)
};

}  // namespace

TEST_CASE("a training step with fused rows is the single calls'") {
  manual_seed(3);
  Handmade net;
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  const Tensor x = randint(0, 13, {3, 7}), y = randint(0, 13, {21});
  const auto step = [&] {
    opt.zero_grad();
    const Tensor scores = flatten(net(x), 0, 1);
    Tensor loss = cross_entropy(scores, y) + 0.1 * mean(square(log_softmax(scores * 0.5, -1)));
    loss.backward();
    opt.step();
    return loss.detach();
  };
  step();
  ir::Recording recording(std::array{x, y});
  std::vector<Tensor> left = {step()};
  for (const Tensor& p : net.parameters()) left.push_back(p.grad());
  CHECK(check_rows(recording.finish(left), 1e-4) >= 4);
}

TEST_CASE("compiled: a transformer written by hand, its rows fused") {
  const auto batch = [](int i) {
    const Tensor all = remainder(arange(3 * 8) * (2 * i + 3) + i, 13).reshape({3, 8});
    return std::pair(all.narrow(1, 0, 7), all.narrow(1, 1, 7));
  };
  const auto make_step = [](auto& net) {
    return [&net, opt = optim::AdamW(net.parameters(), {.lr = 3e-3})](const Tensor& x, const Tensor& y) mutable {
      opt.zero_grad();
      const Tensor scores = flatten(net(x), 0, 1);
      Tensor loss = cross_entropy(scores, flatten(y)) + 0.1 * mean(square(log_softmax(scores * 0.5, -1)));
      loss.backward();
      opt.step();
      return loss;
    };
  };
  check_compiled([] { return Handmade(); }, make_step, batch, 1e-4, 10, {.rows = true});
  check_compiled([] { return Handmade(); }, make_step, batch, 1e-4, 10, {.rows = false});
}
