// Training in several processes equals training in one.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <thread>

#include <tapir/core/recording.h>
#include <tapir/distributed/ddp.h>
#include <tapir/distributed/once.h>
#include <tapir/distributed/sync_batch_norm.h>
#include <tapir/models/gpt2.h>
#include <tapir/models/resnet.h>

#include "worker.h"

namespace worker {

struct Mlp : nn::Module {
  nn::Linear a{6, 16}, b{16, 8}, unused{3, 3}, c{8, 2};
  bool use = false;
  Tensor forward(const Tensor& x) {
    const Tensor h = tanh(b(tanh(a(x))));
    return use ? c(h) + unused(x.narrow(1, 0, 3)).narrow(1, 0, 2) : c(h);
  }
  TAPIR_FIELDS(a, b, unused, c, use)
};
struct Forecast : nn::Module {
  struct Output {
    double scale;
    std::pair<Tensor, Tensor> parts;
  };
  Mlp mlp;
  Output forward(const Tensor& x) { return {2, {x * 2, mlp(x)}}; }
  TAPIR_FIELDS(mlp)
};
template <class BatchNorm> struct NormNet : nn::Module {
  nn::Conv2d conv{2, 4, 3};
  BatchNorm bn{4};
  nn::Linear fc{4 * 4 * 4, 2};
  Tensor forward(const Tensor& x) { return fc(flatten(relu(bn(conv(x))), 1)); }
  TAPIR_FIELDS(conv, bn, fc)
};
using Norm = NormNet<distributed::SyncBatchNorm>;
using NormAlone = NormNet<nn::BatchNorm2d>;

static double furthest(nn::Module& a, nn::Module& b) {
  double worst = 0;
  const StateDict x = a.state_dict(), y = b.state_dict();
  for (const auto& [name, t] : x) {
    const Tensor d = (t.to(kFloat64) - y.at(name).to(kFloat64)).abs();
    if (d.numel()) worst = std::max(worst, d.max().item() / std::max(1.0, t.to(kFloat64).abs().max().item()));
  }
  return worst;
}

/// Inputs, targets and what becomes of them.
struct Task {
  Shape row;
  DType dtype = kFloat64;
  int64_t vocabulary = 0;  // above 0: tokens
  Tensor inputs(int64_t n) const {
    std::vector<int64_t> shape{n};
    for (const int64_t d : row) shape.push_back(d);
    return vocabulary ? randint(0, vocabulary, Shape(shape)) : randn(Shape(shape), {.dtype = dtype});
  }
  Tensor targets(int64_t n) const { return vocabulary ? inputs(n) : randn({n, 2}, {.dtype = dtype}); }
  Tensor loss(const Tensor& out, const Tensor& y) const {
    return vocabulary ? cross_entropy(flatten(out, 0, 1), flatten(y)) : mse_loss(out, y);
  }
};

/// Ten steps of both, `one` on the whole batch; gives the greatest difference of weights.
template <class M, class N> double train_both(const ProcessGroup& g, M& net, N& one, const Task& task,
                                              const distributed::DdpOptions& ddp_options, bool accumulate = false,
                                              bool each_alone = false) {
  net.to(task.dtype), one.to(task.dtype);
  distributed::DistributedDataParallel ddp(net, ddp_options, g);
  one.load_state_dict(net.state_dict());
  optim::SGD mine(net.parameters(), {.lr = 0.05, .momentum = 0.9}),
      whole(one.parameters(), {.lr = 0.05, .momentum = 0.9});
  manual_seed(7);  // the same data on every rank
  for (int step = 0; step < 10; ++step) {
    const Tensor x = task.inputs(8 * g.size()), y = task.targets(8 * g.size());
    const auto part = [&](const Tensor& t, int64_t r) { return t.narrow(0, 8 * r, 8); };
    const Tensor my_x = part(x, g.rank()), my_y = part(y, g.rank());
    mine.zero_grad(step % 2 == 0), whole.zero_grad();
    if (accumulate) {
      {
        const auto guard = ddp.no_sync();
        (task.loss(ddp(my_x.narrow(0, 0, 4)), my_y.narrow(0, 0, 4)) / 2.0).backward();
      }
      (task.loss(ddp(my_x.narrow(0, 4, 4)), my_y.narrow(0, 4, 4)) / 2.0).backward();
    } else task.loss(ddp(my_x), my_y).backward();
    if (each_alone)
      for (int64_t r = 0; r < g.size(); ++r) (task.loss(one(part(x, r)), part(y, r)) / double(g.size())).backward();
    else task.loss(one(x), y).backward();
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
    EXPECT(train_both(g, net, one, {{6}}, {.bucket_cap_mb = cap, .first_bucket_mb = cap}) < 1e-10);
    Mlp again, other;
    again.use = other.use = true;
    EXPECT(train_both(g, again, other, {{6}}, {.bucket_cap_mb = cap}, true) < 1e-10);
    Mlp lazy, alone;
    EXPECT(train_both(g, lazy, alone, {{6}}, {.bucket_cap_mb = cap, .find_unused_parameters = true}) < 1e-10);
    EXPECT(!lazy.unused.weight.grad().defined());
    Mlp coarse, exact;
    coarse.use = exact.use = true;
    const double off = train_both(g, coarse, exact, {{6}}, {.bucket_cap_mb = cap, .compression = kBFloat16});
    EXPECT(off > 1e-10 && off < 1e-2);
  }
  Forecast forecast;  // returns an aggregate: what its tensors use is found
  distributed::DistributedDataParallel found(forecast, {.find_unused_parameters = true}, g);
  found(ones({4, 6})).parts.second.sum().backward();
  EXPECT(forecast.mlp.a.weight.grad().defined() && !forecast.mlp.unused.weight.grad().defined());
}

/// MLP, GPT and a CNN, in float64 and float32.
static void against_one() {
  const ProcessGroup g = distributed::init_process_group(options);
  manual_seed(uint64_t(g.rank()));
  for (const DType dtype : {kFloat64, kFloat32}) {
    const double limit = dtype == kFloat64 ? 1e-10 : 1e-5;
    Mlp mlp, mlp_alone;
    mlp.use = mlp_alone.use = true;
    EXPECT(train_both(g, mlp, mlp_alone, {{6}, dtype}, {}) < limit);
    Norm cnn;
    NormAlone cnn_alone;
    EXPECT(train_both(g, cnn, cnn_alone, {{2, 6, 6}, dtype}, {}) < limit);
    const models::GPT2Config config{
        .vocab_size = 17, .n_positions = 8, .n_embd = 16, .n_layer = 2, .n_head = 2, .dropout = 0};
    models::GPT2LMHeadModel gpt(config), gpt_alone(config);
    EXPECT(train_both(g, gpt, gpt_alone, {{8}, dtype, 17}, {.bucket_cap_mb = 0.002}) < limit);
  }
  // With plain batch norm: one process that normalises each part alone. Its running statistics are another matter.
  NormAlone plain, parts;
  EXPECT(train_both(g, plain, parts, {{2, 6, 6}}, {.broadcast_buffers = false}, false, true) > 0);
  for (size_t i = 0; i < plain.parameters().size(); ++i)
    EXPECT((plain.parameters()[i] - parts.parameters()[i]).detach().abs().max().item() < 1e-10);
}

/// A model's own batch norms, made to take all ranks' statistics; also where blocks run again in backward.
static void resnet() {
  const ProcessGroup g = distributed::init_process_group(options);
  manual_seed(uint64_t(g.rank()));
  for (const bool checkpoint : {false, true}) {
    const models::ResNetOptions small{
        .num_classes = 2, .width = 2, .small_images = true, .zero_init_residual = true, .checkpoint = checkpoint};
    models::ResNet<models::BasicBlock> net = models::resnet18(small), one = models::resnet18(small);
    distributed::convert_sync_batchnorm(net);
    EXPECT(train_both(g, net, one, {{3, 8, 8}}, {}) < 1e-8);
    EXPECT(net.bn1.num_batches_tracked.item() == 10);
  }
}

/// Ranks have 3, 4, 5, ... batches; `one` sees those that are there at each step.
template <class M> static void train_uneven(const ProcessGroup& g, const distributed::DdpOptions& ddp_options) {
  M net, one;
  net.to(kFloat64), one.to(kFloat64);
  distributed::DistributedDataParallel ddp(net, ddp_options, g);
  one.load_state_dict(net.state_dict());
  optim::SGD mine(net.parameters(), {.lr = 0.05}), whole(one.parameters(), {.lr = 0.05});
  manual_seed(7);
  std::vector<std::vector<Tensor>> xs;  // [step][rank]
  for (int64_t step = 0; step < 3 + g.size(); ++step) {
    xs.emplace_back();
    for (int64_t r = 0; r < g.size(); ++r) xs.back().push_back(randn({4, 6}, {.dtype = kFloat64}));
  }
  const auto batches = [&](int64_t rank) { return 3 + (rank + 1) % g.size(); };  // rank 0 is not the last
  ddp.join([&] {
    for (int64_t step = 0; step < batches(g.rank()); ++step) {
      mine.zero_grad();
      sum(square(ddp(xs[size_t(step)][size_t(g.rank())]))).backward();
      mine.step();
    }
  });
  for (int64_t step = 0; step < 2 + g.size(); ++step) {
    whole.zero_grad();
    for (int64_t r = 0; r < g.size(); ++r)
      if (step < batches(r)) (sum(square(one(xs[size_t(step)][size_t(r)]))) / double(g.size())).backward();
    whole.step();
  }
  EXPECT(ddp.differing_parameters().empty() && furthest(net, one) < 1e-10);
  mine.zero_grad();
  sum(ddp(xs[0][0])).backward();  // afterwards all is as ever
}

struct Numbers : nn::Module {  // with buffers
  Mlp mlp;
  nn::BatchNorm1d bn{2};
  Tensor forward(const Tensor& x) { return bn(mlp(x)); }
  TAPIR_FIELDS(mlp, bn)
};
struct Used : Mlp {
  Used() { use = true; }
  TAPIR_FIELDS_WITH_BASE(Mlp)
};

static void joined() {
  const ProcessGroup g = distributed::init_process_group(options);
  manual_seed(uint64_t(g.rank()));
  train_uneven<Used>(g, {});
  train_uneven<Used>(g, {.bucket_cap_mb = 0.0005, .first_bucket_mb = 0.0005});
  train_uneven<Mlp>(g, {.find_unused_parameters = true});
  train_uneven<Mlp>(g, {.static_graph = true});
  Numbers net;
  net.mlp.use = true;
  distributed::DistributedDataParallel ddp(net, {}, g);
  ddp.join([&] {
    for (int64_t i = 0; i < 2 + g.rank(); ++i) sum(square(ddp(randn({4, 6})))).backward();
  });
  Tensor tracked = net.bn.num_batches_tracked.detach().clone(), most = tracked.clone();
  g.all_reduce(tracked, Op::Min), g.all_reduce(most, Op::Max);
  EXPECT(equal(tracked, most) && tracked.item() == double(1 + g.size()));
  Numbers own;
  own.mlp.use = true;
  distributed::DistributedDataParallel apart(own, {.broadcast_buffers = false}, g);
  apart.join([&] {
    for (int64_t i = 0; i < 2 + g.rank(); ++i) sum(square(apart(randn({4, 6})))).backward();
    own.bn.running_mean.fill_(double(g.rank()));
  });
  EXPECT(own.bn.running_mean.min().item() == double(g.rank()));
  Norm together;
  distributed::DistributedDataParallel synced(together, {}, g);
  EXPECT(has(error_of<ValueError>([&] { synced.join([] {}); }), "[join] expected a module without SyncBatchNorm"));
}

static void static_graph() {
  const ProcessGroup g = distributed::init_process_group(options);
  manual_seed(uint64_t(g.rank()));
  Mlp net, one;
  EXPECT(train_both(g, net, one, {{6}}, {.bucket_cap_mb = 0.0005, .static_graph = true}) < 1e-10);
  EXPECT(!net.unused.weight.grad().defined());
  Mlp lazy;
  distributed::DistributedDataParallel ddp(lazy, {.static_graph = true}, g);
  const auto step = [&] { ddp(ones({4, 6})).sum().backward(); };
  const auto collectives = [&] {
    const std::string text = g.flight_recorder();
    return std::count(text.begin(), text.end(), '\n');
  };
  step();
  const auto before = collectives();
  step();
  EXPECT(collectives() - before == int64_t(ddp.reducer().bucket_bytes().size()));  // nobody asks any more
  int64_t bytes = 0, used = 0;
  for (const int64_t n : ddp.reducer().bucket_bytes()) bytes += n;
  for (const auto& [name, p] : lazy.named_parameters())
    if (name.find("unused") == std::string::npos) used += (p.numel() * 4 + 63) / 64 * 64;
  EXPECT(bytes == used);
  lazy.use = true;
  EXPECT(has(error_of<ValueError>(step), "expected a static graph, which does not use \"unused."));
  Mlp mixed;
  mixed.use = g.rank() == 0;
  distributed::DistributedDataParallel other(mixed, {.static_graph = true}, g);
  EXPECT(has(error_of<RuntimeError>([&] { other(ones({4, 6})).sum().backward(); }), "used by some ranks and not by"));
}

/// Hooks of the user's, and those that are here.
struct Doubles final : distributed::CommHook {
  std::vector<Work> works;
  int* calls;
  explicit Doubles(int* calls) : calls(calls) {}
  void begin(const distributed::GradBucket& b) override {
    ++*calls;
    works.resize(std::max(works.size(), b.index + 1));
    works[b.index] = b.group.all_reduce(b.buffer, Op::Mean, true);
  }
  void finish(const distributed::GradBucket& b) override {
    works[b.index].wait();
    for (Tensor g : b.gradients) g.mul_(2);
  }
};

struct Refuses final : distributed::CommHook {
  void begin(const distributed::GradBucket&) override { fail(ErrorKind::Runtime, "no more"); }
  void finish(const distributed::GradBucket&) override {}
};
struct Headless : nn::Module {  // its last layer, whose gradients would come first, is not used
  nn::Linear a{6, 2}, c{2, 2};
  Tensor forward(const Tensor& x) { return a(x); }
  TAPIR_FIELDS(a, c)
};

/// The error of a hook is the one that is seen, and steps go on with another; hooks change between steps alone.
static void hooks_change(const ProcessGroup& g) {
  Used net;
  distributed::DistributedDataParallel ddp(net, {.bucket_cap_mb = 0.0005, .first_bucket_mb = 0.0005}, g);
  const Tensor x = randn({4, 6});
  ddp.register_comm_hook(Refuses());
  for (int i = 0; i < 2; ++i) EXPECT(error_of<RuntimeError>([&] { ddp(x).sum().backward(); }) == "no more");
  net.zero_grad();
  ddp.register_comm_hook(distributed::AllReduceHook());
  ddp(x).sum().backward();
  Headless part;
  distributed::DistributedDataParallel early(
      part, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6, .find_unused_parameters = true}, g);
  const Tensor y = early(x);
  EXPECT(has(error_of<ValueError>([&] { early.register_comm_hook(distributed::AllReduceHook()); }),
             "got one within backward"));
  y.sum().backward();
}

