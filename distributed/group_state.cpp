// The thread of a group: its queue, its errors, its flight recorder. The collectives themselves stand in collectives.cpp.
#include "group_state.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>

#include "../compile/custom_call.h"
#include "../core/modes.h"
#include "../core/profiler.h"
#include "../core/recorder.h"
#include "nccl.h"
#include "socket.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr size_t kFlights = 1000;
constexpr const char* kNames[] = {"all_reduce", "broadcast", "reduce",  "all_gather", "reduce_scatter",
                                  "all_to_all", "barrier",   "message", "compare"};
constexpr const char* kReductions[] = {"sum", "mean", "max", "min", "product"};

const char* name_of(Collective op) { return kNames[int(op)]; }
bool reduces(Collective op) {
  return op == Collective::AllReduce || op == Collective::Reduce || op == Collective::ReduceScatter;
}

}  // namespace

std::string text_of(const Signature& s) {
  std::string text = name_of(s.op);
  if (reduces(s.op)) text += tapir::format("({})", kReductions[s.reduce]);
  if (s.root >= 0) text += tapir::format("(root {})", s.root);
  text += tapir::format(" #{}", s.sequence);
  return s.count >= 0 ? text + tapir::format(" of {} x {}", s.count, s.dtype) : text + tapir::format(" of {}", s.dtype);
}

bool Exchange::wait(double deadline) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, std::chrono::duration<double>(std::max(deadline - now(), 0.0)),
                          [this] { return left == 0 || failure; });
}
void Exchange::done(int peer) {
  std::lock_guard lock(mutex);
  for (int& p : waits_for)
    if (p == peer) {
      p = -1;
      break;
    }
  if (--left == 0) changed.notify_all();
}
void Exchange::fail(const Failure& why) {
  std::lock_guard lock(mutex);
  if (left > 0 && !failure) failure = why;
  changed.notify_all();
}

std::vector<std::string> meet(Store& store, const TransportOptions& o, const std::string& mine) {
  const double deadline = now() + o.init_timeout;
  const auto key = [&](int rank) { return tapir::format("{}at/{}", o.prefix, rank); };
  const std::string over = o.prefix + "gave up";
  store.set(key(o.rank), mine);
  check_runtime(!store.has(over),
                "[init_process_group] expected rank {} to come in time, {} s; the others have given up", o.rank,
                o.init_timeout);
  std::vector<std::string> texts(static_cast<size_t>(o.size));
  std::string missing, came;
  for (int r = 0; r < o.size; ++r) {
    const double left = deadline - now();
    if (left > 0) try {
        texts[size_t(r)] = store.get(key(r), left);
      } catch (const RuntimeError&) {
        if (now() < deadline) throw;
      }
    else if (store.has(key(r))) texts[size_t(r)] = store.get(key(r));
    if (texts[size_t(r)].empty()) {  // the first verdict is everybody's: nobody waits longer, nobody comes any more
      store.set(over, "1");
      store.set(key(r), "");
    }
    std::string& list = texts[size_t(r)].empty() ? missing : came;
    list += (list.empty() ? "" : ", ") + std::to_string(r);
  }
  if (!missing.empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the store may go with us: let others read
  check_runtime(missing.empty(), "[init_process_group] expected {} ranks within {} s, missing: {}; came: {}", o.size,
                o.init_timeout, missing, came);
  return texts;
}

void WorkState::complete(std::string why) {
  std::lock_guard lock(mutex);
  done = true;
  error = std::move(why);
  changed.notify_all();
}

void retain(WorkState* work) { work->refs.fetch_add(1); }
void release(WorkState* work) {
  if (work->refs.fetch_sub(1) == 1) delete work;
}
bool Work::is_completed() const {
  if (!state_) return true;
  std::lock_guard lock(state_->mutex);
  return state_->done || (state_->exchange && state_->exchange->finished());
}

/// The ranks whose messages are not there, once each.
static std::string missing_of(Exchange& e) {
  std::lock_guard lock(e.mutex);
  std::vector<int> ranks;
  for (const int p : e.waits_for)
    if (p >= 0) ranks.push_back(p);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text;
  for (const int p : ranks) text += (text.empty() ? "" : ", ") + std::to_string(p);
  return text;
}

/// Why it did not succeed; empty when it did.
static Failure outcome(Exchange& e, double deadline, double timeout) {
  if (!e.wait(deadline)) return timed_out(timeout, "; missing ranks: " + missing_of(e));
  std::lock_guard lock(e.mutex);
  return e.failure;
}

void Work::wait() const {
  if (!state_) return;
  WorkState& s = *state_;
  std::unique_lock lock(s.mutex);
  if (s.exchange && !s.done) {
    if (const Failure why = outcome(*s.exchange, s.deadline, s.group.state().options.timeout))
      s.error = s.group.state().fail_with(text_of(s.exchange->signature), why);
    s.done = true;
  }
  s.changed.wait(lock, [&s] { return s.done; });
  if (!s.error.empty()) throw RuntimeError(s.error);
  if (const auto finish = std::exchange(s.finish, nullptr)) finish();
}

GroupState::GroupState() = default;

bool GroupState::runs_on_device(const Tensor& x) const { return nccl && x.device().is_cuda() && Nccl::has(x.dtype()); }

void GroupState::open() {
  born_ = now();
  if (size > 1) {
    const TransportOptions t{.rank = int(rank),
                             .size = int(size),
                             .prefix = prefix,
                             .address = address,
                             .secret = launch.secret,
                             .init_timeout = options.init_timeout};
    transport = options.backend == "gloo" ? make_gloo(*store, t) : make_tcp(*store, t);
  }
  thread_ = std::thread([this] { run(); });
  if (options.backend != "nccl") return;
  // In the group's thread, whose CUDA device NCCL takes.
  auto opened = std::make_shared<std::promise<void>>();
  {
    std::lock_guard lock(mutex_);
    open_nccl_ = [this, opened] {
      try {
        const TransportOptions t{.rank = int(rank),
                                 .size = int(size),
                                 .prefix = prefix,
                                 .address = address,
                                 .secret = {},
                                 .init_timeout = options.init_timeout};
        const int device = int(options.device.value_or(launch.local_rank % cuda::device_count()));
        nccl = std::make_unique<Nccl>(store.get(), t, device, transport.get());
        opened->set_value();
      } catch (...) {
        opened->set_exception(std::current_exception());
      }
    };
  }
  changed_.notify_one();
  opened->get_future().get();
}

GroupState::~GroupState() {
  bool linger;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    linger = server && !failed_.empty();
    if (failed_.empty()) failed_ = "the group was destroyed";
  }
  changed_.notify_all();
  if (transport) transport->abort("the group was destroyed");
  if (thread_.joinable()) thread_.join();
  if (linger)
    std::this_thread::sleep_for(std::chrono::milliseconds(400));  // others ask the store here for the first error
}

