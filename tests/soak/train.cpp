// What tests/soak/soak keeps disturbing: a training program as people write them, with worker threads, dropout, mixed precision, a
// schedule and checkpoints; alone or as one of several ranks. It says a line of what it does ("step 12 3f9a0b41": the bits of the loss), and
// ends with status 0 when done, 130 after SIGTERM, 1 after an error of Tapir's types and 3 after any other one.
#include <tapir/tapir.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>
using namespace tapir;

namespace {

struct Options {
  std::string folder, log;
  int64_t steps = 0, every = 10, keep = 3, workers = 2;
  int threads = 1;
  double pause_ms = 0;
  bool compile = false, end = false, forget_random = false;
};

using Clock = std::chrono::steady_clock;
volatile std::sig_atomic_t signalled = 0;

template <class... A> void say(const char* text, A... a) {
  std::printf(text, a...);
  std::fflush(stdout);
}

/// Noisy, shifted pictures of ten patterns: 512 of them, new noise in each epoch.
struct Pictures {
  Tensor patterns = rand({10, 1, 16, 16});
  int64_t size() const { return 512; }
  std::pair<Tensor, int64_t> get(int64_t i) const {
    const Tensor noise = randn({1, 16, 16}), shift = randint(-2, 3, {1});
    return {add(roll(patterns.select(0, i % 10), {shift.item<int64_t>()}, {2}), mul(noise, 0.5)), i % 10};
  }
};

struct Net : nn::Module {
  nn::Conv2d conv1{1, 8, 3, {.padding = 1}}, conv2{8, 16, 3, {.padding = 1}};
  nn::BatchNorm2d bn{8};
  nn::Dropout dropout{0.2};
  nn::Linear fc{16 * 4 * 4, 10};
  Tensor forward(const Tensor& x) {                      // (N, 1, 16, 16)
    const Tensor h = max_pool2d(relu(bn(conv1(x))), 2);  // (N, 8, 8, 8)
    return fc(dropout(flatten(max_pool2d(relu(conv2(h)), 2), 1)));
  }
  TAPIR_FIELDS(conv1, conv2, bn, dropout, fc)
};

/// How far the run is, and how well it does.
struct Place {
  int64_t step = 0;
  double validation = 100;
  StateDict state_dict() const { return {{"step", tensor(step)}, {"validation", tensor(validation)}}; }
  void load_state_dict(const StateDict& state) {
    step = state.at("step").item<int64_t>(), validation = state.at("validation").item();
  }
};

class Training {
 public:
  Training(const Options& o, const distributed::ProcessGroup& group)
      : o_(o), group_(group), rank_(group ? group.rank() : 0),
        held_out_({randn({256, 1, 16, 16}), randint(0, 10, {256})}), loader_(Pictures(), loader_options()),
        opt_(net_.parameters(), {.lr = 1e-2, .weight_decay = 1e-2}), schedule_(opt_, 200),
        scaler_({.init_scale = 1024, .growth_interval = 100}), checkpoint_(o.folder, {.keep_last = o.keep}) {
    checkpoint_.add("model", net_).add("optimizer", opt_).add("schedule", schedule_).add("scaler", scaler_);
    checkpoint_.add("loader", loader_).add("place", place_);
    if (!o.log.empty() && !rank_) log_.emplace(o.log);
  }

  /// True when it is done, false where a signal ended it. In one process an error sends it back to the newest checkpoint.
  bool run() {
    if (group_ || o_.end) return resume(), train();
    int64_t farthest = -1;
    for (auto began = Clock::now();;) try {
        return resume(), train();
      } catch (const std::exception& e) {
        const bool memory = dynamic_cast<const std::bad_alloc*>(&e), tapir = dynamic_cast<const RuntimeError*>(&e);
        if (place_.step > farthest) farthest = place_.step, began = Clock::now();
        if (signalled || (!memory && !tapir) || Clock::now() - began > std::chrono::minutes(2)) throw;
        std::fprintf(stderr, "again after %s: %s\n", tapir ? "RuntimeError" : "std::bad_alloc", e.what());
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        trim_memory();
      }
  }

 private:
  data::LoaderOptions loader_options() const {
    data::LoaderOptions out{.batch_size = 32, .shuffle = true, .num_workers = o_.workers, .seed = 5};
    out.persistent_workers = true;
    if (group_) out.sampler = data::DistributedSampler(512, rank_, group_.size(), {.seed = 5}), out.shuffle = false;
    return out;
  }

  /// The step that it goes on from. All ranks read the file that rank 0 has written, and see that it is the same one.
  int64_t resume() {
    std::optional<int64_t> step;
    const auto read = [&] { step = checkpoint_.resume(); };
    group_ ? distributed::together(group_, read) : read();
    for (const std::string& text : checkpoint_.refused()) std::fprintf(stderr, "passed over: %s\n", text.c_str());
    if (group_)
      for (const std::string& text : group_.all_gather_text(std::to_string(step.value_or(-1))))
        check_runtime(text == std::to_string(step.value_or(-1)),
                      "[train] expected all ranks to resume at step {}, got {}", step.value_or(-1), text);
    if (step && o_.forget_random) manual_seed(uint64_t(getpid()));
    if (rank_) default_generator().set_state(uint64_t(rank_), default_generator().offset());
    if (!rank_) step ? say("resumed %lld\n", static_cast<long long>(*step)) : say("begins\n");
    if (!step) save();
    return place_.step;
  }