/// What the hook makes of gradients of this rank, step by step.
static Tensor through(distributed::CommHook& hook, distributed::GradBucket& b, const Tensor& mine) {
  b.buffer.copy_(mine);
  hook.begin(b), hook.finish(b);
  return b.buffer.clone();
}

/// PowerSGD sends a matrix of rank 1 as it is, whatever the columns, and again behind an overflow on one rank and behind zeros.
static void hooks_recover(const ProcessGroup& g) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    const TensorOptions like{.dtype = dtype};
    distributed::GradBucket b{.group = g, .buffer = zeros({64 * 48}, like), .gradients = {}};
    b.gradients = {b.buffer.view({64, 48})};
    distributed::PowerSgdHook hook({.rank = 4, .start_step = 0});
    manual_seed(5);
    const Tensor matrix = flatten(matmul(randn({64, 1}), randn({1, 48}))).to(dtype);
    const double near = dtype == kBFloat16 ? 0.05 : 1e-4;
    for (int step = 0; step < 12; ++step) {
      Tensor mine = matrix.clone();
      if (step == 3 && g.rank() == 0) mine.narrow(0, 100, 1).fill_(INFINITY);
      if (step == 6) mine.zero_();
      const Tensor got = through(hook, b, mine).to(kFloat64);
      if (step == 3) EXPECT(!isfinite(got).all().item<bool>());  // for a GradScaler to see, on all ranks
      else EXPECT((got - mine.to(kFloat64)).abs().max().item() < near * matrix.to(kFloat64).abs().max().item());
    }
  }
}

