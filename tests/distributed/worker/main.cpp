// One rank of a job of tests/distributed: `distributed_worker SCENARIO [backend]`. Ends with status 0 when everything was as expected, and
// with a line that says what was not. The first argument names a function here or in one of the files beside it.
#include <sys/resource.h>
#include <unistd.h>

#include "worker.h"

using namespace worker;

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

int main(int argc, char** argv) {
  const rlimit no_cores{0, 0};
  setrlimit(RLIMIT_CORE, &no_cores);
  alarm(unsigned(number_from("TAPIR_TEST_ALARM", 160)));  // nobody hangs for ever
  set_num_threads(1);
  const std::string name = argc > 1 ? argv[1] : "";
  if (argc > 2) options.backend = argv[2];
  std::vector<Scenario> all{{"collectives", collectives}};
  for (const auto& more : {fault_scenarios(), training_scenarios(), sharding_scenarios(), compiled_scenarios(),
                           elastic_scenarios(), nccl_scenarios(), nccl_mistakes(), nccl_async_scenarios()})
    all.insert(all.end(), more.begin(), more.end());
  for (const auto& [known, run] : all)
    if (name == known) try {
        run();
#ifdef __SANITIZE_THREAD__  // a program may end with its group, but threads that nobody joined are reported
        if (distributed::is_initialized()) distributed::destroy_process_group();
#endif
        return 0;
      } catch (const std::exception& e) {
        std::printf("FAILED %s: %s\n", known, e.what());
        return 1;
      }
  std::printf("no scenario \"%s\"\n", name.c_str());
  return 2;
}
