// One rank of a job of tests/distributed: `distributed_worker SCENARIO [backend]`. Ends with status 0 when everything was as expected, and
// with a line that says what was not. The first argument names a function below.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <tapir/distributed/ddp.h>
#include <tapir/distributed/process_group.h>
#include <tapir/distributed/sync_batch_norm.h>
#include <tapir/tapir.h>

using namespace tapir;
using distributed::ProcessGroup, distributed::Work;
using Op = distributed::ReduceOp;

#define EXPECT(...) check(bool(__VA_ARGS__), "expected {} (line {})", #__VA_ARGS__, __LINE__)

static distributed::ProcessGroupOptions options;

static double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
template <class E, class F> static std::string error_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    std::printf("caught: %s\n", e.what());
    return e.what();
  }
  return {};
}
static Tensor arange_of(int64_t n, DType dtype, int64_t rank) {
  std::vector<int64_t> v;
  for (int64_t i = 0; i < n; ++i) v.push_back((i + rank) % 3 + 1);
  return tensor(v).to(dtype);
}

static void reductions(const ProcessGroup& g) {
  const DType all[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};
  for (const DType dtype : all)
    for (const Op op : {Op::Sum, Op::Mean, Op::Max, Op::Min, Op::Product})
      for (const int64_t n : {int64_t(0), int64_t(7), int64_t(70001)}) {
        if (op == Op::Mean && !is_floating(dtype)) continue;
        Tensor x = arange_of(n, dtype, g.rank()), want;
        for (int64_t r = 0; r < g.size(); ++r) {
          const Tensor y = arange_of(n, dtype, r).to(kFloat64);
          want = !want.defined()     ? y
                 : op == Op::Max     ? maximum(want, y)
                 : op == Op::Min     ? minimum(want, y)
                 : op == Op::Product ? want * y
                                     : want + y;
        }
        if (op == Op::Mean) want = want / double(g.size());
        g.all_reduce(x, op);
        EXPECT(equal(x, want.to(dtype)));
      }
  EXPECT(has(error_of<ValueError>([&] { g.all_reduce(ones({2}, {.dtype = kInt64}), Op::Mean); }), "floating point"));
}

static void movements(const ProcessGroup& g) {
  const int64_t n = g.size(), me = g.rank();
  Tensor x = full({3, 2}, double(me)), gathered = empty({3 * n, 2});
  g.broadcast(x, n - 1);
  EXPECT(equal(x, full({3, 2}, double(n - 1))));
  x.fill_(double(me));
  g.all_gather(gathered, x);
  for (int64_t r = 0; r < n; ++r) EXPECT(equal(gathered.narrow(0, 3 * r, 3), full({3, 2}, double(r))));
  Tensor part = empty({3, 2});
  g.reduce_scatter(part, gathered);
  EXPECT(equal(part, full({3, 2}, double(n * me))));
  Tensor y = full({5}, double(me + 1));
  g.reduce(y, 0);
  EXPECT(equal(y, full({5}, me == 0 ? double(n * (n + 1) / 2) : double(me + 1))));
  // Rank s sends r + 1 rows to rank r.
  std::vector<int64_t> in, out(size_t(n), me + 1);
  for (int64_t r = 0; r < n; ++r) in.push_back(r + 1);
  const Tensor rows = full({n * (n + 1) / 2, 4}, double(me));
  Tensor got = empty({n * (me + 1), 4});
  g.all_to_all(got, rows, out, in);
  for (int64_t r = 0; r < n; ++r) EXPECT(equal(got.narrow(0, r * (me + 1), me + 1), full({me + 1, 4}, double(r))));
  // A strided tensor, as input and as result.
  Tensor wide = full({4, 6}, double(me)), every = wide.slice(1, 0, 6, 2);
  g.all_reduce(every);
  EXPECT(equal(every, full({4, 3}, double(n * (n - 1) / 2))) && wide.select(1, 1).sum().item() == double(4 * me));
  EXPECT(has(error_of<ValueError>([&] { g.all_reduce(ones({1}).expand({4})); }), "places of their own"));
  EXPECT(has(error_of<ValueError>([&] { g.broadcast(x, n); }), "expected src in"));
  EXPECT(g.all_gather_text(std::string(size_t(me), 'x')).back() == std::string(size_t(n - 1), 'x'));
}

