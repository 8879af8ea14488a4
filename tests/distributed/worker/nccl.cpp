// What Tapir does with NCCL, against a stand-in of the same interface: TAPIR_NCCL_LIBRARY names it.
#include <csignal>
#include <cstring>
#include <thread>

#include <tapir/core/device_table.h>
#include <tapir/core/modes.h>
#include <tapir/distributed/ddp.h>

#include "communicator.h"

namespace worker {

namespace {

void calls() {
  Communicator c;
  const int64_t n = c.size, me = c.rank;
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt8, kUInt8})
    for (const Op op : {Op::Sum, Op::Mean, Op::Max, Op::Min, Op::Product}) {
      if (op == Op::Mean && !is_floating(dtype)) continue;
      const Tensor x = full({1000}, double(me + 1)).to(dtype);
      EXPECT(c.run(Collective::AllReduce, x, x, op).empty());
      const double product = n == 2 ? 2 : 6, sum = double(n * (n + 1) / 2);
      const double want = op == Op::Sum    ? sum
                          : op == Op::Mean ? sum / double(n)
                          : op == Op::Max  ? double(n)
                          : op == Op::Min  ? 1
                                           : product;
      EXPECT(equal(x, full({1000}, want).to(dtype)));
    }
  Tensor b = full({7}, double(me)), gathered = zeros({7 * n}), part = zeros({7});
  EXPECT(c.run(Collective::Broadcast, b, b, Op::Sum, int(n - 1)).empty() && b.min().item() == double(n - 1));
  b.fill_(double(me));
  EXPECT(c.run(Collective::AllGather, b, gathered).empty());
  for (int64_t r = 0; r < n; ++r) EXPECT(equal(gathered.narrow(0, 7 * r, 7), full({7}, double(r))));
  EXPECT(c.run(Collective::ReduceScatter, gathered, part).empty() && equal(part, full({7}, double(n * me))));
  Tensor y = full({5}, double(me + 1));
  EXPECT(c.run(Collective::Reduce, y, y, Op::Sum, 0).empty());
  EXPECT(equal(y, full({5}, me == 0 ? double(n * (n + 1) / 2) : double(me + 1))));
  std::vector<int64_t> in, out(size_t(n), me);  // rank s sends r rows to rank r: none to rank 0
  for (int64_t r = 0; r < n; ++r) in.push_back(r);
  const Tensor rows = full({n * (n - 1) / 2, 4}, double(me)), got = zeros({n * me, 4});
  EXPECT(c.run(Collective::AllToAll, rows, got, Op::Sum, -1, in, out).empty());
  for (int64_t r = 0; r < n; ++r) EXPECT(equal(got.narrow(0, r * me, me), full({me, 4}, double(r))));
  EXPECT(!Nccl::has(kInt16));
}

void fault(const char* text) { setenv("NCCL_STAND_IN", text, 1); }

void init_hang() {
  options.init_timeout = 1;
  if (second()) fault("init_hang");
  const std::string text =
      error_of<RuntimeError>([] { Communicator c; });  // whoever gave up first is gone for the others
  EXPECT(my_rank() > 1 || has(text, "timed out after 1 s") || has(text, "is gone"));  // rank 2 has its connection
}
void init_error() {
  options.init_timeout = 2;
  if (second()) fault("init_error");
  const std::string text = error_of<RuntimeError>([] { Communicator c; });
  if (second()) EXPECT(has(text, "NCCL: unhandled system error: no such network"));
  else EXPECT(my_rank() > 1 || has(text, "expected NCCL to connect"));
}

/// The third collective fails for good; then the communicator is no more, and says so.
void fails(const char* what, const char* words_here, const char* words_there) {
  options.timeout = 2;
  if (second()) fault(what);
  Communicator c;
  const Tensor x = ones({100});
  for (int i = 0; i < 2; ++i) EXPECT(c.run(Collective::AllReduce, x, x).empty());
  const double begin = seconds();
  const std::string why = c.run(Collective::AllReduce, x, x);
  EXPECT(c.fatal && (has(why, second() ? words_here : words_there) || has(why, "is gone")));
  EXPECT((c.failure.kind == distributed::Failure::Kind::PeerGone) == has(why, "is gone"));
  EXPECT((c.failure.kind == distributed::Failure::Kind::Timeout) == has(why, "timed out"));
  c.nccl.abort(why);
  EXPECT(c.run(Collective::AllReduce, x, x) == why && c.fatal && seconds() - begin < 15);
}
void hang() { fails("hang=3", "timed out after 2 s", ""); }
void remote_error() { fails("remote_error=3", "a peer is gone (NCCL: remote process exited", "is gone"); }
void cuda_error() { fails("cuda_error=3", "NCCL: unhandled cuda error: an illegal memory access", "is gone"); }