// Note [Collectives in a program]
// A collective is two custom calls of a program: one puts it in the group's queue, and one stands where somebody waits for it, so that a replay
// computes meanwhile what eager code does. A collective that nobody waits for inside is waited for at once, as all are in the recording.
Work GroupState::record(Call call, std::function<void()> finish, bool async_op) {
  struct Running {
    Work work;
    bool waited = false;
  };
  auto running = std::make_shared<Running>();
  const Tensor out = call.out;
  std::vector<Tensor> reads, writes;
  if (call.in.defined()) reads.push_back(std::exchange(call.in, {}));
  if (call.out.defined()) writes.push_back(std::exchange(call.out, {}));
  const bool in_place = !reads.empty() && reads[0].is_same(out);
  call.ready = {};
  custom_call(name_of(call.signature.op), reads, writes,
              [id = id, call = std::move(call), running, in_place](const auto& reads, const auto& writes) {
                Call now = call;
                if (!writes.empty()) now.out = writes[0];
                if (!reads.empty()) now.in = in_place ? now.out : reads[0];
                mark_ready(now);
                running->work.wait();  // a replay ended between the two
                running->work = find_group(id).state().submit(std::move(now), nullptr, true);
                if (!running->waited) std::exchange(running->work, {}).wait();
              });
  auto* state = new WorkState;
  Work work(state);
  state->done = true;
  state->finish = [running, writes, finish = std::move(finish)] {
    running->waited |= modes.recorder != nullptr;
    custom_call("wait", writes, writes,
                [running](const auto&, const auto&) { std::exchange(running->work, {}).wait(); });
    if (finish) finish();
  };
  if (!async_op) work.wait();
  return work;
}

