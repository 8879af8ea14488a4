// The thread of a group: its queue, its errors, its flight recorder. The collectives themselves stand in collectives.cpp.
#include "group_state.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../core/held_signals.h"
#include "../core/modes.h"
#include "../core/profiler.h"
#include "../core/recorder.h"
#include "door.h"
#include "nccl.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr size_t kFlights = 1000;
constexpr const char* kNames[] = {"all_reduce", "broadcast", "reduce",  "all_gather", "reduce_scatter",
                                  "all_to_all", "barrier",   "message", "compare"};
constexpr const char* kReductions[] = {"sum", "mean", "max", "min", "product"};

bool reduces(Collective op) {
  return op == Collective::AllReduce || op == Collective::Reduce || op == Collective::ReduceScatter;
}
std::string words_of(const Call& call) { return text_of(call.signature) + tapir::format(", shape {}", call.shape); }

}  // namespace

const char* name_of(Collective op) { return kNames[int(op)]; }
static std::string op_of(const std::string& words) { return words.substr(0, words.find_first_of("( ")); }
Failure has_failed(const std::string& words, const Failure& why) {
  return {tapir::format("[{}] {}: the group has failed before: {}", op_of(words), words, why.text), why.kind};
}
/// "recv of 3 x float32": on its way it is a message for both ends.
static std::string words_of(const Signature& message, bool sends) {
  return (sends ? "send" : "recv") + text_of(message).substr(std::strlen(name_of(message.op)));
}
void throw_failure(const Failure& why) {
  if (why.kind == Failure::Kind::Other) throw RuntimeError(why.text);
  throw PeerError(why.text, why.kind == Failure::Kind::Timeout);
}
std::string text_of(const Signature& s) {
  std::string text = name_of(s.op);
  if (s.op == Collective::Send) return text + tapir::format(" of {} x {}", s.count, s.dtype);
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

void WorkState::complete(Failure why) {
  std::lock_guard lock(mutex);
  done = true;
  if (!error) error = std::move(why);  // one on the device may have come before
  changed.notify_all();
}

void WorkState::until_done() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return done; });
}

void WorkState::let_go() {
  std::lock_guard lock(mutex);
  held = false;
  changed.notify_all();
}
void WorkState::until_let_go() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return !held; });
}

void retain(WorkState* work) { work->refs.fetch_add(1); }
void release(WorkState* work) {
  if (work->refs.fetch_sub(1) == 1) delete work;
}
bool Work::is_completed() const {
  if (!state_) return true;
  if (state_->process != getpid()) {  // a thread of the other process may have had the mutex
    if (!state_->done) check_process("is_completed", state_->process);
    return true;
  }
  std::lock_guard lock(state_->mutex);
  if (state_->on_device && !state_->error) return state_->on_device->query();
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
  if (s.process != getpid() && !s.done) check_process("wait", s.process);
  if (s.exchange) s.exchange->wait(s.deadline);  // before the lock: others may ask meanwhile
  std::unique_lock lock(s.mutex);
  if (s.exchange && !s.done) {
    if (const Failure why = outcome(*s.exchange, s.deadline, s.group.state().options.timeout))
      s.error = s.group.state().fail_with(words_of(s.exchange->signature, s.sends), why);
    s.done = true;
  }
  s.changed.wait(lock, [&s] { return s.done; });
  if (s.error) throw_failure(s.error);
  if (s.on_device) cuda::current_stream(s.on_device->device()).wait_event(*s.on_device);
  const auto finish = std::exchange(s.finish, nullptr);
  if (!finish) return;
  finish();
  if (s.on_device)  // who waits later, waits for that too
    s.on_device = std::make_shared<cuda::Event>(cuda::current_stream(s.on_device->device()).record_event());
}

GroupState::GroupState() = default;

bool GroupState::runs_on_device(const Tensor& x) const { return nccl && x.device().is_cuda() && Nccl::has(x.dtype()); }
bool GroupState::runs_on_device(const Call& call) const {
  const Tensor& x = call.in.defined() ? call.in : call.out;
  return x.defined() && runs_on_device(x);
}

void GroupState::open() {
  born_ = now();
  if (size > 1) {
    check_reach("init_process_group", address);
    const TransportOptions t{.rank = int(rank),
                             .size = int(size),
                             .prefix = prefix,
                             .terms = tapir::format("{}, backend {}, debug {}", members, options.backend, int(debug)),
                             .address = address,
                             .secret = launch.secret,
                             .init_timeout = options.init_timeout,
                             .silence = silence};
    transport = options.backend == "gloo" ? make_gloo(*store, t) : make_tcp(*store, t);
  }
  thread_ = start_thread("init_process_group", [this] { run(); });
  if (options.backend != "nccl") return;
  std::promise<void> opened;
  auto ready = opened.get_future();
  watch_ =
      start_thread("init_process_group", [this, opened = std::move(opened)]() mutable { watch(std::move(opened)); });
  ready.get();
}