void invalid_argument() {
  fault("invalid_argument=1");
  Communicator c;
  const Tensor x = ones({100});
  EXPECT(has(c.run(Collective::AllReduce, x, x), "invalid argument: count is none") && !c.fatal);
  EXPECT(c.run(Collective::AllReduce, x, x).empty() && x.max().item() == double(c.size));
}

/// The sockets see the end of a rank for which NCCL would wait.
void killed_beside() {
  if (!second()) fault("hang=2");
  Communicator c;
  const Tensor x = ones({100});
  EXPECT(c.run(Collective::AllReduce, x, x).empty());
  if (second()) raise(SIGKILL);
  const double begin = seconds();
  EXPECT(has(c.run(Collective::AllReduce, x, x), " is gone") && c.fatal && seconds() - begin < 10);
  EXPECT(c.failure.kind == distributed::Failure::Kind::PeerGone);
}

void refused() {
  setenv("NCCL_STAND_IN_VERSION", "20800", 1);
  EXPECT(has(error_of<RuntimeError>([] { Nccl(nullptr, {}, -1, nullptr); }), "2.14 is the first"));
}
void missing() {
  setenv("TAPIR_NCCL_LIBRARY", "/no/such/libnccl.so.2", 1);
  EXPECT(has(error_of<RuntimeError>([] { Nccl(nullptr, {}, -1, nullptr); }), "/no/such/libnccl.so.2"));
}

/// Rows and single messages between devices; one rank sends itself all it has.
void messages(const ProcessGroup& g, Device device) {
  const int64_t n = g.size(), me = g.rank();
  std::vector<int64_t> in, out(size_t(n), me + 1);  // rank s sends r + 1 rows to rank r
  for (int64_t r = 0; r < n; ++r) in.push_back(r + 1);
  const Tensor rows = full({n * (n + 1) / 2, 4}, double(me), {.device = device});
  const Tensor got = zeros({n * (me + 1), 4}, {.device = device});
  g.all_to_all(got, rows, out, in);
  for (int64_t r = 0; r < n; ++r)
    EXPECT(equal(got.cpu().narrow(0, r * (me + 1), me + 1), full({me + 1, 4}, double(r))));
  const Tensor from = zeros({5, 2}, {.device = device});  // over the group's sockets
  const Work received = g.recv(from.t(), (me + n - 1) % n, 3, true);
  g.send(full({2, 5}, double(me), {.device = device}), (me + 1) % n, 3);
  received.wait();
  EXPECT(equal(from.cpu(), full({5, 2}, double((me + n - 1) % n))));
}

/// While a thread captures a graph others go on; collectives within a compiled function are calls of its program.
void beside_capture(const ProcessGroup& g, Device device) {
  const DeviceTable& table = *backend(device).device;
  Tensor x = full({64}, 1.0, {.device = device}), y = full({64}, double(g.rank() + 1), {.device = device});
  const char* why = "";
  {
    ScopedMode<void*> stream(modes.streams[device.index], table.begin_capture(device));
    std::thread([&] { g.all_reduce(y); }).join();
    backend(device).fill(context(device), {x, 3.0});
  }
  void* const graph = table.end_capture(device, true, why);
  EXPECT(graph);
  table.launch_graph(device, graph, current_stream(device));
  table.destroy_graph(device, graph);
  EXPECT(x.cpu().min().item() == 3 && y.cpu().min().item() == double(g.size() * (g.size() + 1) / 2));
  auto step = compile([&](const Tensor& z) {
    NoGrad guard;
    const Tensor twice = z * 2;
    g.all_reduce(twice);
    return twice;
  });
  for (int i = 0; i < 6; ++i) {
    const Tensor y = step(full({64}, double(i + g.rank()), {.device = device}));
    EXPECT(equal(y.cpu(), full({64}, double(g.size() * (2 * i + g.size() - 1)))));
  }
}