static void hooks() {
  const ProcessGroup g = distributed::init_process_group(options);
  const double n = double(g.size());
  manual_seed(uint64_t(g.rank()));
  Used net;
  distributed::DistributedDataParallel ddp(net, {.bucket_cap_mb = 0.0005, .first_bucket_mb = 0.0005}, g);
  const Tensor x = randn({4, 6});
  ddp(x).sum().backward();
  const Tensor mean = net.a.weight.grad().detach().clone();
  net.zero_grad();
  int calls = 0;
  ddp.register_comm_hook(Doubles(&calls));
  ddp(x).sum().backward();
  EXPECT(size_t(calls) == ddp.reducer().bucket_bytes().size() && calls > 1);
  EXPECT((net.a.weight.grad() - mean * 2).abs().max().item() < 1e-6);

  for (const DType half : {kFloat16, kBFloat16}) {
    distributed::GradBucket b{.group = g, .buffer = empty({100}), .gradients = {}};
    distributed::AllReduceHook hook(half);
    const Tensor got = through(hook, b, full({100}, 1.0 + double(g.rank()) / 512));  // which half has, and bfloat16 not
    EXPECT(got.min().item() == (half == kFloat16 ? 1 + (n - 1) / 1024 : 1));
    EXPECT(got.min().item() == got.max().item());
  }
  EXPECT(has(error_of<ValueError>([&] { distributed::AllReduceHook wrong(kInt16); }), "expected compression to"));
  hooks_recover(g);
  hooks_change(g);

  // A matrix whose mean has rank 1 arrives as it is, vectors always; two columns find rank 2.
  for (const int64_t rank : {int64_t(1), int64_t(2)}) {
    distributed::GradBucket b{.group = g, .buffer = zeros({160}, {.dtype = kFloat64}), .gradients = {}};
    b.gradients = {b.buffer.narrow(0, 0, 120).view({12, 10}), b.buffer.narrow(0, 128, 7)};
    distributed::PowerSgdHook hook({.rank = rank, .start_step = 2});
    manual_seed(3);
    const TensorOptions wide{.dtype = kFloat64};
    Tensor left = randn({12, rank}, wide), right = randn({rank, 10}, wide), vector = randn({7}, wide);
    const double scale = double(g.rank() + 1), mean_scale = (n + 1) / 2;
    const Tensor matrix = matmul(left, right);
    for (int step = 0; step < 6; ++step) {
      const Tensor mine = zeros({160}, wide);
      mine.narrow(0, 0, 120).copy_(flatten(matrix) * scale), mine.narrow(0, 128, 7).copy_(vector * scale);
      const Tensor got = through(hook, b, mine);
      EXPECT((got.narrow(0, 128, 7) - vector * mean_scale).abs().max().item() < 1e-12);
      EXPECT((got.narrow(0, 0, 120) - flatten(matrix) * mean_scale).abs().max().item() < 1e-9);
    }
    EXPECT(has(g.flight_recorder(), tapir::format("of {} x float64", 12 * rank)) &&
           has(g.flight_recorder(), tapir::format("of {} x float64", 10 * rank)));
  }
  // What rank 1 leaves out of a full matrix comes later: the sum of the steps is that of the gradients, but for the last error.
  distributed::GradBucket b{.group = g, .buffer = zeros({80}), .gradients = {}};
  b.gradients = {b.buffer.view({10, 8})};
  distributed::PowerSgdHook hook({.rank = 1, .start_step = 0});
  Tensor mine = randn({80}), total = mine.clone(), sent = zeros({80});
  g.all_reduce(total, Op::Mean);
  const auto distance = [&](const Tensor& got) { return (square(got - total).sum() / square(total).sum()).item(); };
  const Tensor first = through(hook, b, mine);
  EXPECT(distance(first) > 0.1);
  sent.add_(first);
  for (int step = 1; step < 200; ++step) sent.add_(through(hook, b, mine));
  EXPECT(distance(sent / 200.0) < 0.02);

  Used small;
  distributed::DistributedDataParallel trained(small, {}, g);
  trained.register_comm_hook(distributed::PowerSgdHook({.rank = 2, .start_step = 3}));
  optim::SGD opt(small.parameters(), {.lr = 0.02});
  const Tensor inputs = randn({16, 6}), targets = tanh(inputs.narrow(1, 0, 2));
  double begin = 0, end = 0;
  for (int step = 0; step < 200; ++step) {
    opt.zero_grad();
    const Tensor loss = mse_loss(trained(inputs), targets);
    (step ? end : begin) = loss.item();
    loss.backward();
    opt.step();
    EXPECT(trained.differing_parameters().empty());
  }
  EXPECT(end < begin / 2);
}