Work GroupState::submit(Call call, std::function<void()> finish, bool async_op) {
  if (modes.recorder) return record(std::move(call), std::move(finish), async_op);
  auto* state = new WorkState;
  Work work(state);
  state->finish = std::move(finish);
  {
    std::lock_guard lock(mutex_);
    call.signature.sequence = ++sequence_;
    if (!failed_.empty()) {
      state->error = tapir::format("[{}] {}: the group has failed before: {}", name_of(call.signature.op),
                                   text_of(call.signature), failed_);
      state->done = true;
    } else {
      flights_.push_back({.signature = call.signature, .shape = call.shape, .queued = now() - born_});
      if (flights_.size() > kFlights) flights_.pop_front(), ++first_flight_;
      state->refs.fetch_add(1);
      queue_.push_back({std::move(call), state, first_flight_ + flights_.size() - 1});
    }
  }
  changed_.notify_one();
  if (!async_op) work.wait();
  return work;
}

Work GroupState::message(const Signature& s, uint32_t tag, bool sends, const Tensor& x, int64_t peer,
                         std::function<void()> finish, bool async_op) {
  if (modes.recorder)
    modes.recorder->host_acts(
        "[ProcessGroup] expected no message (send, recv) while a program is recorded: a replay would leave it out. "
        "Call "
        "it between compiled steps");
  auto* state = new WorkState;
  Work work(state);
  if (const std::string before = failed(); !before.empty()) {
    state->error = tapir::format("[{}] {}: the group has failed before: {}", name_of(s.op), text_of(s), before);
    state->done = true;
  } else {
    const Piece piece{int(peer), x.data_ptr(), x.numel() * size_of(x.dtype())};
    const std::span<const Piece> one(&piece, 1), none;
    state->exchange = transport->start(uint64_t(tag) << 2 | 1, s, sends ? one : none, sends ? none : one);
    state->exchange->memory = x;  // the work may be dropped
    state->finish = std::move(finish);
    refs.fetch_add(1);
    state->group = ProcessGroup(this);
    state->deadline = now() + options.timeout;
  }
  if (!async_op) work.wait();
  return work;
}

std::string GroupState::failed() {
  std::lock_guard lock(mutex_);
  return failed_;
}

std::string GroupState::fail_with(const std::string& what, const Failure& why) {
  std::string text = tapir::format("[{}] {} on rank {} of {}: {}", what.substr(0, what.find_first_of("( ")), what, rank,
                                   size, why.text);
  if (!failed().empty()) return text;
  if (store) try {
      store->set_timeout(0.4);
      const std::string key = prefix + "failure";
      std::string first;
      if (why.kind == Failure::Kind::PeerGone) try {  // the peer may have left its reason there
          first = store->get(key, 0.2);
        } catch (const RuntimeError&) {}
      else if (store->has(key)) first = store->get(key, 0.1);
      if (first.empty()) store->set(key, text);
      else text += "; first error: " + first;
    } catch (const RuntimeError&) {  // the store went with its rank: our own words must do
    }
  if (why.kind == Failure::Kind::Timeout) dump_flights();
  {
    std::lock_guard lock(mutex_);
    if (failed_.empty()) failed_ = text;
  }
  if (transport) transport->abort(text);
  return text;
}

void GroupState::run() {
  modes.grad = false;
  modes.threads = 1;
  pthread_setname_np(pthread_self(), "tapir-group");
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || !queue_.empty() || open_nccl_; });
    if (const auto open_nccl = std::exchange(open_nccl_, nullptr)) {
      lock.unlock();
      open_nccl();
      continue;
    }
    if (queue_.empty()) return nccl.reset();
    Task task = std::move(queue_.front());
    queue_.pop_front();
    const std::string before = failed_;
    const auto mark = [&](const char* state, double Flight::*time) {
      if (task.flight < first_flight_) return;
      Flight& f = flights_[task.flight - first_flight_];
      f.state = state, f.*time = now() - born_;
    };
    mark("running", &Flight::began);
    lock.unlock();
    std::string error;
    if (before.empty()) {
      const profiler::Range range(profiler::is_on() ? text_of(task.call.signature) : std::string());
      error = execute_checked(task);
    } else
      error = tapir::format("[{}] {}: the group has failed before: {}", name_of(task.call.signature.op),
                            text_of(task.call.signature), before);
    lock.lock();
    mark(error.empty() ? "done" : "failed", &Flight::ended);
    lock.unlock();
    task.call = {};
    task.work->complete(std::move(error));
    Work(task.work);  // adopts our share, and lets it go
  }
}

namespace {
/// The group has failed; on its way to execute_checked().
struct ExchangeError {
  std::string text;
};
/// Found before anything was changed, by all ranks alike: the group goes on.
struct CompareError {
  std::string why;
};
}  // namespace

