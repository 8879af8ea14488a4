// The host does not wait for NCCL: what is begun when, and what becomes of errors that come later. On emulated devices.
#include <dlfcn.h>

#include <csignal>
#include <thread>

#include <tapir/distributed/ddp.h>
#include <tapir/distributed/store.h>
#include <tapir/distributed/sync_batch_norm.h>

#include "communicator.h"

namespace worker {
namespace {

/// What the stand-in was called with so far.
std::vector<std::string> nccl_calls() {
  void* const library = dlopen(std::getenv("TAPIR_NCCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  const auto calls = reinterpret_cast<size_t (*)(size_t, const char**)>(dlsym(library, "nccl_stand_in_calls"));
  std::vector<std::string> all;
  const char* text = "";
  for (size_t i = 0; i < calls(i, &text); ++i) all.emplace_back(text);
  return all;
}
std::vector<std::string> calls_since(size_t before) {
  std::vector<std::string> all = nccl_calls();
  return {all.begin() + int64_t(before), all.end()};
}

struct Net : nn::Module {
  nn::Linear a{6, 16}, b{16, 7}, c{7, 5};  // sizes of bias and weight that end within a pack
  Tensor forward(const Tensor& x) { return c(tanh(b(tanh(a(x))))); }
  TAPIR_FIELDS(a, b, c)
};

struct Job {
  ProcessGroup group;
  Device device;
  distributed::Store store = store_of_job();
  Job() {
    check_runtime(cuda::is_available(), "no CUDA: {}", cuda::why_not());
    options.backend = "nccl";
    group = distributed::init_process_group(options);
    device = Device(kCUDA.type, int(group.rank()));
    cuda::set_device(int(group.rank()));
  }
  Tensor input() const { return randn({4, 6}).to(device); }
};

/// Rank 1 begins its step when rank 0's backward has returned: nobody waits for the other before the optimizer's kernels do.
void overlap() {
  Job job;
  Net net;
  net.to(job.device);
  distributed::DistributedDataParallel ddp(net, {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001}, job.group);
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  size_t before = 0, at_first_layer = 0;
  net.a.weight.register_hook([&](const Tensor&) { at_first_layer = calls_since(before).size(); });
  for (int step = 0; step < 4; ++step) {
    const Tensor x = job.input();
    opt.zero_grad();
    const std::string key = "backward " + std::to_string(step);
    if (step > 0 && second()) (void)job.store.get(key, 60);  // in the first one ranks agree on the order of buckets
    before = nccl_calls().size();
    const int64_t waits = cuda::synchronizations();
    ddp(x).sum().backward();
    if (step > 0) EXPECT(cuda::synchronizations() == waits);
    if (step > 0 && !second()) job.store.set(key, "returned");
    const auto buckets = ddp.reducer().bucket_bytes();
    const auto calls = calls_since(before);
    EXPECT(calls.size() == buckets.size() && calls.size() > 3);
    EXPECT(at_first_layer >= 1 && at_first_layer < calls.size());
    for (size_t i = 0; i < calls.size() && step > 0; ++i)
      EXPECT(calls[i] == tapir::format("all_reduce(avg) of {} x float32", buckets[i] / 4));
    opt.step();
    EXPECT(ddp.differing_parameters().empty());
    for (const Tensor& p : net.parameters()) EXPECT(uintptr_t(p.grad().data_ptr()) % 64 == 0);
  }
  distributed::destroy_process_group();
}

/// Streams wait, the host does not; what nobody waits for is over all the same before the group ends.
void streams() {
  Job job;
  const Tensor x = full({1000}, double(job.group.rank() + 1), {.device = job.device});
  if (second()) (void)job.store.get("begun", 60);
  const Work work = job.group.all_reduce(x, Op::Sum, true);
  EXPECT(second() || !work.is_completed());
  work.wait();
  EXPECT(second() || !work.is_completed());
  if (!second()) job.store.set("begun", "1");
  const Tensor y = x * 2;  // on the current stream, which waits
  EXPECT(y.cpu().min().item() == 6);
  const cuda::Stream side;
  cuda::synchronize();
  {
    cuda::StreamGuard guard(side);
    x.fill_(double(job.group.rank() + 1));
    job.group.all_reduce(x, Op::Max);
    x.add_(1);
  }
  side.synchronize();
  EXPECT(x.cpu().max().item() == 3);
  EXPECT(has(job.group.flight_recorder(), ": done"));
  (void)job.group.all_reduce(full({1 << 16}, 1.0, {.device = job.device}), Op::Sum, true);  // dropped, with its tensor
  distributed::destroy_process_group();
}

/// All running statistics travel as one message for each dtype.
void buffers() {
  Job job;
  nn::Sequential net(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::Linear(8, 5), nn::BatchNorm1d(5), nn::BatchNorm1d(5));
  net.to(job.device);
  distributed::DistributedDataParallel ddp(net, {}, job.group);
  for (int step = 0; step < 3; ++step) {
    for (const auto& [name, b] : net.named_buffers())
      if (b.dtype() == kFloat32) b.detach().fill_(double(job.group.rank() + step));
    const size_t before = nccl_calls().size();
    const int64_t waits = cuda::synchronizations();
    {
      NoGrad guard;
      net.eval();
    }
    const Tensor y = ddp(job.input());
    EXPECT(cuda::synchronizations() == waits);
    const auto calls = calls_since(before);
    EXPECT(calls.size() == 2);
    EXPECT(calls[0] == "broadcast(root 0) of 36 x float32" && calls[1] == "broadcast(root 0) of 3 x int64");
    for (const auto& [name, b] : net.named_buffers())
      if (b.dtype() == kFloat32) EXPECT(b.cpu().min().item() == step && b.cpu().max().item() == step);
    y.sum().backward();
  }
  distributed::destroy_process_group();
}

/// Synchronised batch norms: as one process on the host, without a wait of the host.
void batch_norm() {
  Job job;
  manual_seed(3);
  const int64_t n = job.group.size();
  for (const std::optional<double> momentum : {std::optional<double>(0.1), std::optional<double>()}) {
    distributed::SyncBatchNorm mine(3, {.momentum = momentum});
    nn::BatchNorm2d one(3, {.momentum = momentum});
    mine.to(job.device);
    for (int step = 0; step < 3; ++step) {
      const Tensor all = randn({4 * n, 3, 5}) * 3 + 1, part = all.narrow(0, 4 * job.group.rank(), 4).to(job.device);
      const int64_t waits = cuda::synchronizations();
      const Tensor y = mine(part);
      EXPECT(cuda::synchronizations() == waits);
      const Tensor want = one(all.unsqueeze(3)).squeeze(3);
      EXPECT((y.cpu() - want.narrow(0, 4 * job.group.rank(), 4)).abs().max().item() < 1e-5);
    }
    EXPECT((mine.running_mean.cpu() - one.running_mean).abs().max().item() < 1e-5);
    EXPECT((mine.running_var.cpu() - one.running_var).abs().max().item() < 1e-4);
  }
  distributed::SyncBatchNorm bn(3);
  bn.to(job.device);
  const Tensor x = second() ? ones({1, 3}) : zeros({0, 3});  // one value of all ranks: its variance is 0
  const Tensor y = bn(x.to(job.device));
  EXPECT(isfinite(bn.running_var).all().item<bool>() && y.numel() == x.numel());
  distributed::destroy_process_group();
}

/// A compiled step is one graph, whose collectives are in the order of its program, on every rank; results are those of eager steps.
template <class M> void captured(Job& job, const distributed::DdpOptions& ddp_options) {
  std::vector<double> losses[2];
  for (const bool compiled : {false, true}) {
    manual_seed(uint64_t(job.group.rank()));
    M net;
    net.to(job.device);
    distributed::DistributedDataParallel ddp(net, ddp_options, job.group);
    optim::SGD opt(net.parameters(), {.lr = 0.05, .momentum = 0.9});
    auto step = compile(
        [&](const Tensor& x) {
          opt.zero_grad();
          const Tensor loss = mean(square(ddp(x)));
          loss.backward();
          opt.step();
          return loss;
        },
        {.enabled = compiled});
    std::vector<std::string> eager;  // collectives of a step
    int64_t graphs = 0;
    for (int i = 0; i < 12; ++i) {
      const size_t before = nccl_calls().size();
      const Tensor x = job.input();
      const int64_t waits = cuda::synchronizations();
      const Tensor loss = step(x);
      auto calls = calls_since(before);
      if (i == 1) eager = calls;
      if (compiled && i > 1 && !calls.empty() && has(calls[0], "captured ")) {
        EXPECT(calls.size() == 2 * eager.size());
        for (size_t k = 0; k < eager.size(); ++k) EXPECT(calls[k] == "captured " + eager[k]);
        calls.erase(calls.begin(), calls.begin() + int64_t(eager.size()));
        ++graphs;
      }
      if (i > 1) EXPECT(calls == eager && !eager.empty());
      if (i > 8) EXPECT(cuda::synchronizations() == waits);
      losses[compiled].push_back(loss.item());
    }
    EXPECT(ddp.differing_parameters().empty());
    if (!compiled) continue;
    std::printf("%s\n", step.explain().substr(0, 600).c_str());
    EXPECT(graphs >= 1 && has(step.explain(), "one graph, launched") && has(job.group.flight_recorder(), ": done"));
  }
  for (size_t i = 0; i < losses[0].size(); ++i)
    EXPECT(std::abs(losses[0][i] - losses[1][i]) < 1e-5 * (1 + std::abs(losses[0][i])));
}
struct Norms : nn::Module {
  nn::Linear a{6, 16}, c{16, 2};
  nn::BatchNorm1d bn{16};
  distributed::SyncBatchNorm sync{2};
  Tensor forward(const Tensor& x) { return sync(c(relu(bn(a(x))))); }
  TAPIR_FIELDS(a, c, bn, sync)
};
void graphs() {
  Job job;
  captured<Net>(job, {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001});
  captured<Net>(job, {.compression = kBFloat16});
  captured<Norms>(job, {.static_graph = true});
  // Collectives of the user's own, waited for inside or not at all.
  auto f = compile([&](const Tensor& x) {
    NoGrad guard;
    const Tensor a = x * 2, b = x + 1, c = empty({job.group.size() * 4}, {.device = job.device});
    const Work one = job.group.all_reduce(a, Op::Sum, true), two = job.group.all_reduce(b, Op::Max, true);
    job.group.all_gather(c, x);
    one.wait();
    (void)two;
    return std::tuple(a + 1, b * 1, c * 2);
  });
  for (int i = 0; i < 8; ++i) {
    const auto [a, b, c] = f(full({4}, double(i) + double(job.group.rank()), {.device = job.device}));
    EXPECT(equal(a.cpu(), full({4}, 2.0 * (2 * i + 1) + 1)) && equal(b.cpu(), full({4}, double(i + 2))));
    EXPECT(c.cpu().sum().item() == 8.0 * (2 * i + 1));
  }
  EXPECT(has(f.explain(), "one graph, launched"));
  // A group that has failed launches nothing any more.
  if (second()) {
    (void)job.store.get("launched", 60);
    raise(SIGKILL);
  }
  job.store.set("launched", "1");
  std::string text;
  for (const double begin = seconds(); text.empty() && seconds() - begin < 15;)
    text = error_of<RuntimeError>([&] { (void)f(full({4}, 1.0, {.device = job.device})); });
  EXPECT(has(text, "the group has failed before") && has(text, " is gone"));
}

/// Calls until one tells what has become of `work`, which has begun.
std::string late_error(const Work& work) {
  const double begin = seconds();
  while (seconds() - begin < 15) {
    const std::string text = error_of<RuntimeError>([&] { work.wait(); });
    if (!text.empty()) return text;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

/// Rank 1 dies while rank 0's collectives are on their way: those, and what comes after, throw; kernels behind them go on.
void lost() {
  Job job;
  const Tensor x = ones({100}, {.device = job.device}), y = ones({100}, {.device = job.device});
  job.group.all_reduce(x);
  if (second()) {
    (void)job.store.get("begun", 60);
    raise(SIGKILL);
  }
  const Work first = job.group.all_reduce(x, Op::Sum, true), next = job.group.all_reduce(y, Op::Sum, true);
  EXPECT(!first.is_completed());
  first.wait();
  job.store.set("begun", "1");
  (void)(x + 1).cpu();  // waits for the end, whatever it is
  EXPECT(has(late_error(first), " is gone") && has(late_error(next), " is gone") && next.is_completed());
  EXPECT(has(error_of<RuntimeError>([&] { job.group.all_reduce(x); }), "the group has failed before"));
  EXPECT(has(error_of<RuntimeError>([&] { job.group.barrier(); }), "the group has failed before"));
  EXPECT(has(job.group.flight_recorder(), ": failed"));
}

/// An abort lets the stream pass what is on its way: that has failed all the same.
void aborted() {
  cuda::set_device(my_rank());
  Communicator c{.device = my_rank()};
  const Tensor x = ones({100}, {.device = Device(kCUDA.type, c.device)});
  EXPECT(c.run(Collective::AllReduce, x, x).empty());
  if (second()) return (void)c.store.get("over", 60);
  distributed::Started begun = c.start(Collective::AllReduce, x, x);
  EXPECT(!c.failure && !c.nccl.is_over(begun, c.failure) && !c.failure);
  c.nccl.abort("the next call has failed");
  for (const double begin = seconds(); !begun.done->query() && seconds() - begin < 15;)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT(begun.done->query() && !c.nccl.is_over(begun, c.failure));
  EXPECT(has(c.failure.text, "the next call has failed"));
  c.store.set("over", "1");
}

/// Rank 1 never comes.
void late() {
  options.timeout = 2;
  Job job;
  const Tensor x = ones({100}, {.device = job.device});
  job.group.all_reduce(x);
  if (second()) return (void)job.store.get("over", 60);
  const double begin = seconds();
  const Work work = job.group.all_reduce(x, Op::Sum, true);
  work.wait();
  EXPECT(seconds() - begin < 1);
  const std::string text = late_error(work);
  EXPECT(has(text, "timed out after 2 s; missing ranks: 1") && seconds() - begin < 10);
  job.store.set("over", "1");
}

/// Ranks compare what they are about to do before NCCL is told.
void compared() {
  options.debug = true;
  Job job;
  const Tensor x = ones({second() ? 5 : 4}, {.device = job.device}), y = full({4}, 2.0, {.device = job.device});
  const Work work = job.group.all_reduce(x, Op::Sum, true);
  EXPECT(has(error_of<RuntimeError>([&] { work.wait(); }), "ranks do different things"));
  job.group.all_reduce(y);
  EXPECT(y.cpu().max().item() == 4);
  distributed::destroy_process_group();
}

}  // namespace

std::vector<Scenario> nccl_async_scenarios() {
  return {{"nccl_overlap", overlap},       {"nccl_streams", streams}, {"nccl_buffers", buffers},
          {"nccl_batch_norm", batch_norm}, {"nccl_lost", lost},       {"nccl_late", late},
          {"nccl_compared", compared},     {"nccl_graphs", graphs},   {"nccl_aborted", aborted}};
}

}  // namespace worker