/// Reductions run before backward has come to the first layer, and the profiler's trace shows it.
static void overlap() {
  const ProcessGroup g = distributed::init_process_group(options);
  Mlp net;
  net.use = true;
  distributed::DistributedDataParallel ddp(net, {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001});
  const auto is_done = [&] {
    const std::string text = g.flight_recorder();
    const size_t at = text.find("all_reduce(mean)");
    return at != std::string::npos && text.substr(at, text.find('\n', at) - at).find(": done") != std::string::npos;
  };
  bool seen = false;
  net.a.bias.register_hook([&](const Tensor&) {
    for (int i = 0; i < 10000 && !seen; ++i) seen = is_done(), usleep(seen ? 0 : 1000);
    const profiler::Range range("first layer");
  });
  const Tensor loss = ddp(ones({4, 6})).sum();
  profiler::start_recording({});
  {
    const profiler::Range range("backward");
    loss.backward();
  }
  const profiler::Recording recording = profiler::stop_recording();
  int64_t begin = 0, end = 0, first_layer = 0, inside = 0, before = 0, reductions = 0;
  for (const auto& thread : recording.threads)
    for (const auto& e : thread.events) {
      const std::string name = profiler::shown_name(e);
      if (name == "backward") begin = e.begin, end = e.end;
      if (name == "first layer") first_layer = e.begin;
    }
  for (const auto& thread : recording.threads)
    for (const auto& e : thread.events)
      if (profiler::shown_name(e).starts_with("all_reduce(mean) #"))
        ++reductions, inside += e.begin > begin && e.end < end, before += e.end < first_layer;
  EXPECT(seen && before >= 1 && inside == reductions);
  EXPECT(reductions == int64_t(ddp.reducer().bucket_bytes().size()) && reductions > 3);
}