  bool train() {
    if (group_) ddp_.emplace(net_, distributed::DdpOptions{}, group_);
    auto step = compile([&](const Tensor& x, const Tensor& y) { return this->step(x, y); },
                        {.enabled = o_.compile, .fold_norm = false, .rows = false});
    while (place_.step < o_.steps) {
      net_.train();
      for (auto& [images, labels] : loader_) {
        const double loss = step(images, labels).item();
        schedule_.step();
        if (log_ && place_.step % o_.every == 0) write_log(loss);
        ++place_.step;
        if (!rank_)
          say("step %lld %016llx\n", static_cast<long long>(place_.step), std::bit_cast<unsigned long long>(loss));
        const bool ends = anybody(signalled);
        const bool done = place_.step == o_.steps;
        if (ends || done || place_.step % o_.every == 0) try_to_save(ends || done);
        if (ends || done) return done;
        if (o_.pause_ms > 0) std::this_thread::sleep_for(std::chrono::microseconds(int64_t(1000 * o_.pause_ms)));
      }
      validate();
    }
    return true;
  }

  Tensor step(const Tensor& images, const Tensor& labels) {
    opt_.zero_grad();
    Tensor loss;
    {
      const amp::Autocast autocast(kCPU);
      loss = cross_entropy(ddp_ ? (*ddp_)(images) : net_(images), labels);
    }
    scaler_.scale(loss).backward();
    scaler_.unscale_(opt_);
    optim::clip_grad_norm_(net_.parameters(), 1.0);
    scaler_.step(opt_);
    scaler_.update();
    return loss;
  }

  /// Takes far more memory than a step, and gives it back.
  void validate() {
    if (rank_) return;
    InferenceMode guard;
    net_.eval();
    place_.validation = cross_entropy(net_(held_out_.first), held_out_.second).item();
    trim_memory();
  }

  void save() {
    const auto write = [&] { checkpoint_.save(place_.step, place_.validation); };
    group_ ? distributed::once(group_, write) : write();
    if (!rank_) say("saved %lld\n", static_cast<long long>(place_.step));
  }
  void write_log(double loss) {
    try {
      log_->add_scalar("loss", loss, place_.step);
    } catch (const RuntimeError& e) {
      if (o_.end) throw;
      std::fprintf(stderr, "not logged: RuntimeError: %s\n", e.what());
    }
  }
  /// A full disk is no reason to stop: every older file is whole, and the next one may have room.
  void try_to_save(bool must) {
    try {
      save();
    } catch (const RuntimeError& e) {
      if (must || o_.end) throw;
      if (!rank_) std::fprintf(stderr, "not saved: RuntimeError: %s\n", e.what());
    }
  }
  /// Ranks stop at the same step.
  bool anybody(bool me) const {
    if (!group_) return me;
    const Tensor all = full({}, me ? 1 : 0, {.dtype = kInt64});
    group_.all_reduce(all, distributed::ReduceOp::Max);
    return all.item() > 0;
  }

  Options o_;
  distributed::ProcessGroup group_;
  int64_t rank_;
  std::pair<Tensor, Tensor> held_out_;
  data::DataLoader<Pictures> loader_;
  Net net_;
  optim::AdamW opt_;
  optim::CosineAnnealingWarmRestarts schedule_;
  amp::GradScaler scaler_;
  train::Checkpoint checkpoint_;
  Place place_;
  std::optional<train::SummaryWriter> log_;
  std::optional<distributed::DistributedDataParallel<Net>> ddp_;
};

int learn(const Options& o) {
  use_deterministic_algorithms(true);  // the number of threads may be another one after each start
  set_num_threads(o.threads);
  std::signal(SIGTERM, [](int) { signalled = 1; });
  manual_seed(0);
  distributed::ProcessGroup group;
  if (std::getenv("RANK")) group = distributed::init_process_group({.timeout = 5});
  const int rank = group ? int(group.rank()) : 0;
  say("rank %d pid %d\n", rank, int(getpid()));
  Training training(o, group);
  const bool done = training.run();
  if (rank == 0) say("%s\n", done ? "done" : "interrupted");
  return done ? 0 : 130;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Trains, for tests/soak/soak", "train");
  app.add_option("folder", o.folder, "Of the checkpoints")->required();
  app.add_option("--log", o.log, "Folder for TensorBoard");
  app.add_option("--steps", o.steps, "Steps to train")->required();
  app.add_option("--every", o.every, "Steps between checkpoints");
  app.add_option("--keep", o.keep, "Checkpoints that stay; 0: all");
  app.add_option("--workers", o.workers, "Threads of the loader");
  app.add_option("--threads", o.threads, "Threads that compute");
  app.add_option("--pause", o.pause_ms, "Milliseconds of rest after each step");
  app.add_flag("--compile", o.compile, "Record a step once, then replay it");
  app.add_flag("--end", o.end, "End with the first error, instead of going on from the newest checkpoint");
  app.add_flag("--forget-random", o.forget_random, "A mistake on purpose: other random numbers after each start");
  CLI11_PARSE(app, argc, argv);
  const auto failed = [](const char* type, const std::exception& e, int status) {
    std::fprintf(stderr, "%s: %s\n", type, e.what());
    return status;
  };
  try {
    return learn(o);
  } catch (const OutOfMemoryError& e) {
    return failed("OutOfMemoryError", e, 1);
  } catch (const RuntimeError& e) {
    return failed("RuntimeError", e, 1);
  } catch (const std::bad_alloc& e) {
    return failed("std::bad_alloc", e, 1);
  } catch (const ValueError& e) {  // nothing here is the caller's mistake
    return failed("ValueError", e, 3);
  } catch (const std::exception& e) {
    return failed("untyped", e, 3);
  }
}
