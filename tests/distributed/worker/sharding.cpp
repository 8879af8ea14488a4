// Optimizer states, and whole parameters, spread over ranks: the same training, less memory.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>

#include <tapir/core/allocator.h>
#include <tapir/distributed/ddp.h>
#include <tapir/distributed/fsdp.h>
#include <tapir/distributed/once.h>
#include <tapir/distributed/zero.h>
#include <tapir/models/gpt2.h>
#include <tapir/quant/float8.h>

#include "worker.h"

namespace worker {

static double difference(const StateDict& a, const StateDict& b) {
  double worst = a.size() == b.size() ? 0 : 1;
  for (const auto& [name, t] : a) {
    const Tensor x = t.detach().to(kFloat64), y = b.at(name).detach().to(kFloat64);
    if (x.numel()) worst = std::max(worst, (x - y).abs().max().item() / std::max(1.0, x.abs().max().item()));
  }
  return worst;
}
static models::GPT2Config small_gpt(bool checkpoint = false) {
  return {.vocab_size = 17,
          .n_positions = 8,
          .n_embd = 16,
          .n_layer = 3,
          .n_head = 2,
          .dropout = 0,
          .checkpoint = checkpoint};
}
static Tensor loss_of(const Tensor& logits, const Tensor& tokens) {
  return cross_entropy(flatten(logits.to(logits.dtype() == kBFloat16 ? kFloat32 : logits.dtype()), 0, 1),
                       flatten(tokens));
}
/// This rank's part of a batch of 8 that all ranks know.
static Tensor part(const ProcessGroup& g, const Tensor& x) {
  const int64_t n = x.size(0) / g.size();
  return x.narrow(0, n * g.rank(), n);
}

static void zero() {
  const ProcessGroup g = distributed::init_process_group(options);
  manual_seed(5);
  models::GPT2LMHeadModel net(small_gpt()), same(small_gpt());
  distributed::DistributedDataParallel ddp(net), other(same);
  same.load_state_dict(net.state_dict());
  distributed::ZeroRedundancyOptimizer<optim::AdamW> opt(net.parameters(), optim::AdamWOptions{.lr = 1e-2});
  optim::AdamW plain(same.parameters(), {.lr = 1e-2});
  optim::StepLR schedule(opt, 4, {.gamma = 0.5}), schedule_plain(plain, 4, {.gamma = 0.5});
  amp::GradScaler scaler({.init_scale = 64}), scaler_plain({.init_scale = 64});
  for (int step = 0; step < 10; ++step) {
    manual_seed(uint64_t(100 * step + g.rank()));
    const Tensor x = randint(0, 17, {2, 8});
    opt.zero_grad(), plain.zero_grad();
    scaler.scale(loss_of(ddp(x), x)).backward(), scaler_plain.scale(loss_of(other(x), x)).backward();
    if (step == 6) {  // an infinity in one parameter of all ranks: all skip, whoever owns it
      NoGrad guard;
      for (auto* m : {&net, &same}) Tensor(m->parameters()[1].grad()).fill_(std::numeric_limits<double>::infinity());
    }
    scaler.step(opt), scaler_plain.step(plain);
    scaler.update(), scaler_plain.update();
    schedule.step(), schedule_plain.step();
    EXPECT(difference(net.state_dict(), same.state_dict()) == 0 && ddp.differing_parameters().empty());
  }
  const StateDict all_states = opt.state_dict(), plain_states = plain.state_dict();
  for (const auto& [name, t] : plain_states)
    check(all_states.contains(name) && equal(all_states.at(name), t), "expected the same {}", name);
  EXPECT(all_states.size() == plain_states.size());
  int64_t kept = 0, largest = 0;
  for (const auto& [name, t] : opt.mine()->state_dict())
    if (name.ends_with("exp_avg")) kept += t.numel();
  for (const Tensor& p : net.parameters()) largest = std::max(largest, p.numel());
  EXPECT(kept <= net.num_parameters() / g.size() + largest);
  distributed::ZeroRedundancyOptimizer<optim::AdamW> fresh(net.parameters(), optim::AdamWOptions{.lr = 1});
  fresh.load_state_dict(plain.state_dict());
  EXPECT(difference(fresh.state_dict(), plain.state_dict()) == 0 && fresh.lr() == plain.lr());
}

/// Ten steps of AdamW on the parts of a batch against one process with the whole.
static double fsdp_against_one(const ProcessGroup& g, DType dtype, distributed::FsdpOptions fsdp_options,
                               bool blocks = true, bool checkpoint = false) {
  manual_seed(uint64_t(g.rank()));  // rank 0's weights count
  models::GPT2LMHeadModel net(small_gpt(checkpoint)), one(small_gpt());
  net.to(dtype), one.to(dtype);
  const Shape before = net.transformer.h[0].mlp.c_fc.weight.shape();
  if (blocks) fsdp_options.blocks = distributed::blocks_of<models::GPT2Block>(net);
  distributed::FullyShardedDataParallel fsdp(net, fsdp_options, g);
  const StateDict begin = distributed::broadcast_state_dict(fsdp.full_state_dict(), g);
  one.load_state_dict(begin, {.strict = false});
  EXPECT(net.parameters()[0].numel() == 0);
  optim::SGD opt(fsdp.parameters(), {.lr = 0.1, .momentum = 0.9}),
      whole(one.parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 10; ++step) {
    manual_seed(uint64_t(step));
    const Tensor x = randint(0, 17, {8, 8}), y = randint(0, 17, {8, 8});
    opt.zero_grad(), whole.zero_grad();
    if (step % 3 == 2) {  // accumulated
      (loss_of(fsdp(part(g, x)), part(g, y)) / 2.0).backward();
      (loss_of(fsdp(part(g, x)), part(g, y)) / 2.0).backward();
    } else loss_of(fsdp(part(g, x)), part(g, y)).backward();
    loss_of(one(x), y).backward();
    const double norm = fsdp.clip_grad_norm_(0.5).item(),
                 expected = optim::clip_grad_norm_(one.parameters(), 0.5).item();
    EXPECT(std::abs(norm - expected) < (fsdp_options.param_dtype ? 0.1 : 1e-5));
    EXPECT(!fsdp.agree_on_infinities());
    opt.step(), whole.step();
  }
  {
    NoGrad guard;
    const Tensor x = full({2, 8}, 3, {.dtype = kInt64});
    EXPECT((fsdp(x).to(kFloat64) - one(x).to(kFloat64)).abs().max().item() < (fsdp_options.param_dtype ? 0.2 : 1e-4));
  }
  const StateDict end = distributed::broadcast_state_dict(fsdp.full_state_dict(), g);
  fsdp.unshard();
  EXPECT(net.transformer.h[0].mlp.c_fc.weight.shape() == before);
  double worst = 0;
  const StateDict expected = one.state_dict(), mine = net.state_dict();
  for (const auto& [name, t] : end) {
    StateDict a, b, c;
    a.append("x", t), b.append("x", expected.at(name)), c.append("x", mine.at(name));
    worst = std::max({worst, difference(a, b), difference(a, c)});
  }
  return worst;
}

static void fsdp() {
  const ProcessGroup g = distributed::init_process_group(options);
  EXPECT(fsdp_against_one(g, kFloat64, {}) < 1e-10);
  EXPECT(fsdp_against_one(g, kFloat32, {}) < 1e-5);
  EXPECT(fsdp_against_one(g, kFloat64, {.prefetch = false}) < 1e-10);
  EXPECT(fsdp_against_one(g, kFloat64, {}, false) < 1e-10);
  EXPECT(fsdp_against_one(g, kFloat64, {}, true, true) < 1e-10);
  const double off = fsdp_against_one(g, kFloat32, {.param_dtype = kBFloat16, .reduce_dtype = kFloat32});
  EXPECT(off > 1e-6 && off < 0.1);
}

/// 8-bit floats under FSDP and DDP against one process. Each rank scales by its own batch: all have the same one here.
static void float8() {
  const ProcessGroup g = distributed::init_process_group(options);
  manual_seed(1);
  models::GPT2LMHeadModel sharded(small_gpt());
  EXPECT(quant::float8_training_(sharded) == 12);
  models::GPT2LMHeadModel copied = sharded.clone(), one = sharded.clone();
  distributed::FullyShardedDataParallel fsdp(sharded, {.blocks = distributed::blocks_of<models::GPT2Block>(sharded)},
                                             g);
  distributed::DistributedDataParallel ddp(copied, {}, g);
  optim::SGD first(fsdp.parameters(), {.lr = 0.1}), second(copied.parameters(), {.lr = 0.1}),
      whole(one.parameters(), {.lr = 0.1});
  for (int step = 0; step < 5; ++step) {
    manual_seed(uint64_t(step));
    const Tensor x = randint(0, 17, {4, 8}), y = randint(0, 17, {4, 8});
    first.zero_grad(), second.zero_grad(), whole.zero_grad();
    loss_of(fsdp(x), y).backward(), loss_of(ddp(x), y).backward(), loss_of(one(x), y).backward();
    first.step(), second.step(), whole.step();
  }
  fsdp.unshard();
  EXPECT(difference(sharded.state_dict(), one.state_dict()) < 1e-5);
  EXPECT(difference(copied.state_dict(), one.state_dict()) < 1e-5);
}

/// Blocks side by side, of which `used` says, bit by bit, which ones the result depends on. Called are all.
struct Branches : nn::Module {
  std::vector<nn::Linear> blocks;
  nn::Linear head{6, 6}, spare{6, 6};
  Branches() {
    for (int i = 0; i < 4; ++i) blocks.emplace_back(6, 6);
  }
  Tensor forward(const Tensor& x, int used) {
    Tensor y = x;
    for (int i = 0; i < 4; ++i) {
      const Tensor z = blocks[size_t(i)](x);
      if (used >> i & 1) y = y + z * z;
    }
    return used >> 4 & 1 ? head(y) : y;
  }
  TAPIR_FIELDS(blocks, head, spare)
};

/// Units without gradients, other ones on each rank, against one process.
static double fsdp_branches(const ProcessGroup& g, bool prefetch, bool twice) {
  Branches net, one;
  net.to(kFloat64), one.to(kFloat64);
  distributed::FullyShardedDataParallel fsdp(
      net, {.blocks = {&net.blocks[0], &net.blocks[1], &net.blocks[2], &net.blocks[3]}, .prefetch = prefetch}, g);
  one.load_state_dict(distributed::broadcast_state_dict(fsdp.full_state_dict(), g));
  optim::SGD opt(fsdp.parameters(), {.lr = 0.05}), whole(one.parameters(), {.lr = 0.05});
  for (int step = 0; step < 30; ++step) {
    const auto used = [&](int64_t rank) { return twice ? 1 + step : 1 + int(step * (7 * rank + 5)) % 31; };
    manual_seed(uint64_t(step));
    const Tensor x = randn({8, 6}, {.dtype = kFloat64}), mine = part(g, x);
    const auto loss = [&](auto& model, const Tensor& x, int mask) {
      Tensor sum = square(model(x, mask)).mean();
      return twice ? sum + square(model(x * 2, 31 - mask / 2)).mean() : sum;
    };
    opt.zero_grad(), whole.zero_grad();
    loss(fsdp, mine, used(g.rank())).backward();
    for (int64_t r = 0; r < g.size(); ++r)
      (loss(one, x.narrow(0, r * mine.size(0), mine.size(0)), used(r)) / double(g.size())).backward();
    opt.step(), whole.step();
    if (step % 10 != 5) continue;  // a backward that throws leaves nothing behind
    Tensor z = mine.clone().requires_grad_();
    z.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("thrown within"); });
    EXPECT(has(error_of<std::runtime_error>([&] { loss(fsdp, z, 27).backward(); }), "thrown within"));
  }
  const StateDict end = distributed::broadcast_state_dict(fsdp.full_state_dict(), g);
  return difference(end, one.state_dict());
}