/// Metrics over all ranks are those of one process that has seen all; rank 0 has seen nothing.
static void metrics() {
  const ProcessGroup g = distributed::init_process_group(options);
  train::Accuracy accuracy, all_accuracy;
  train::ConfusionMatrix matrix(3), all_matrix(3);
  train::Perplexity perplexity, all_perplexity;
  train::AUC auc, all_auc;
  manual_seed(4);
  for (int64_t r = 0; r < g.size(); ++r)
    for (int batch = 0; batch < r; ++batch) {
      const Tensor scores = randn({5 + r, 3}), labels = randint(0, 3, {5 + r}), two = randint(0, 2, {5 + r});
      for (const bool all : {true, false}) {
        if (!all && r != g.rank()) continue;
        (all ? all_accuracy : accuracy).update(scores, labels);
        (all ? all_matrix : matrix).update(scores, labels);
        (all ? all_perplexity : perplexity).update(scores, labels);
        (all ? all_auc : auc).update(scores.select(1, 0), two);
      }
    }
  accuracy.all_reduce(g), matrix.all_reduce(g), perplexity.all_reduce(g), auc.all_reduce(g);
  EXPECT(accuracy.compute() == all_accuracy.compute() && equal(matrix.compute(), all_matrix.compute()));
  EXPECT(std::abs(perplexity.compute() - all_perplexity.compute()) < 1e-9);
  EXPECT(std::abs(auc.compute() - all_auc.compute()) < 1e-12);
}