std::string GroupState::execute_checked(Task& task) {
  const Signature& s = task.call.signature;
  current_ = text_of(s) + tapir::format(", shape {}", task.call.shape);
  try {
    if (debug) compare(task.call);
    const Call& c = task.call;
    if (runs_on_device(c.in.defined() ? c.in : c.out)) execute_on_device(c);
    else execute(task.call);
    return {};
  } catch (const CompareError& e) {
    return tapir::format("[{}] {} on rank {} of {}: {}", name_of(s.op), current_, rank, size, e.why);
  } catch (const ExchangeError& e) {
    return e.text;
  } catch (const std::exception& e) {  // memory, say
    return fail_with(current_, {e.what()});
  }
}

void GroupState::exchange(const Signature& s, std::span<const Piece> sends, std::span<const Piece> receives,
                          uint64_t channel) {
  if (!transport) return;
  const double deadline = now() + options.timeout;
  const auto e = transport->start(channel, s, sends, receives);
  if (const Failure why = outcome(*e, deadline, options.timeout))
    throw ExchangeError{fail_with(current_, why)};  // ends the exchange before its memory goes
}

void GroupState::execute_on_device(const Call& call) {
  bool fatal = false;
  Failure why = nccl->run(call, options.timeout, fatal);
  if (!why) return;
  if (!fatal) throw CompareError{why.text};
  if (why.kind == Failure::Kind::Timeout) why.text += who_is_late();
  nccl->abort(why.text);
  throw ExchangeError{fail_with(current_, why)};
}

/// NCCL does not say for whom it waited: who has not given up either within a second is missing.
std::string GroupState::who_is_late() {
  if (!store) return {};
  const auto key = [&](int64_t r) { return tapir::format("{}late/{}", prefix, r); };
  std::string missing;
  try {
    store->set(key(rank), "1");
    const double until = now() + 1;
    for (int64_t r = 0; r < size; ++r) try {
        store->get(key(r), std::max(until - now(), 0.0));
      } catch (const RuntimeError&) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(r);
      }
  } catch (const RuntimeError&) {  // no store, no names
  }
  return "; missing ranks: " + missing;
}

/// Debug mode: every rank tells all what it is about to do; all see the same texts and come to the same verdict.
void GroupState::compare(const Call& call) {
  constexpr size_t kText = 256;
  std::string mine = text_of(call.signature);
  if (call.signature.op != Collective::AllToAll) mine += tapir::format(", shape {}", call.shape);
  mine.resize(kText);
  std::vector<std::string> texts(static_cast<size_t>(size), std::string(kText, '\0'));
  texts[size_t(rank)] = mine;
  std::vector<Piece> sends, receives;
  for (int r = 0; r < size; ++r)
    if (r != rank) {
      sends.push_back({r, mine.data(), kText});
      receives.push_back({r, texts[size_t(r)].data(), kText});
    }
  exchange({.op = Collective::Compare, .count = kText}, sends, receives, 2);
  bool same = true;
  std::string all;
  for (int r = 0; r < size; ++r) {
    same &= texts[size_t(r)] == texts[0];
    all += tapir::format("{}rank {}: {}", r ? "; " : "", r, texts[size_t(r)].c_str());
  }
  if (!same) throw CompareError{"ranks do different things: " + all};
}

std::string GroupState::flight_text(size_t last) {
  std::lock_guard lock(mutex_);
  std::string out;
  for (size_t i = flights_.size() > last ? flights_.size() - last : 0; i < flights_.size(); ++i) {
    const Flight& f = flights_[i];
    char times[96];
    std::snprintf(times, sizeof times, "queued %.4f began %.4f ended %.4f", f.queued, f.began, f.ended);
    out += tapir::format("{}, shape {}: {} {}\n", text_of(f.signature), f.shape, f.state, times);
  }
  return out;
}

void GroupState::dump_flights() {
  const char* folder = std::getenv("TAPIR_FLIGHT_DIR");
  if (!folder) {
    const std::string text = flight_text(10);
    std::fprintf(stderr, "tapir: rank %d timed out; its last collectives (all with TAPIR_FLIGHT_DIR):\n%s", int(rank),
                 text.c_str());
    return;
  }
  const std::string path = tapir::format("{}/flight-{}.txt", folder, rank), text = flight_text(kFlights);
  if (std::FILE* f = std::fopen(path.c_str(), "w")) {
    std::fwrite(text.data(), 1, text.size(), f);
    std::fclose(f);
  }
}

}  // namespace tapir::inline v0::distributed