static void fsdp_unused() {
  const ProcessGroup g = distributed::init_process_group(options);
  for (const bool prefetch : {true, false})
    for (const bool twice : {false, true}) EXPECT(fsdp_branches(g, prefetch, twice) < 1e-12);
}

static void fsdp_errors() {
  const ProcessGroup g = distributed::init_process_group(options);
  models::GPT2LMHeadModel net(small_gpt());
  auto twice = distributed::blocks_of<models::GPT2Block>(net);
  twice.push_back(twice[0]);
  EXPECT(
      has(error_of<ValueError>([&] { distributed::FullyShardedDataParallel wrong(net, {.blocks = twice}); }), "share"));
  distributed::FullyShardedDataParallel fsdp(net, {.blocks = distributed::blocks_of<models::GPT2Block>(net)});
  const Tensor x = full({2, 8}, 3, {.dtype = kInt64});
  EXPECT(has(error_of<ValueError>([&] { net.transformer.h[0].mlp(ones({1, 2, 16})); }), "(0,)"));  // not gathered
  EXPECT(has(error_of<ValueError>([&] { fsdp(full({2, 9}, 3, {.dtype = kInt64})); }), ""));  // too long: thrown within
  loss_of(fsdp(x), x).backward();                                                            // as if nothing had been
  EXPECT(fsdp.parameters()[0].grad().defined());
  const std::string folder = std::getenv("TAPIR_TEST_FILE") + std::string(".none");
  EXPECT(has(error_of<RuntimeError>([&] { fsdp.load(folder); }), "got none"));
  const Tensor again = loss_of(fsdp(x), x);
  again.backward({}, true);
  EXPECT(!error_of<ValueError>([&] { again.backward(); }).empty());  // the weights are gone
  // Anything may be thrown: the other rank learns of it.
  const auto throws = [&] {
    if (my_rank() == 0) throw 1;
  };
  for (const bool all : {true, false}) {
    bool thrown = false;
    try {
      if (all) distributed::together(g, throws);
      else distributed::once(g, throws);
    } catch (int) {
      thrown = my_rank() == 0;
    } catch (const RuntimeError& e) {
      thrown = second() && has(e.what(), "without words");
    }
    EXPECT(thrown);
  }
  // One rank's gradients are not finite: no rank's are.
  NoGrad guard;
  if (second()) Tensor(fsdp.parameters()[0].grad()).fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT(fsdp.agree_on_infinities());
  optim::SGD opt(fsdp.parameters());
  amp::GradScaler scaler;
  scaler.scale(ones({}));
  scaler.step(opt);
  EXPECT(scaler.skipped(opt));
}