static void messages(const ProcessGroup& g) {
  const int64_t n = g.size(), next = (g.rank() + 1) % n, before = (g.rank() + n - 1) % n;
  for (const int64_t size : {int64_t(1), int64_t(3000000)}) {  // receives first, on all ranks at once
    Tensor from = empty({size}), other = empty({size});
    const Work a = g.recv(from, before, 1, true), b = g.recv(other, before, 2, true);
    const Work d = g.send(full({size}, 2.0 * double(g.rank())), next, 2, true);
    const Work c = g.send(full({size}, double(g.rank())), next, 1, true);
    for (const Work& w : {c, d, b, a}) w.wait();
    EXPECT(a.is_completed() && from.max().item() == double(before) && other.min().item() == 2.0 * double(before));
  }
  std::vector<Work> works;
  std::vector<Tensor> xs;
  for (int i = 0; i < 50; ++i) xs.push_back(full({100 * i}, double(g.rank() + i)));
  for (const Tensor& x : xs) works.push_back(g.all_reduce(x, Op::Max, true));
  for (int i = 49; i >= 0; --i) works[size_t(i)].wait();
  for (int i = 1; i < 50; ++i) EXPECT(xs[size_t(i)].min().item() == double(g.size() - 1 + i));
}

static void collectives() {
  const ProcessGroup g = distributed::init_process_group(options);
  reductions(g);
  movements(g);
  messages(g);
  g.barrier();
  std::vector<int64_t> odd;
  for (int64_t r = 1; r < g.size(); r += 2) odd.push_back(r);
  const ProcessGroup some = g.new_group(odd), all = g.new_group({1, 0});
  EXPECT(bool(some) == (g.rank() % 2 == 1) && bool(all) == (g.rank() < 2));
  Tensor x = ones({3});
  if (some) some.all_reduce(x), EXPECT(x.sum().item() == 3.0 * double(odd.size()));
  if (all) EXPECT(all.rank() == 1 - g.rank()), all.barrier();
  EXPECT(has(g.flight_recorder(), "all_reduce(max)"));
  distributed::destroy_process_group();
  EXPECT(!distributed::is_initialized());
}

/// f fails on every rank but those that die in it; the words must be in what they say.
template <class F>
static void expect_failure(F&& f, double least, double most, std::initializer_list<const char*> words) {
  ProcessGroup g = distributed::init_process_group(options);
  g.barrier();
  const double begin = seconds();
  const std::string text = error_of<RuntimeError>([&] { f(g); });
  const double took = seconds() - begin;
  for (const char* word : words) check(has(text, word), "expected \"{}\" in \"{}\"", word, text);
  check(took >= least && took <= most, "expected the error within {} to {} s, got {}", least, most, took);
  EXPECT(has(error_of<RuntimeError>([&] { g.barrier(); }), "has failed before"));
  g = ProcessGroup();
  const double end = seconds();
  distributed::destroy_process_group();
  EXPECT(seconds() - end < 1);
}