void GroupState::open_nccl() {
  const TransportOptions t{.rank = int(rank),
                           .size = int(size),
                           .prefix = prefix,
                           .address = address,
                           .secret = {},
                           .init_timeout = options.init_timeout};
  const int device = int(options.device.value_or(launch.local_rank % cuda::device_count()));
  nccl = std::make_unique<Nccl>(store.get(), t, device, transport.get());
}

GroupState::~GroupState() {
  bool linger;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    linger = server && failed_;
    if (!failed_) failed_ = {"the group was destroyed"};
  }
  changed_.notify_all(), flew_.notify_all();
  if (watch_.joinable()) watch_.join();  // what is on its way on the device is waited for
  if (transport) transport->abort("the group was destroyed");
  if (thread_.joinable()) thread_.join();
  if (linger)
    std::this_thread::sleep_for(std::chrono::milliseconds(400));  // others ask the store here for the first error
}

Work GroupState::submit(Call call, std::function<void()> finish, bool async_op) {
  check_process(name_of(call.signature.op), process);
  if (modes.recorder) return record(std::move(call), std::move(finish), async_op);
  auto* state = new WorkState;
  Work work(state);
  state->finish = std::move(finish);
  std::unique_lock lock(mutex_);
  call.signature.sequence = ++sequence_;
  if (failed_) {
    state->error = has_failed(call.signature, failed_);
    state->done = true;
    lock.unlock();
  } else {
    const uint64_t flight = log(call);
    Task task{std::move(call), state, flight};
    state->refs.fetch_add(1);
    const bool on_device = runs_on_device(task.call);
    if (on_device && !debug) {
      lock.unlock();
      run(std::move(task), {});
    } else {
      queue_.push_back(std::move(task));
      lock.unlock();
      changed_.notify_one();
      if (on_device) state->until_done();  // it is begun in its place among the messages that compare calls
    }
  }
  if (!async_op) work.wait();
  return work;
}

Work GroupState::message(const Signature& s, uint32_t tag, bool sends, const Tensor& x, int64_t peer,
                         std::function<void()> finish, bool async_op) {
  check_process(sends ? "send" : "recv", process);
  if (modes.recorder)
    modes.recorder->host_acts(
        "[ProcessGroup] expected no message (send, recv) while a program is recorded: a replay would leave it out. "
        "Call "
        "it between compiled steps");
  auto* state = new WorkState;
  Work work(state);
  if (const Failure before = failed()) {
    state->error = has_failed(words_of(s, sends), before);
    state->done = true;
  } else {
    const Piece piece{int(peer), x.data_ptr(), x.numel() * size_of(x.dtype())};
    const std::span<const Piece> one(&piece, 1), none;
    state->exchange = transport->start(uint64_t(tag) << 2 | 1, s, sends ? one : none, sends ? none : one);
    state->exchange->memory = x;  // the work may be dropped
    state->finish = std::move(finish), state->sends = sends;
    refs.fetch_add(1);
    state->group = ProcessGroup(this);
    state->deadline = now() + options.timeout;
  }
  if (!async_op) work.wait();
  return work;
}

Failure GroupState::failed() {
  std::lock_guard lock(mutex_);
  return failed_;
}

void GroupState::settle() {
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(100))) {
    const std::lock_guard lock(mutex_);
    if (flying_.empty()) return;
  }
}

Failure GroupState::fail_with(const std::string& what, const Failure& why) {
  std::string text = tapir::format("[{}] {} on rank {} of {}: {}", op_of(what), what, rank, size, why.text);
  if (const Failure first = failed()) return {text, first.kind};  // of which this one comes
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
    if (!failed_) failed_ = {text, why.kind};
  }
  if (transport) transport->abort(text);
  return {text, why.kind};
}

uint64_t GroupState::log(const Call& call) {
  flights_.push_back({.signature = call.signature, .shape = call.shape, .queued = now() - born_});
  if (flights_.size() > kFlights) flights_.pop_front(), ++first_flight_;
  return first_flight_ + flights_.size() - 1;
}

void GroupState::mark(uint64_t flight, const char* state, double Flight::*time) {
  if (flight < first_flight_) return;
  Flight& f = flights_[flight - first_flight_];
  f.state = state, f.*time = now() - born_;
}