struct Wide : nn::Module {
  nn::Linear a{256, 256}, b{256, 256};
  Tensor forward(const Tensor& x) { return x + b(relu(a(x))); }
  TAPIR_FIELDS(a, b)
};
struct Deep : nn::Module {
  std::vector<Wide> blocks;
  nn::Linear head{256, 4};
  explicit Deep(int n) : blocks(size_t(n)) {}
  Tensor forward(Tensor x) {
    for (Wide& b : blocks) x = b(x);
    return head(x);
  }
  TAPIR_FIELDS(blocks, head)
};

/// Memory between steps, and the most within one, are those of Note [Fully sharded training].
static void fsdp_memory() {
  const ProcessGroup g = distributed::init_process_group(options);
  const int64_t before = memory_stats().allocated, rows = 32;
  Deep net(8);
  const int64_t bytes = 4 * net.num_parameters(), root = 4 * net.head.num_parameters(), block = (bytes - root) / 8;
  distributed::FullyShardedDataParallel fsdp(net, {.blocks = distributed::blocks_of<Wide>(net)});
  optim::AdamW opt(fsdp.parameters(), {.lr = 1e-3});
  for (int step = 0; step < 3; ++step) {
    if (step == 2) reset_peak_memory_stats();
    opt.zero_grad();
    fsdp(ones({rows, 256})).sum().backward();
    opt.step();
  }
  const int64_t peak = memory_stats().max_allocated - before;
  opt.zero_grad();
  const int64_t rest = memory_stats().allocated - before, constant = 64 << 10;
  const int64_t activations = 8 * 3 * rows * 256 * 4;
  std::printf("%lld ranks: parameters %lld KiB; between steps %lld KiB, most in a step %lld KiB\n", (long long)g.size(),
              (long long)bytes >> 10, (long long)rest >> 10, (long long)peak >> 10);
  EXPECT(rest <= 3 * bytes * 9 / 8 / g.size() + constant);  // the allocator rounds blocks up by at most an eighth
  EXPECT(peak <= (4 * bytes / g.size() + root + 5 * block + activations) * 9 / 8 + constant);
}