/// bfloat16 compute and traffic; infinities on one rank.
static void mixed() {
  const ProcessGroup g = distributed::init_process_group(options);
  manual_seed(uint64_t(g.rank()));
  Mlp net;
  net.use = true;
  distributed::DistributedDataParallel ddp(net, {.compression = kBFloat16});
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  amp::GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
  for (int step = 0; step < 8; ++step) {
    opt.zero_grad();
    Tensor x = randn({4, 6});
    if (step % 3 == 1 && second()) x.fill_(std::numeric_limits<double>::infinity());
    Tensor loss;
    {
      amp::Autocast autocast(kCPU);
      const Tensor y = ddp(x).to(kFloat32);
      loss = (y * y).mean();
    }
    scaler.scale(loss).backward();
    scaler.step(opt);
    EXPECT(scaler.skipped(opt) == (step % 3 == 1) && ddp.differing_parameters().empty());
    scaler.update();
    Tensor scale = full({1}, scaler.get_scale()), least = scale.clone();
    g.all_reduce(scale, Op::Max), g.all_reduce(least, Op::Min);
    EXPECT(equal(scale, least));
  }
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

/// Trains; one rank after the other is killed at a random moment, TAPIR_TEST_KILLS times. A restart goes on from the checkpoint. Prints the
/// loss of the end with all its digits.
static void resume() {
  const ProcessGroup g = distributed::init_process_group(options);
  const int64_t restart = g.launch().restart_count, kills = number_from("TAPIR_TEST_KILLS", 0);
  if (restart < kills && restart % g.size() == g.rank())
    std::thread([] {
      usleep(useconds_t(seconds() * 1e6) % 60000);
      raise(SIGKILL);
    }).detach();
  manual_seed(3);
  Mlp net;
  net.use = true;
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  train::Checkpoint checkpoint(std::getenv("TAPIR_TEST_FILE"));
  checkpoint.add("model", net).add("optimizer", opt);
  int64_t step = checkpoint.resume().value_or(0);
  distributed::DistributedDataParallel ddp(net);
  double last = 0;
  for (; step < 400; ++step) {
    manual_seed(uint64_t(100 * step + g.rank()));
    opt.zero_grad();
    const Tensor x = randn({8, 6}), loss = mse_loss(ddp(x), x.narrow(1, 0, 2) * x.narrow(1, 2, 2));
    loss.backward();
    opt.step();
    Tensor mean = loss.detach().clone();
    g.all_reduce(mean, Op::Mean);
    last = mean.item();
    if (step % 3 == 2 && step < 390) distributed::once(g, [&] { checkpoint.save(step + 1); });
    usleep(500);
  }
  while (restart < kills) g.barrier();
  EXPECT(ddp.differing_parameters().empty());
  if (g.rank() == 0) std::printf("final loss %a after %d restarts\n", last, int(restart));
}

std::vector<Scenario> training_scenarios() {
  return {{"ddp", ddp},         {"against_one", against_one},
          {"resnet", resnet},   {"ddp_errors", ddp_errors},
          {"overlap", overlap}, {"mixed", mixed},
          {"metrics", metrics}, {"resume", resume},
          {"joined", joined},   {"static_graph", static_graph},
          {"hooks", hooks}};
}

}  // namespace worker