void GroupState::run() {
  modes.grad = false;
  modes.threads = 1;
  pthread_setname_np(pthread_self(), "tapir-group");
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    const Failure before = failed_;
    lock.unlock();
    current_ = words_of(task.call);
    run(std::move(task), before);
  }
}

/// In the thread of the group; where a device does it, in the thread that calls.
void GroupState::run(Task task, const Failure& failed_before) {
  {
    const std::lock_guard lock(mutex_);
    mark(task.flight, "running", &Flight::began);
  }
  Failure error;
  if (!failed_before) {
    const profiler::Range range(profiler::is_on() ? text_of(task.call.signature) : std::string());
    error = execute_checked(task);
  } else error = has_failed(task.call.signature, failed_before);
  if (!runs_on_device(task.call) || error) {
    const std::lock_guard lock(mutex_);
    mark(task.flight, error ? "failed" : "done", &Flight::ended);
  }
  task.call = {};
  task.work->complete(std::move(error));
  Work(task.work);  // adopts our share, and lets it go
}

/// Opens NCCL, then asks after what is on its way, in its order, and lets go of it when it is over.
void GroupState::watch(std::promise<void> opened) {
  modes.grad = false;
  pthread_setname_np(pthread_self(), "tapir-nccl");
  try {
    open_nccl();
  } catch (...) {
    return opened.set_exception(std::current_exception());
  }
  opened.set_value();
  for (auto pause = std::chrono::microseconds(20);;) {
    std::unique_lock lock(mutex_);
    flew_.wait(lock, [this] { return stop_ || !flying_.empty(); });
    if (flying_.empty()) break;
    Flying& first = flying_.front();
    lock.unlock();
    Failure why;
    bool over = false;
    try {
      over = nccl->is_over(first.started, why);
    } catch (const std::exception& e) {  // of the device
      why = {e.what()};
    }
    if (why) fail_flying(fail_on_device(words_of(first.task.call), why));
    if (over) {
      Flying ended;  // outside of the lock: its memory goes
      lock.lock();
      ended = std::move(flying_.front());
      flying_.pop_front();
      mark(ended.task.flight, "done", &Flight::ended);
      lock.unlock();
      ended.task.call = {};
      ended.task.work->let_go();
      Work(ended.task.work);
      pause = std::chrono::microseconds(20);
    } else if (!why) {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
  }
  nccl.reset();
}

/// The first of them has this error, the others come behind it.
void GroupState::fail_flying(const Failure& first) {
  std::deque<Flying> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(flying_);
    for (const Flying& f : all) mark(f.task.flight, "failed", &Flight::ended);
  }
  for (Flying& f : all) {
    f.task.work->complete(&f == &all.front() ? first : has_failed(f.task.call.signature, first));
    f.task.call = {};
    f.task.work->let_go();
    Work(f.task.work);
  }
}

namespace {
/// The group has failed; on its way to execute_checked().
struct ExchangeError {
  Failure why;
};
/// Found before anything was changed, by all ranks alike: the group goes on.
struct CompareError {
  std::string why;
};
}  // namespace

Failure GroupState::execute_checked(Task& task) {
  const std::string what = words_of(task.call);
  try {
    if (debug) compare(task.call);
    if (runs_on_device(task.call)) start_on_device(task);
    else execute(task.call);
    return {};
  } catch (const CompareError& e) {
    return {tapir::format("[{}] {} on rank {} of {}: {}", name_of(task.call.signature.op), what, rank, size, e.why)};
  } catch (const ExchangeError& e) {
    return e.why;
  } catch (const std::exception& e) {  // memory, say
    return fail_with(what, {e.what()});
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

void GroupState::start_on_device(const Task& task) {
  bool fatal = false;
  Started started;
  if (const Failure why = nccl->start(task.call, options.timeout, fatal, started)) {
    if (!fatal) throw CompareError{why.text};
    throw ExchangeError{fail_on_device(words_of(task.call), why)};
  }
  task.work->on_device = started.done, task.work->held = true;
  task.work->refs.fetch_add(1);
  {
    const std::lock_guard lock(mutex_);
    flying_.push_back({task, std::move(started)});
  }
  flew_.notify_one();
}

Failure GroupState::fail_on_device(const std::string& what, Failure why) {
  if (why.kind == Failure::Kind::Timeout) why.text += who_is_late();
  nccl->abort(why.text);
  return fail_with(what, why);
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
  const HeldSignals held;
  if (std::FILE* f = std::fopen(path.c_str(), "w")) {
    std::fwrite(text.data(), 1, text.size(), f);
    std::fclose(f);
  }
}

}  // namespace tapir::inline v0::distributed