/// Three steps, a checkpoint, three more; or the checkpoint of other ranks, and the three more. Prints the loss.
static void fsdp_checkpoint() {
  const ProcessGroup g = distributed::init_process_group(options);
  const std::string folder = std::getenv("TAPIR_TEST_FILE");
  const bool saves = number_from("TAPIR_TEST_SAVES", 0);
  manual_seed(1);
  models::GPT2LMHeadModel net(small_gpt());
  net.to(kFloat64);
  distributed::FsdpOptions fsdp_options;
  if (g.size() > 1) fsdp_options.blocks = distributed::blocks_of<models::GPT2Block>(net);
  distributed::FullyShardedDataParallel fsdp(net, fsdp_options);
  optim::AdamW opt(fsdp.parameters(), {.lr = saves ? 1e-2 : 1});
  if (!saves) fsdp.load(folder, &opt);
  double last = 0;
  for (int step = saves ? 0 : 3; step < 6; ++step) {
    if (step == 3 && saves) fsdp.save(folder, &opt);
    manual_seed(uint64_t(step));
    const Tensor x = randint(0, 17, {8, 8});
    opt.zero_grad();
    Tensor loss = loss_of(fsdp(part(g, x)), part(g, x));
    loss.backward();
    opt.step();
    loss = loss.detach().clone();
    g.all_reduce(loss, Op::Mean);
    last = loss.item();
  }
  if (g.rank() == 0) std::printf("final loss %.10f\n", last);
}