static bool second() { return std::atoi(std::getenv("RANK")) == 1; }
static void wrong_shape() {
  expect_failure([](const ProcessGroup& g) { g.all_reduce(ones({second() ? 2000 : 1000})); }, 0, 5,
                 {"[all_reduce]", "#2", "1000 x float32", "2000 x float32", "rank 1"});
}
static void wrong_dtype() {
  expect_failure([](const ProcessGroup& g) { g.all_reduce(ones({1000}, {.dtype = second() ? kFloat64 : kFloat32})); },
                 0, 5, {"1000 x float32", "1000 x float64"});
}
static void wrong_order() {
  options.debug = true;
  const ProcessGroup g = distributed::init_process_group(options);
  const std::string text = error_of<RuntimeError>([&] {
    if (second()) g.broadcast(ones({10}));
    else g.all_reduce(ones({10}));
  });
  for (const char* word : {"rank 0: all_reduce(sum) #1", "rank 1: broadcast(root 0) #1"}) EXPECT(has(text, word));
  g.all_reduce(ones({10}));  // nothing was changed: the group goes on
}
static void killed() {
  expect_failure(
      [](const ProcessGroup& g) {
        if (second()) raise(SIGKILL);
        for (;;) g.all_reduce(ones({300000}));
      },
      0, 2, {"all_reduce(sum) #", "rank 1 is gone"});
}
static void stopped() {
  options.timeout = 2;
  expect_failure(
      [](const ProcessGroup& g) {
        if (second()) raise(SIGSTOP);
        g.all_reduce(ones({1000}));
      },
      1.9, 4,
      {"all_reduce(sum) #2", "timed out after 2", options.backend == "tcp" ? "missing ranks: 1" : "missing ranks:"});
}
static void absent() {  // of three ranks two are started
  options.init_timeout = 2;
  const std::string text = error_of<RuntimeError>([] { distributed::init_process_group(options); });
  for (const char* word : {"expected 3 ranks", "missing: 2", "came: 0, 1"}) EXPECT(has(text, word));
}
static void late() {
  if (second()) usleep(700000);
  const ProcessGroup g = distributed::init_process_group(options);
  g.barrier();
}

struct Mlp : nn::Module {
  nn::Linear a{6, 16}, b{16, 8}, unused{3, 3}, c{8, 2};
  bool use = false;
  Tensor forward(const Tensor& x) {
    const Tensor h = tanh(b(tanh(a(x))));
    return use ? c(h) + unused(x.narrow(1, 0, 3)).narrow(1, 0, 2) : c(h);
  }
  TAPIR_FIELDS(a, b, unused, c, use)
};
struct Norm : nn::Module {
  nn::Conv2d conv{2, 4, 3};
  distributed::SyncBatchNorm bn{4};
  nn::Linear fc{4 * 4 * 4, 2};
  Tensor forward(const Tensor& x) { return fc(flatten(relu(bn(conv(x))), 1)); }
  TAPIR_FIELDS(conv, bn, fc)
};
struct NormAlone : nn::Module {
  nn::Conv2d conv{2, 4, 3};
  nn::BatchNorm2d bn{4};
  nn::Linear fc{4 * 4 * 4, 2};
  Tensor forward(const Tensor& x) { return fc(flatten(relu(bn(conv(x))), 1)); }
  TAPIR_FIELDS(conv, bn, fc)
};

static double furthest(nn::Module& a, nn::Module& b) {
  double worst = 0;
  const StateDict x = a.state_dict(), y = b.state_dict();
  for (const auto& [name, t] : x) {
    const Tensor d = (t.to(kFloat64) - y.at(name).to(kFloat64)).abs();
    if (d.numel()) worst = std::max(worst, d.max().item() / std::max(1.0, t.to(kFloat64).abs().max().item()));
  }
  return worst;
}

