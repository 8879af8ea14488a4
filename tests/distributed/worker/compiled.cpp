// Compiled training in several processes equals eager training there.
#include <tapir/distributed/ddp.h>
#include <tapir/distributed/fsdp.h>
#include <tapir/distributed/sync_batch_norm.h>
#include <tapir/distributed/zero.h>

#include "worker.h"

namespace worker {
namespace {

struct Mlp : nn::Module {
  nn::Linear a{6, 16}, b{16, 8}, c{8, 2};
  Tensor forward(const Tensor& x) { return c(gelu(b(tanh(a(x))))); }
  TAPIR_FIELDS(a, b, c)
};
struct Lazy : nn::Module {
  Mlp mlp;
  nn::Linear unused{3, 3};
  Tensor forward(const Tensor& x) { return mlp(x); }
  TAPIR_FIELDS(mlp, unused)
};
struct Norms : nn::Module {
  nn::Linear a{6, 16}, c{16, 2};
  distributed::SyncBatchNorm bn{16};
  nn::Dropout drop{0.2};
  Tensor forward(const Tensor& x) { return c(drop(relu(bn(a(x))))); }
  TAPIR_FIELDS(a, c, bn, drop)
};

struct Counts {
  int64_t programs = 0, replays = 0;
};
template <class F> Counts counts_of(const F& f) {
  const std::string text = f.explain();
  Counts c{f.programs(), 0};
  for (size_t at = 0; (at = text.find(", replayed ", at)) != std::string::npos; at += 11)
    c.replays += std::atoll(text.c_str() + at + 11);
  return c;
}

/// Sixteen calls of a step that make(net) gives, compiled and not: the same losses and weights.
template <class M, class Make> Counts same_as_eager(const ProcessGroup& g, Make make) {
  std::vector<Tensor> losses[2];
  std::vector<Tensor> left[2];
  Counts counts;
  for (const bool compiled : {false, true}) {
    manual_seed(uint64_t(g.rank()));  // other weights and data on every rank
    M net;
    counts = make(net, CompileOptions{.enabled = compiled}, [&](auto&& step) {
      for (int i = 0; i < 16; ++i) {
        const Tensor x = randn({8, 6}), y = randn({8, 2});
        losses[compiled].push_back(step(i, x, y).detach().clone());
      }
    });
    for (const auto& [name, t] : net.state_dict()) left[compiled].push_back(t.detach().clone());
  }
  const auto near = [](const Tensor& a, const Tensor& b) {
    return isclose(a.to(kFloat64), b.to(kFloat64), {.rtol = 1e-5, .atol = 1e-6}).all().template item<bool>();
  };
  for (size_t i = 0; i < losses[0].size(); ++i) EXPECT(near(losses[0][i], losses[1][i]));
  for (size_t i = 0; i < left[0].size(); ++i) EXPECT(near(left[0][i], left[1][i]));
  return counts;
}

/// A whole step of a module behind `wrapped`.
template <class Wrapped> auto step_of(Wrapped& wrapped, optim::Optimizer& opt, bool to_none = true) {
  return [&wrapped, &opt, to_none](const Tensor& x, const Tensor& y) {
    opt.zero_grad(to_none);
    const Tensor loss = mse_loss(wrapped(x), y);
    loss.backward();
    opt.step();
    return loss;
  };
}

/// A whole step is one program, reductions included.
template <class M> Counts whole_step(const ProcessGroup& g, const distributed::DdpOptions& ddp_options, bool to_none) {
  return same_as_eager<M>(g, [&](M& net, const CompileOptions& compile_options, auto train) {
    distributed::DistributedDataParallel ddp(net, ddp_options, g);
    optim::AdamW opt(net.parameters(), {.lr = 0.05});
    auto step = compile(step_of(ddp, opt, to_none), compile_options);
    train([&](int, const Tensor& x, const Tensor& y) { return step(x, y); });
    EXPECT(ddp.differing_parameters().empty());
    if (compile_options.enabled) std::printf("%s\n", step.explain().substr(0, 400).c_str());
    return counts_of(step);
  });
}

/// The forward alone; hooks reduce as ever.
template <class M> Counts forward_alone(const ProcessGroup& g) {
  return same_as_eager<M>(g, [&](M& net, const CompileOptions& compile_options, auto train) {
    distributed::DistributedDataParallel ddp(net, {.bucket_cap_mb = 0.0005, .first_bucket_mb = 0.0005}, g);
    optim::SGD opt(net.parameters(), {.lr = 0.05, .momentum = 0.9});
    auto fast = compile([&](const Tensor& x) { return ddp(x); }, compile_options);
    train([&](int i, const Tensor& x, const Tensor& y) {
      if (i % 4 < 2) opt.zero_grad();
      Tensor loss;
      if (i % 4 == 1) {
        const auto guard = ddp.no_sync();
        loss = mse_loss(fast(x), y);
        loss.backward();
      } else {
        loss = mse_loss(fast(x), y);
        loss.backward();
      }
      opt.step();
      return loss;
    });
    if (compile_options.enabled) std::printf("%s\n", fast.explain().substr(0, 400).c_str());
    return counts_of(fast);
  });
}

void steps() {
  const ProcessGroup g = distributed::init_process_group(options);
  for (const double cap : {25.0, 0.0005})
    for (const bool to_none : {true, false}) {
      const Counts c = whole_step<Mlp>(g, {.bucket_cap_mb = cap, .first_bucket_mb = cap}, to_none);
      EXPECT(!to_none || (c.programs == 1 && c.replays >= 8));
    }
  EXPECT(whole_step<Norms>(g, {}, true).replays >= 8);
  EXPECT(whole_step<Mlp>(g, {.compression = kBFloat16}, true).replays >= 8);
  (void)whole_step<Lazy>(g, {.find_unused_parameters = true}, true);
  EXPECT(whole_step<Lazy>(g, {.static_graph = true}, true).replays >= 8);
}
void forwards() {
  const ProcessGroup g = distributed::init_process_group(options);
  EXPECT(forward_alone<Mlp>(g).replays >= 6);
  EXPECT(forward_alone<Norms>(g).replays >= 6);
}

/// Micro-batches within one call, of which the last one reduces.
void accumulation() {
  const ProcessGroup g = distributed::init_process_group(options);
  const Counts c = same_as_eager<Mlp>(g, [&](Mlp& net, const CompileOptions& compile_options, auto train) {
    distributed::DistributedDataParallel ddp(net, {}, g);
    optim::SGD opt(net.parameters(), {.lr = 0.05});
    auto step = compile(
        [&](const Tensor& x, const Tensor& y) {
          opt.zero_grad();
          {
            const auto guard = ddp.no_sync();
            mse_loss(ddp(x.narrow(0, 0, 4)), y.narrow(0, 0, 4)).backward();
          }
          const Tensor loss = mse_loss(ddp(x.narrow(0, 4, 4)), y.narrow(0, 4, 4));
          loss.backward();
          opt.step();
          return loss;
        },
        compile_options);
    train([&](int, const Tensor& x, const Tensor& y) { return step(x, y); });
    return counts_of(step);
  });
  EXPECT(c.replays >= 8);
}

/// Collectives of the user's own, waited for inside, outside, or not at all; every call is checked, or none.
void collectives() {
  const ProcessGroup g = distributed::init_process_group(options);
  for (const double verify : {0., 1.}) {
    const Tensor kept = zeros({4});
    auto f = compile(
        [&](const Tensor& x) {
          NoGrad guard;
          const Tensor a = x * 2, b = x + 1, c = empty({g.size() * x.numel()}), d = x.reshape({2, 2}).t() * 3;
          const Work one = g.all_reduce(a, Op::Sum, true), two = g.all_reduce(b, Op::Max, true);
          g.all_gather(c, x);
          g.broadcast(kept.copy_(x), g.size() - 1);
          g.all_reduce(d);
          one.wait();
          g.barrier();
          (void)two;  // dropped
          return std::tuple(a + 1, b.clone(), c * 2, d.contiguous(), kept.clone());
        },
        {.verify = verify});
    for (int i = 0; i < 10; ++i) {
      const auto of = [&](int64_t r) { return full({4}, double(i + r)) + arange(4.); };
      const auto [a, b, c, d, e] = f(of(g.rank()));
      const int64_t n = g.size();
      Tensor sum = zeros({4});
      std::vector<Tensor> all;
      for (int64_t r = 0; r < n; ++r) sum = sum + of(r), all.push_back(of(r));
      EXPECT(equal(a, sum * 2 + 1) && equal(b, of(n - 1) + 1) && equal(c, cat(all) * 2));
      EXPECT(equal(d, (sum.reshape({2, 2}).t() * 3).contiguous()) && equal(e, of(n - 1)));
    }
    EXPECT(f.programs() == 1);
  }
  auto sends = compile([&](const Tensor& x) { return g.send(x, 1 - g.rank(), 0, true), x * 2; });
  EXPECT(has(error_of<ValueError>([&] { sends(ones({2})); }), "no message (send, recv) while a program is recorded"));
}

/// What moves parameters about is refused, runs as it is, or is right.
void shards() {
  const ProcessGroup g = distributed::init_process_group(options);
  Mlp net;
  distributed::DistributedDataParallel ddp(net, {}, g);
  distributed::ZeroRedundancyOptimizer<optim::AdamW> opt(net.parameters(), optim::AdamWOptions{.lr = 1e-2});
  auto step = compile([&](const Tensor& x) {
    opt.zero_grad();
    sum(ddp(x)).backward();
    opt.step();
  });
  EXPECT(has(error_of<ValueError>([&] { step(ones({4, 6})); }), "expected step() outside of compile()"));
  (void)same_as_eager<Mlp>(g, [&](Mlp& net, const CompileOptions& compile_options, auto train) {
    distributed::FullyShardedDataParallel fsdp(net, {}, g);
    optim::AdamW opt(fsdp.parameters(), {.lr = 1e-2});
    auto step = compile(step_of(fsdp, opt), compile_options);
    train([&](int, const Tensor& x, const Tensor& y) { return step(x, y); });
    if (compile_options.enabled) std::printf("fsdp: %s\n", step.explain().substr(0, 400).c_str());
    return counts_of(step);
  });
}

}  // namespace

std::vector<Scenario> compiled_scenarios() {
  return {{"compiled_steps", steps},
          {"compiled_forwards", forwards},
          {"compiled_accumulation", accumulation},
          {"compiled_collectives", collectives},
          {"compiled_shards", shards}};
}

}  // namespace worker