/// States in float32 of weights in bfloat16 come back as they were; where one rank's optimizer cannot take them none has changed.
static void fsdp_states() {
  const ProcessGroup g = distributed::init_process_group(options);
  const std::string folder = std::getenv("TAPIR_TEST_FILE");
  nn::Linear net(33, 7), other(33, 7);
  net.to(kBFloat16), other.to(kBFloat16);
  distributed::FullyShardedDataParallel a(net, {}, g), b(other, {}, g);
  const optim::AdamWOptions o{.lr = 1e-3, .low_precision = "master"};
  optim::AdamW opt(a.parameters(), o), fresh(b.parameters(), o);
  const auto step = [&](auto& model, optim::Optimizer& optimizer) {
    manual_seed(uint64_t(g.rank()));
    optimizer.zero_grad();
    square(model(randn({4, 33}).to(kBFloat16))).sum().backward();
    optimizer.step();
  };
  for (int i = 0; i < 3; ++i) step(a, opt);
  a.save(folder, &opt);
  b.load(folder, &fresh);
  const StateDict mine = opt.state_dict(), loaded = fresh.state_dict();
  EXPECT(mine.at("state.0.master_param").dtype() == kFloat32 && mine.size() == loaded.size());
  for (const auto& [name, t] : mine) check(equal(t, loaded.at(name)), "expected the same {}", name);
  for (int i = 0; i < 3; ++i) step(a, opt), step(b, fresh);
  EXPECT(difference(a.full_state_dict(), b.full_state_dict()) == 0);
  if (g.size() == 1) return;
  StateDict before;
  for (const auto& [name, t] : fresh.state_dict()) before.append(name, t.clone());
  std::vector<optim::SGDGroup> groups(2);
  groups[0].params = b.parameters(), groups[1].params = {ones({3}).requires_grad_()};
  optim::SGD wrong(groups, {.lr = 1});
  if (second()) EXPECT(!error_of<ValueError>([&] { b.load(folder, &wrong); }).empty());
  else EXPECT(has(error_of<RuntimeError>([&] { b.load(folder, &fresh); }), "rank 1 failed"));
  for (const auto& [name, t] : before) check(equal(t, fresh.state_dict().at(name)), "expected {} as before", name);
}