/// Ten steps of both, `one` on the whole batch; gives the greatest difference of weights.
template <class M, class N> static double train_both(const ProcessGroup& g, M& net, N& one, const Shape& row,
                                                     const distributed::DdpOptions& ddp_options,
                                                     bool accumulate = false) {
  net.to(kFloat64), one.to(kFloat64);
  distributed::DistributedDataParallel ddp(net, ddp_options, g);
  one.load_state_dict(net.state_dict());
  optim::SGD mine(net.parameters(), {.lr = 0.05, .momentum = 0.9}),
      whole(one.parameters(), {.lr = 0.05, .momentum = 0.9});
  manual_seed(7);  // the same data on every rank
  const int64_t n = 8 * g.size();
  std::vector<int64_t> shape{n};
  for (const int64_t d : row) shape.push_back(d);
  for (int step = 0; step < 10; ++step) {
    const Tensor x = randn(Shape(shape), {.dtype = kFloat64}), y = randn({n, 2}, {.dtype = kFloat64});
    const Tensor my_x = x.narrow(0, 8 * g.rank(), 8), my_y = y.narrow(0, 8 * g.rank(), 8);
    mine.zero_grad(step % 2 == 0), whole.zero_grad();
    if (accumulate) {
      {
        const auto guard = ddp.no_sync();
        (mse_loss(ddp(my_x.narrow(0, 0, 4)), my_y.narrow(0, 0, 4)) / 2.0).backward();
      }
      (mse_loss(ddp(my_x.narrow(0, 4, 4)), my_y.narrow(0, 4, 4)) / 2.0).backward();
    } else mse_loss(ddp(my_x), my_y).backward();
    mse_loss(one(x), y).backward();
    mine.step(), whole.step();
    EXPECT(ddp.differing_parameters().empty());
  }
  return furthest(net, one);
}

static void ddp() {
  const ProcessGroup g = distributed::init_process_group(options);
  manual_seed(uint64_t(g.rank()));  // other weights on every rank: rank 0's count
  for (const double cap : {25.0, 0.0005}) {
    Mlp net, one;
    net.use = one.use = true;
    EXPECT(train_both(g, net, one, {6}, {.bucket_cap_mb = cap, .first_bucket_mb = cap}) < 1e-10);
    Mlp again, other;
    again.use = other.use = true;
    EXPECT(train_both(g, again, other, {6}, {.bucket_cap_mb = cap}, true) < 1e-10);
    Mlp lazy, alone;
    EXPECT(train_both(g, lazy, alone, {6}, {.bucket_cap_mb = cap, .find_unused_parameters = true}) < 1e-10);
    EXPECT(!lazy.unused.weight.grad().defined());
    Mlp coarse, exact;
    coarse.use = exact.use = true;
    const double off = train_both(g, coarse, exact, {6}, {.bucket_cap_mb = cap, .compression = kBFloat16});
    EXPECT(off > 1e-10 && off < 1e-2);
  }
}