/// What one device shows of NCCL: the library loads, a communicator opens, and collectives stand in the order of the stream.
void alone() {
  check_runtime(cuda::is_available(), "no CUDA: {}", cuda::why_not());
  options.backend = "nccl";
  const ProcessGroup g = distributed::init_process_group(options);
  for (const DType dtype : {kFloat32, kBFloat16, kFloat16, kInt64}) {
    Tensor x = full({1 << 12}, 1, {.dtype = dtype, .device = kCUDA});
    for (int i = 0; i < 6; ++i) {  // the kernel before it is done, and the one behind it waits
      x.mul_(2);
      g.all_reduce(x);
      x.add_(1);
    }
    EXPECT(equal(x.cpu(), full({1 << 12}, 127, {.dtype = dtype})));
  }
  const cuda::Stream side;
  Tensor y = ones({1 << 12}, {.device = kCUDA});
  cuda::synchronize();
  {
    cuda::StreamGuard guard(side);
    for (int i = 0; i < 8; ++i) y.mul_(2);
    const Work work = g.all_reduce(y, Op::Sum, true);
    work.wait();
    y.sub_(1);
  }
  side.synchronize();
  EXPECT(equal(y.cpu(), full({1 << 12}, 255)));
  nn::Sequential net(nn::Linear(16, 32), nn::Tanh(), nn::Linear(32, 4));
  net.to(kCUDA);
  distributed::DistributedDataParallel ddp(net, {}, g);
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  const Tensor input = randn({8, 16}).to(kCUDA);
  const double begin = mse_loss(ddp(input), zeros({8, 4}, {.device = kCUDA})).item();
  for (int step = 0; step < 5; ++step) {
    opt.zero_grad();
    mse_loss(ddp(input), zeros({8, 4}, {.device = kCUDA})).backward();
    opt.step();
  }
  EXPECT(mse_loss(ddp(input), zeros({8, 4}, {.device = kCUDA})).item() < begin);
  std::printf("%s\n", g.flight_recorder().substr(0, 2000).c_str());
  distributed::destroy_process_group();
}

/// A whole group on (emulated) CUDA devices, and a step of data-parallel training there.
void group() {
  check_runtime(cuda::is_available(), "no CUDA: {}", cuda::why_not());
  options.backend = "nccl";
  const ProcessGroup g = distributed::init_process_group(options);
  const Device device(kCUDA.type, int(g.rank()));
  const int64_t n = g.size();
  Tensor x = full({4, 6}, double(g.rank() + 1), {.device = device}), every = x.slice(1, 0, 6, 2);
  g.all_reduce(every);
  EXPECT(x.cpu().select(1, 0).max().item() == double(n * (n + 1) / 2) &&
         x.cpu().select(1, 1).max().item() == double(g.rank() + 1));
  const Tensor small = full({3}, double(g.rank() + 1), {.dtype = kInt16, .device = device});  // what NCCL does not know
  g.all_reduce(small, Op::Max);
  EXPECT(small.cpu().min().item() == double(n));
  const Tensor gathered = zeros({2 * n}, {.device = device});
  g.all_gather(gathered, full({2}, double(g.rank()), {.device = device}));
  for (int64_t r = 0; r < n; ++r) EXPECT(gathered.cpu().narrow(0, 2 * r, 2).max().item() == double(r));
  const Tensor beside = zeros({3}, {.device = Device(kCUDA.type, int((g.rank() + 1) % n))});
  EXPECT(has(error_of<ValueError>([&] { g.all_reduce(beside); }),
             tapir::format("[all_reduce] expected a tensor of the group's device, cuda:{}, got ", g.rank())));
  messages(g, device);
  beside_capture(g, device);
  manual_seed(uint64_t(g.rank()));
  nn::Sequential net(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 2));
  net.to(device);
  distributed::DistributedDataParallel ddp(net, {.bucket_cap_mb = 0.0001}, g);
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  for (int step = 0; step < 3; ++step) {
    opt.zero_grad();
    ddp(randn({4, 6}).to(device)).sum().backward();
    opt.step();
    EXPECT(ddp.differing_parameters().empty());
  }
  EXPECT(has(error_of<RuntimeError>([&] {
               distributed::ProcessGroupOptions same = options;
               same.device = 0;
               distributed::init_process_group(same);
             }),
             "got cuda:0 of "));
}

}  // namespace

std::vector<Scenario> nccl_scenarios() {
  return {{"nccl_calls", calls},
          {"nccl_init_hang", init_hang},
          {"nccl_init_error", init_error},
          {"nccl_hang", hang},
          {"nccl_remote_error", remote_error},
          {"nccl_cuda_error", cuda_error},
          {"nccl_invalid_argument", invalid_argument},
          {"nccl_killed", killed_beside},
          {"nccl_refused", refused},
          {"nccl_missing", missing},
          {"nccl_alone", alone},
          {"nccl_group", group}};
}

}  // namespace worker
