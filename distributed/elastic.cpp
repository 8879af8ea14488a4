#include "elastic.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "../core/generator.h"
#include "../core/modes.h"
#include "../core/recorder.h"
#include "group_state.h"
#include "once.h"
#include "plan.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr double kLateGrace = 10;  // seconds for others, when this rank has waited for the timeout already

/// A state of its own, on the host: what state_dict() gives shares memory with its object.
StateDict copy_of(const StateDict& state) {
  NoGrad guard;
  StateDict out;
  for (const auto& [name, t] : state)
    if (t.defined()) out.append(name, t.device() == kCPU ? t.detach().clone() : t.detach().cpu());
  return out;
}

/// This process in a job of tapir-run that goes on without ranks that are gone: Note [Plans].
class Seat {
 public:
  Seat(const char* text, const ProcessGroupOptions& options)
      : options_(GroupState::checked(options)), place_(launch_info(options.launch)) {
    static bool taken = false;
    check(!std::exchange(taken, true), "[Elastic] expected one run() in a process under tapir-run, got a second one");
    check(!is_initialized(), "[Elastic] expected run() to make the job's group, got one from before");
    int64_t generation = 0;
    std::istringstream in(text);
    in >> id_ >> generation >> silence_;
    check(bool(in), "[Elastic] expected TAPIR_ELASTIC of tapir-run, got \"{}\"", text);
    const double wait = options_.init_timeout;
    store_ = std::make_unique<Store>(place_.address, place_.port,
                                     StoreOptions{.secret = place_.secret, .timeout = wait, .patience = wait});
    tell(*store_, tapir::format("elastic {}", id_));
    plan_ = newest_plan(*store_, generation, wait);
  }

  /// The group of the newest plan. Whatever keeps a rank from it, the others may come to it without.
  ProcessGroup meet() {
    place_.rank = plan_.rank_of(id_), place_.world_size = int64_t(plan_.members.size());
    place_.restart_count = plan_.generation;
    check_runtime(place_.rank >= 0, "[Elastic] expected a place for this process, got a job that goes on without it");
    try {
      return GroupState::join(options_, place_, silence_);
    } catch (const PeerError&) {
      throw;
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const RuntimeError& e) {
      throw PeerError(e.what(), false);
    }
  }

  /// Waits for a plan without those that are gone: true where the training goes on, false where it is over, the error where this job ends.
  bool go_on(const PeerError& error) {
    const double most = std::max(options_.timeout, options_.init_timeout), more = 60;  // for the launcher
    const double others = error.late ? std::min(kLateGrace, options_.timeout) : most;
    tell(*store_, tapir::format("ready {} {} {}", id_, plan_.generation, others));
    plan_ = newest_plan(*store_, plan_.generation + 1, most + more);
    if (plan_.status >= 0 || plan_.rank_of(id_) < 0) throw error;
    return !plan_.finished;
  }

  /// Before a rank leaves its group, others may know that one is gone.
  void check_all_there() {
    if (is_meeting_over(*store_, meeting_prefix(plan_.generation)))
      throw PeerError("[Elastic] expected all ranks to be there, got word of one that is gone", false);
  }

  void done() { tell(*store_, tapir::format("done {} {}", id_, plan_.generation)); }

 private:
  ProcessGroupOptions options_;
  LaunchInfo place_;
  int64_t id_ = 0;
  double silence_ = 0;
  std::unique_ptr<Store> store_;
  Plan plan_;
};

}  // namespace

struct ElasticState {
  Elastic::Source source;
  ProcessGroupOptions options;
  std::unique_ptr<Seat> seat = {};  // none: a rank that is gone ends all
  ProcessGroup group = {};
  StateDict committed = {};
  int64_t step = 0;
  Generator random{};

  void keep(const StateDict& state, int64_t at) {
    committed = copy_of(state);
    step = at, random = default_generator();
  }
  void share();
};

/// The newest commit of all ranks becomes everybody's. A rank keeps its seed: what it takes over is the place in its random numbers.
void ElasticState::share() {
  const int64_t n = group.size(), mine[] = {step, int64_t(random.offset())};
  const Tensor all = empty({2 * n}, {.dtype = kInt64});
  group.all_gather(all, tensor_from_host(mine, kInt64, {2}, {}));
  const std::vector<int64_t> numbers = all.to_vector<int64_t>();
  int64_t newest = 0;
  for (int64_t r = 1; r < n; ++r)
    if (numbers[size_t(2 * r)] > numbers[size_t(2 * newest)]) newest = r;
  const StateDict state = broadcast_state_dict(committed, group, newest);
  const uint64_t seed = random.seed();
  {
    NoGrad guard;
    source.load(source.object, copy_of(state));
  }
  default_generator().set_state(seed, uint64_t(numbers[size_t(2 * newest + 1)]));
  keep(state, numbers[size_t(2 * newest)]);
}

Elastic::Elastic(const Source& source, const ProcessGroupOptions& options)
    : state_(new ElasticState{source, options}) {}
Elastic::~Elastic() { delete state_; }

void Elastic::commit(int64_t step) {
  check(step >= 0, "[Elastic] expected a step from 0 on, got {}", step);
  if (modes.recorder)
    modes.recorder->host_acts("[Elastic] expected commit() outside of compile(): a replay would leave it out");
  ElasticState& s = *state_;
  if (s.group) {
    GroupState& group = GroupState::of(s.group);
    check_process("Elastic", group.process);
    group.settle();  // weights may come of a collective that is to fail yet
    if (const Failure why = group.failed()) throw_failure(why);
  }
  s.keep(s.source.save(s.source.object), step);
  if (s.seat && s.group) s.seat->check_all_there();
}

void Elastic::run_body(const Body& body, int64_t step) {
  ElasticState& s = *state_;
  commit(step);
  const char* place = std::getenv("TAPIR_ELASTIC");
  if (place && !s.options.launch.rank) s.seat = std::make_unique<Seat>(place, s.options);
  Seat* const seat = s.seat.get();
  struct Leave {  // whichever way
    ProcessGroup& group;
    ~Leave() {
      group = {};
      destroy_process_group();
    }
  };
  for (bool goes_on = true; goes_on;) {
    std::unique_ptr<PeerError> error;
    try {
      const Leave leave{s.group};
      s.group = seat ? seat->meet() : init_process_group(s.options);
      s.share();
      body.call(body.object, s.group, s.step);
      s.group.barrier();
      if (seat) seat->done();
      return;
    } catch (const PeerError& e) {
      if (!seat) throw;
      error = std::make_unique<PeerError>(e);
    }
    goes_on = seat->go_on(*error);
  }
}

}  // namespace tapir::inline v0::distributed