/// Reductions are under way before backward has come to the first layer.
static void overlap() {
  const ProcessGroup g = distributed::init_process_group(options);
  Mlp net;
  net.use = true;
  distributed::DistributedDataParallel ddp(net, {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001});
  const auto reductions = [&] {
    const std::string text = g.flight_recorder();
    int n = 0;
    for (size_t at = 0; (at = text.find("all_reduce(mean)", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  int at_first_layer = 0;
  net.a.bias.register_hook([&](const Tensor&) { at_first_layer = reductions(); });
  ddp(ones({4, 6})).sum().backward();
  EXPECT(at_first_layer >= 3 && reductions() > at_first_layer &&
         ddp.reducer().bucket_bytes().size() == size_t(reductions()));
}

static void sync_batch_norm() {
  const ProcessGroup g = distributed::init_process_group(options);
  Norm net;
  NormAlone one;
  EXPECT(train_both(g, net, one, {2, 6, 6}, {}) < 1e-10);
}

static void ddp_errors() {
  const ProcessGroup g = distributed::init_process_group(options);
  Mlp net;
  const Tensor x = ones({4, 6});
  {
    distributed::DistributedDataParallel ddp(net);
    ddp(x).sum().backward();  // never reaches `unused`
    EXPECT(has(error_of<RuntimeError>([&] { ddp(x); }), "got none for: unused.weight, unused.bias"));
  }
  net.use = true;
  {
    distributed::DistributedDataParallel ddp(net);
    const Tensor loss = ddp(x).sum();
    loss.backward({}, true);
    EXPECT(has(error_of<ValueError>([&] { loss.backward(); }), "no_sync"));
  }
  // One rank uses a parameter, the others do not: all get its mean.
  net.use = g.rank() == 0;
  net.zero_grad();
  {
    distributed::DistributedDataParallel ddp(net, {.find_unused_parameters = true});
    ddp(x).sum().backward();
    EXPECT(std::abs(net.unused.bias.grad().select(0, 0).item() - 4.0 / double(g.size())) < 1e-6);
    if (second()) {
      NoGrad guard;
      net.b.weight.add_(1);
    }
    EXPECT(ddp.differing_parameters() == std::vector<std::string>{"b.weight"});
  }
  nn::Linear odd(second() ? 4 : 3, 2);
  EXPECT(has(error_of<RuntimeError>([&] { distributed::DistributedDataParallel wrong(odd); }), "on rank 1"));
  // An infinity on one rank makes all skip the step.
  nn::Linear fc(2, 1);
  distributed::DistributedDataParallel ddp(fc);
  optim::SGD opt(fc.parameters(), {.lr = 0.1});
  amp::GradScaler scaler;
  const Tensor before = fc.weight.detach().clone();
  scaler.scale(ddp(full({1, 2}, second() ? std::numeric_limits<double>::infinity() : 1.0)).sum()).backward();
  scaler.step(opt);
  EXPECT(scaler.skipped(opt) && equal(fc.weight.detach(), before) && ddp.differing_parameters().empty());
}

/// Counts in a file; one rank after the other is killed at a random moment, TAPIR_TEST_KILLS times. A restart goes on from the file.
static void resume() {
  const ProcessGroup g = distributed::init_process_group(options);
  const std::string path = std::getenv("TAPIR_TEST_FILE");
  const int64_t restart = g.launch().restart_count, kills = std::atoi(std::getenv("TAPIR_TEST_KILLS"));
  Tensor sum = zeros({1}), step = zeros({1});
  if (access(path.c_str(), R_OK) == 0) {
    const StateDict all = io::load_safetensors(path);
    sum.copy_(all.at("sum")), step.copy_(all.at("step"));
  }
  if (restart < kills && restart % g.size() == g.rank())
    std::thread([] {
      usleep(useconds_t(seconds() * 1e6) % 60000);
      raise(SIGKILL);
    }).detach();
  while (step.item() < 40 || restart < kills) {
    Tensor x = full({1}, step.item() < 40 ? double(g.rank() + 1) * step.item() : 0.0);
    g.all_reduce(x);
    sum.add_(x), step.add_(1);
    if (g.rank() == 0) io::save_safetensors(path, {{"sum", sum}, {"step", step}});
    g.barrier();
  }
  EXPECT(sum.item() == 3.0 * 39 * 20);
  if (g.rank() == 0) std::printf("counted to the end\n");
}

int main(int argc, char** argv) {
  const rlimit no_cores{0, 0};
  setrlimit(RLIMIT_CORE, &no_cores);
  alarm(60);  // nobody hangs for ever
  set_num_threads(1);
  options.timeout = 20, options.init_timeout = 20;
  const std::string name = argc > 1 ? argv[1] : "";
  if (argc > 2) options.backend = argv[2];
  const std::pair<const char*, void (*)()> scenarios[] = {{"collectives", collectives},
                                                          {"wrong_shape", wrong_shape},
                                                          {"wrong_dtype", wrong_dtype},
                                                          {"wrong_order", wrong_order},
                                                          {"killed", killed},
                                                          {"stopped", stopped},
                                                          {"absent", absent},
                                                          {"late", late},
                                                          {"ddp", ddp},
                                                          {"sync_batch_norm", sync_batch_norm},
                                                          {"ddp_errors", ddp_errors},
                                                          {"resume", resume},
                                                          {"overlap", overlap}};
  for (const auto& [known, run] : scenarios)
    if (name == known) try {
        run();
        return 0;
      } catch (const std::exception& e) {
        std::printf("FAILED %s: %s\n", known, e.what());
        return 1;
      }
  std::printf("no scenario \"%s\"\n", name.c_str());
  return 2;
}