static std::string shard_in(const std::string& folder, int64_t rank) {
  return tapir::format("{}/shard-{}-of-2.safetensors", folder, rank);
}

/// Where one rank cannot write, the checkpoint of before is whole. Files of two saves are none.
static void fsdp_failed_save() {
  const ProcessGroup g = distributed::init_process_group(options);
  const std::string folder = std::getenv("TAPIR_TEST_FILE");
  nn::Linear net(33, 7), other(33, 7);
  distributed::FullyShardedDataParallel a(net, {}, g), b(other, {}, g);
  a.save(folder);
  const StateDict before = distributed::broadcast_state_dict(a.full_state_dict(), g);
  for (const Tensor& chunk : a.parameters()) chunk.detach().add_(1);
  std::signal(SIGXFSZ, SIG_IGN);
  if (second()) setrlimit(RLIMIT_FSIZE, std::array{rlimit{64, RLIM_INFINITY}}.data());
  EXPECT(has(error_of<RuntimeError>([&] { a.save(folder); }), "shard-1-of-2"));
  if (second()) setrlimit(RLIMIT_FSIZE, std::array{rlimit{RLIM_INFINITY, RLIM_INFINITY}}.data());
  b.load(folder);
  EXPECT(difference(distributed::broadcast_state_dict(b.full_state_dict(), g), before) == 0);
  distributed::once(g, [&] {
    const auto files = std::filesystem::directory_iterator(folder);
    check(std::distance(begin(files), end(files)) == 2, "nothing else in the folder");
  });
  a.save(folder + ".new");
  distributed::once(g, [&] {
    std::filesystem::copy_file(shard_in(folder + ".new", 1), shard_in(folder, 1),
                               std::filesystem::copy_options::overwrite_existing);
  });
  EXPECT(has(error_of<RuntimeError>([&] { b.load(folder); }), "of one save"));
  EXPECT(difference(distributed::broadcast_state_dict(b.full_state_dict(), g), before) == 0);
}

static void fsdp_shapes() {
  const ProcessGroup g = distributed::init_process_group(options);
  const std::string folder = std::getenv("TAPIR_TEST_FILE");
  nn::Linear net(4, 2, {.bias = false}), turned(2, 4, {.bias = false}), smaller(2, 2, {.bias = false}),
      same(4, 2, {.bias = false});
  distributed::FullyShardedDataParallel a(net, {}, g), b(turned, {}, g), c(smaller, {}, g), d(same, {}, g);
  a.save(folder);
  EXPECT(has(error_of<RuntimeError>([&] { b.load(folder); }), "\"weight\" of shape (4, 2)"));
  EXPECT(has(error_of<RuntimeError>([&] { c.load(folder); }), "\"weight\" of shape (2, 2)"));
  // Files that say nothing of save and shapes, as there were before.
  io::save_safetensors(shard_in(folder, g.rank()), io::load_safetensors(shard_in(folder, g.rank())));
  g.barrier();
  EXPECT(has(error_of<RuntimeError>([&] { c.load(folder); }), "4 elements of \"model.weight\""));
  d.load(folder);
  EXPECT(difference(a.full_state_dict(), d.full_state_dict()) == 0);
}

std::vector<Scenario> sharding_scenarios() {
  return {{"zero", zero},
          {"fsdp", fsdp},
          {"fsdp_unused", fsdp_unused},
          {"float8", float8},
          {"fsdp_errors", fsdp_errors},
          {"fsdp_memory", fsdp_memory},
          {"fsdp_states", fsdp_states},
          {"fsdp_failed_save", fsdp_failed_save},
          {"fsdp_shapes", fsdp_shapes},
          {"fsdp_checkpoint", fsdp_checkpoint}};
}

}  // namespace worker
