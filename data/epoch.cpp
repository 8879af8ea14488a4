#include "epoch.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "../core/checks.h"
#include "../core/cuda.h"
#include "../core/generator.h"
#include "../core/modes.h"
#include "../core/profiler.h"
#include "../core/state_dict.h"
#include "../ops/cast.h"
#include "../ops/pinned.h"
#include "dataset.h"

namespace tapir::inline v0::data::detail {

// Note [Loader]
// Batch b is made by whichever worker takes it, at most `window` batches ahead of the reader, and waits in slot b %
// window; so batches arrive in order and memory is bounded. Each sample's random numbers are seeded by (seed, epoch,
// index): who makes it does not matter. The state belongs to reader and workers alike: a worker that hangs in get() is
// left behind after half a second, and finds, when it comes back, that it was told to stop. What a worker throws
// crosses over as text, since it must name the sample. For a CUDA device the worker also queues the copies, on the device's copy
// stream, with an event behind them in the slot; the reader's stream waits for that event, and memory that the copy stream
// allocated is told of its use there. The page-locked source goes back to its cache, which waits for the copy by itself.
//
// An iterable dataset has S shards, each a sequence of its own. Turn t belongs to shard t % S: its next batch, or nothing once the shard has
// ended. So batches come from the shards in turn, whoever makes them; a shard is read by one worker at a time. Sample k of shard s
// has the number k S + s, which seeds its random numbers. A resumed epoch skips in each shard what its earlier turns have taken.

namespace {

using Clock = std::chrono::steady_clock;
struct Left {};  // thrown by SampleScope when the epoch was left

struct Failure {
  ErrorKind kind;
  std::string text;
};
struct Slot {
  bool ready = false;
  void* batch = nullptr;
  int64_t samples = 0;
  std::optional<cuda::Event> copied;
  std::optional<Failure> failure;
};
/// What a worker is at; read by a reader that has waited too long.
struct Work {
  std::atomic<int64_t> batch{-1}, index{-1};
};
/// Of an iterable dataset.
struct Shard {
  std::unique_ptr<SampleStream> stream;
  bool busy = false, ended = false, ended_for_reader = false;
};

}  // namespace

/// Nanoseconds.
struct LoaderCounters {
  std::atomic<int64_t> batches{0}, samples{0}, wait{0}, load{0}, collate{0}, copy{0};
};
Shared<LoaderCounters> new_counters() { return Shared<LoaderCounters>(std::in_place_type<LoaderCounters>); }
LoaderStats stats_of(const LoaderCounters& c) {
  return {c.batches,
          c.samples,
          double(c.wait) * 1e-9,
          double(c.load) * 1e-9,
          double(c.collate) * 1e-9,
          double(c.copy) * 1e-9};
}

static int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

struct EpochState {
  Shared<BatchSource> source;
  Shared<LoaderCounters> counters;
  LoaderOptions options;
  const bool deterministic = modes.deterministic;  // the reader's
  int64_t epoch = 0, dataset_size = 0, first = 0, batches = 0, window = 0;
  std::vector<int64_t> order;
  std::vector<Shard> shards;  // none: samples have indices

  std::mutex mutex;
  std::condition_variable work_left, batch_ready;
  std::atomic<bool> stop{false};
  int64_t next = 0, delivered = 0;  // batches taken by workers, and by the reader
  std::vector<Slot> slots;
  std::vector<Work> workers;  // one more than there are threads: the last is the calling thread's

  ~EpochState() {
    for (auto& slot : slots)
      if (slot.batch) source->drop(slot.batch);
  }
  std::span<const int64_t> indices_of(int64_t batch) const {
    const int64_t from = first + batch * options.batch_size;
    return std::span(order).subspan(size_t(from), size_t(std::min(options.batch_size, int64_t(order.size()) - from)));
  }
  int64_t num_shards() const { return int64_t(shards.size()); }
  Shard& shard_of(int64_t batch) { return shards[size_t((first + batch) % num_shards())]; }
  /// May the next batch be begun? Never once there are none.
  bool has_work() const {
    if (next >= batches || next >= delivered + window) return false;
    return shards.empty() || !shards[size_t((first + next) % num_shards())].busy;
  }
  /// "sample 7 of 100", "sample 3 of shard 1"
  std::string name_of(int64_t index) const {
    if (shards.empty()) return tapir::format("sample {} of {}", index, dataset_size);
    return tapir::format("sample {} of shard {}", index / num_shards(), index % num_shards());
  }
  bool in_caller(int64_t worker) const { return worker + 1 == int64_t(workers.size()); }
};

void SampleScope::begin(int64_t index) {
  if (state_.stop.load(std::memory_order_relaxed)) throw Left{};
  state_.workers[size_t(worker_)].index.store(index, std::memory_order_relaxed);
  default_generator().set_state(mix_seed(*state_.options.seed, uint64_t(state_.epoch), uint64_t(index)), 0);
}
void SampleScope::begin_collate() {
  collate_began = now();
  state_.workers[size_t(worker_)].index.store(-1, std::memory_order_relaxed);
}

namespace {

/// Where copies to that device are queued, for all loaders: streams live as long as the program.
const cuda::Stream& copy_stream(Device device) {
  static std::mutex mutex;
  static std::optional<cuda::Stream> streams[kMaxDevices];
  std::lock_guard lock(mutex);
  auto& stream = streams[device.index];
  if (!stream) stream.emplace(device.index);
  return *stream;
}

std::string list_of(std::span<const int64_t> indices) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(indices.size(), 8); ++i)
    (text += i ? ", " : "") += std::to_string(indices[i]);
  return text + (indices.size() > 8 ? ", ..." : "");
}

Failure describe(EpochState& state, int64_t worker, int64_t batch, ErrorKind kind, std::string_view what) {
  const int64_t index = state.workers[size_t(worker)].index.load(std::memory_order_relaxed),
                shards = state.num_shards();
  const std::string who = state.in_caller(worker) ? "the calling thread" : "worker " + std::to_string(worker);
  if (index >= 0)
    return {kind == ErrorKind::OutOfMemory ? kind : ErrorKind::Runtime,
            tapir::format("[DataLoader] expected {}, got an exception in {}: {}", state.name_of(index), who, what)};
  if (shards)
    return {kind, tapir::format("[DataLoader] expected a batch of shard {}, got an exception in {}: {}",
                                (state.first + batch) % shards, who, what)};
  return {kind, tapir::format("[DataLoader] expected a batch of samples {}, got an exception in {}: {}",
                              list_of(state.indices_of(batch)), who, what)};
}

/// In a worker on the copy stream, else on the caller's.
void queue_copies(EpochState& state, int64_t worker, Slot& slot) {
  const profiler::Range range(profiler::Kind::Loader, "copy");
  const Device device = *state.options.device;
  if (state.in_caller(worker)) return state.source->move_to(slot.batch, device);
  cuda::StreamGuard guard(copy_stream(device));
  state.source->move_to(slot.batch, device);
  slot.copied.emplace(false, device.index);
  slot.copied->record(copy_stream(device));
}

/// The next batch of the shard whose turn it is; none where it has ended.
void make_of_shard(EpochState& state, int64_t batch, SampleScope& scope, Slot& slot) {
  const int64_t turn = state.first + batch, shards = state.num_shards(), number = turn % shards, made = turn / shards;
  const int64_t count = state.options.batch_size;
  Shard& shard = state.shard_of(batch);
  if (shard.ended) return;
  if (!shard.stream) {
    scope.begin(number);
    shard.stream.reset(state.source->open(number, state.epoch));
    if (made) shard.stream->skip(number, shards, made * count, scope);
  }
  slot.batch =
      shard.stream->make(made * count * shards + number, shards, count, state.options.drop_last, scope, slot.samples);
  if (slot.samples < count || !slot.batch) shard.ended = true, shard.stream.reset();
}

/// Makes one batch; whatever it throws becomes the slot's failure.
Slot make_batch(EpochState& state, int64_t worker, int64_t batch) {
  Slot slot;
  slot.ready = true;
  auto& work = state.workers[size_t(worker)];
  work.index = -1, work.batch = batch;
  SampleScope scope(state, worker);
  const profiler::Range range(profiler::Kind::Loader, "load");
  const auto fails = [&](ErrorKind kind, std::string_view what) {
    slot.failure = describe(state, worker, batch, kind, what);
  };
  const int64_t began = now();
  try {
    const bool to_cuda = state.options.device && state.options.device->is_cuda();
    ScopedMode<bool> pins(pins_batches, to_cuda);
    if (state.shards.empty()) {
      const auto indices = state.indices_of(batch);
      slot.batch = state.source->make(indices, scope), slot.samples = int64_t(indices.size());
    } else make_of_shard(state, batch, scope, slot);
    const int64_t made = now();
    state.counters->load += (scope.collate_began ? scope.collate_began : made) - began;
    if (scope.collate_began) state.counters->collate += made - scope.collate_began;
    work.index = -1;
    if (slot.batch && to_cuda)  // no batch: a shard that has ended
      queue_copies(state, worker, slot);
    else if (slot.batch && state.options.device) state.source->move_to(slot.batch, *state.options.device);
    if (state.options.device) state.counters->copy += now() - made;
  } catch (const Left&) {
    slot.ready = false;
  } catch (const OutOfMemoryError& e) {
    fails(ErrorKind::OutOfMemory, e.what());
  } catch (const std::bad_alloc&) {
    fails(ErrorKind::OutOfMemory, "no memory");
  } catch (const ValueError& e) {
    fails(ErrorKind::Value, e.what());
  } catch (const std::exception& e) {
    fails(ErrorKind::Runtime, e.what());
  } catch (...) {
    fails(ErrorKind::Runtime, "something that is not a std::exception");
  }
  if (slot.failure && slot.batch) state.source->drop(std::exchange(slot.batch, nullptr));
  work.batch = -1;
  return slot;
}

void work(const std::shared_ptr<EpochState>& state, int64_t worker) {
  NoGrad no_grad;
  modes.threads = 1, modes.deterministic = state->deterministic;
  pthread_setname_np(pthread_self(), ("loader " + std::to_string(worker)).c_str());
  const sched_param none{};  // SCHED_BATCH: a worker that wakes does not push the training thread from its core
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->work_left.wait(lock, [&] { return state->stop || state->next >= state->batches || state->has_work(); });
    if (state->stop || state->next >= state->batches) break;
    const int64_t batch = state->next++;
    if (!state->shards.empty()) state->shard_of(batch).busy = true;
    lock.unlock();
    Slot slot = make_batch(*state, worker, batch);
    lock.lock();
    if (!state->shards.empty()) state->shard_of(batch).busy = false, state->work_left.notify_all();
    if (slot.failure) state->next = state->batches;  // the reader will not go beyond it
    state->slots[size_t(batch % state->window)] = std::move(slot);
    state->batch_ready.notify_all();
  }
}

/// What worker threads run.
struct Loading final : Job {
  Loading(std::shared_ptr<EpochState> state, int64_t worker) : state(std::move(state)), worker(worker) {}
  void run() override { work(state, worker); }
  std::shared_ptr<EpochState> state;
  int64_t worker;
};

/// How many there are; the machine may give fewer than are wanted.
int64_t start_workers(const std::shared_ptr<EpochState>& state, WorkerPool& pool, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (pool.start(new Loading(state, i))) continue;
    static std::atomic<bool> warned{false};
    if (!warned.exchange(true))
      std::fprintf(stderr, "tapir: [DataLoader] only %lld of %lld workers could be started\n",
                   static_cast<long long>(i), static_cast<long long>(count));
    return i;
  }
  return count;
}

/// Restores the calling thread's modes and random numbers, which making a batch changes.
struct CallerScope {
  NoGrad no_grad;
  Generator before = default_generator();
  ~CallerScope() { default_generator() = before; }
};

std::vector<int64_t> make_order(const LoaderOptions& options, int64_t n, int64_t epoch) {
  auto order = options.sampler   ? options.sampler->indices(epoch)
               : options.shuffle ? RandomSampler(n, *options.seed).indices(epoch)
                                 : SequentialSampler(n).indices(epoch);
  for (size_t i = 0; i < order.size(); ++i)
    check(order[i] >= 0 && order[i] < n,
          "[DataLoader] expected the sampler to give indices in [0, {}), got {} at position {}", n, order[i],
          int64_t(i));
  return order;
}

int64_t checked_size(BatchSource& source) {
  const int64_t n = source.size();
  check_runtime(n >= 0, "[DataLoader] expected a dataset size from 0 on, got {}", n);
  return n;
}

}  // namespace

struct Epoch::Impl {
  std::shared_ptr<EpochState> state;
  Shared<WorkerPool> pool;
  bool persistent;
  int64_t workers = 0;
  const pid_t process = getpid();

  /// In a forked child there are no workers, and what they held at the fork stays locked.
  bool is_foreign() const { return workers > 0 && process != getpid(); }
  Slot wait_for(int64_t batch);
  [[noreturn]] void fail_late(int64_t batch);
};

/// The order of an indexed dataset, the shards of an iterable one.
static void prepare(EpochState& state, int64_t first) {
  const LoaderOptions& options = state.options;
  state.first = first;
  if (const int64_t shards = state.source->shards()) {
    check(!options.shuffle && !options.sampler,
          "[DataLoader] expected no {} for an iterable dataset: the order is its own",
          options.shuffle ? "shuffle" : "sampler");
    state.shards = host_vector<Shard>("DataLoader", shards);
    state.batches = std::numeric_limits<int64_t>::max() / 2;
    return;
  }
  state.dataset_size = checked_size(*state.source);
  state.order = make_order(options, state.dataset_size, state.epoch);
  const int64_t n = int64_t(state.order.size());
  check(first <= n, "[DataLoader] expected to go on at a sample of at most {}, got {}", n, first);
  state.batches = count_batches(n - first, options);
}

Epoch::Epoch(Shared<BatchSource> source, const LoaderOptions& options, int64_t epoch, int64_t first,
             Shared<LoaderCounters> counters, Shared<WorkerPool> pool)
    : impl_(nullptr) {
  check_options(options);
  auto state = std::make_shared<EpochState>();
  for (auto* count :
       {&counters->batches, &counters->samples, &counters->wait, &counters->load, &counters->collate, &counters->copy})
    *count = 0;
  state->counters = std::move(counters), state->source = std::move(source);
  state->options = options, state->epoch = epoch;
  prepare(*state, first);
  const int64_t most = state->shards.empty() ? state->batches : state->num_shards(),
                workers = std::min(options.num_workers, most);
  state->workers = std::vector<Work>(size_t(workers) + 1);
  state->window = std::min(state->batches, workers * std::min({options.prefetch, state->batches, int64_t(1) << 16}));
  state->slots = host_vector<Slot>("DataLoader", state->window);
  const bool persistent = bool(pool);
  if (workers && !persistent) pool = Shared<WorkerPool>(std::in_place_type<WorkerPool>);
  impl_ = new Impl{state, std::move(pool), persistent};
  if (workers) impl_->workers = start_workers(state, *impl_->pool, workers);
}

Epoch::~Epoch() {
  if (!impl_ || impl_->is_foreign()) return;
  auto& state = *impl_->state;
  {
    std::lock_guard lock(state.mutex);
    state.stop = true;
    state.work_left.notify_all();
  }
  if (impl_->persistent && impl_->workers) impl_->pool->settle();
  delete impl_;
}

void Epoch::Impl::fail_late(int64_t batch) {
  std::string where = "no worker has taken it";
  for (int64_t i = 0; i < workers; ++i)
    if (state->workers[size_t(i)].batch == batch) {
      const int64_t index = state->workers[size_t(i)].index;
      where = index >= 0 ? tapir::format("worker {} is still in {}", i, state->name_of(index))
                         : tapir::format("worker {} is still in the collate function", i);
    }
  state->stop = true;
  fail(ErrorKind::Runtime, "[DataLoader] expected batch {} within {} s, but {}", batch, state->options.timeout, where);
}

Slot Epoch::Impl::wait_for(int64_t batch) {
  std::unique_lock lock(state->mutex);
  Slot& slot = state->slots[size_t(batch % state->window)];
  const auto ready = [&] { return slot.ready; };
  if (state->options.timeout <= 0) state->batch_ready.wait(lock, ready);
  else {
    const auto limit = std::chrono::duration<double>(std::min(state->options.timeout, 1e8));
    if (!state->batch_ready.wait_until(lock, Clock::now() + std::chrono::duration_cast<Clock::duration>(limit), ready))
      fail_late(batch);
  }
  ++state->delivered;
  Slot out = std::exchange(slot, Slot());
  lock.unlock();
  state->work_left.notify_one();  // one place in the window is free
  return out;
}

void* Epoch::next(int64_t& progress) {
  check_runtime(
      !impl_->is_foreign(),
      "[DataLoader] expected the process that began the loop, got a child forked from it, which has no workers: "
      "begin a loop there");
  auto& state = *impl_->state;
  for (;;) {
    const int64_t batch = state.delivered;  // only the reader writes it
    if (batch >= state.batches || state.stop) return nullptr;
    Slot slot;
    if (impl_->workers == 0) {
      CallerScope scope;
      slot = make_batch(state, int64_t(state.workers.size()) - 1, batch);
      ++state.delivered;
    } else {
      const profiler::Range range(profiler::Kind::Loader, "wait");
      const int64_t began = now();
      slot = impl_->wait_for(batch);
      state.counters->wait += now() - began;
    }
    if (slot.failure) {
      state.stop = true;
      fail(slot.failure->kind, "{}", slot.failure->text);
    }
    progress += state.shards.empty() ? slot.samples : 1;
    if (!slot.batch) {
      state.shard_of(batch).ended_for_reader = true;
      if (std::all_of(state.shards.begin(), state.shards.end(), [](const Shard& s) { return s.ended_for_reader; }))
        state.stop = true;
      continue;
    }
    ++state.counters->batches, state.counters->samples += slot.samples;
    if (slot.copied) {
      const Device device = *state.options.device;
      cuda::current_stream(device.index).wait_event(*slot.copied);
      state.source->use_on(slot.batch, device);
    }
    return slot.batch;
  }
}

Tensor staged(const Tensor& t, Device device) {
  if (!t.device().is_cpu() || !device.is_cuda() || is_pinned(t)) return to(t, device, true);
  const Tensor pinned = batch_memory(t.shape(), t.dtype());
  return to(Tensor(pinned).copy_(t), device, true);
}
void use_on_current_stream(const Tensor& t, Device device) {
  if (t.defined() && t.device() == device) cuda::record_stream(t, cuda::current_stream(device.index));
}

uint64_t draw_seed() {
  const auto [seed, offset] = default_generator().take(1);
  return mix_seed(seed, offset);
}

void check_options(const LoaderOptions& o) {
  check(o.batch_size > 0, "[DataLoader] expected batch_size above 0, got {}", o.batch_size);
  check(o.num_workers >= 0 && o.num_workers <= 4096, "[DataLoader] expected num_workers from 0 to 4096, got {}",
        o.num_workers);
  check(o.prefetch > 0, "[DataLoader] expected prefetch above 0, got {}", o.prefetch);
  check(o.timeout >= 0, "[DataLoader] expected a timeout from 0 seconds on, got {}", o.timeout);
  check(!(o.sampler && o.shuffle), "[DataLoader] expected either a sampler or shuffle, got both");
}

int64_t count_samples(BatchSource& source, const LoaderOptions& options) {
  check(
      source.shards() == 0,
      "[DataLoader] expected a dataset with a size, got an iterable one: how many batches it has is known at its end");
  if (!options.sampler) return checked_size(source);
  const int64_t n = options.sampler->size();
  check_runtime(n >= 0, "[DataLoader] expected a sampler of a size from 0 on, got {}", n);
  return n;
}
void check_place(const char* what, int64_t number) {
  check(number >= 0 && number < int64_t(1) << 62, "[DataLoader] expected {} of at least 0 and below 2^62, got {}", what,
        number);
}
int64_t saved_number(const StateDict& state, const char* name) {
  const Tensor& x = state.at(name);
  check(x.defined() && x.numel() == 1 && !is_floating(x.dtype()),
        "[DataLoader] expected an integer under {} in the state, got {}", name, x);
  return x.item<int64_t>();
}
int64_t saved_place(const StateDict& state, const char* name) {
  const int64_t number = saved_number(state, name);
  check_place(name, number);
  return number;
}
int64_t count_batches(int64_t samples, const LoaderOptions& options) {
  return samples / options.batch_size + (!options.drop_last && samples % options.batch_size != 0);
}

void check_columns(size_t fields, size_t expected, int64_t index) {
  check(fields == expected, "[DataLoader] expected {} tensors in each sample, got {} in sample {}", int64_t(expected),
        int64_t(fields), index);
}

Tensor stack_column(const std::vector<Tensor>& rows, std::span<const int64_t> indices) {
  const Tensor& first = rows[0];
  for (size_t i = 0; i < rows.size(); ++i) {
    check(rows[i].defined(), "[DataLoader] expected defined tensors, got an undefined one in sample {}", indices[i]);
    check(rows[i].shape() == first.shape() && rows[i].dtype() == first.dtype() && rows[i].device() == first.device(),
          "[DataLoader] expected samples of one shape and dtype, got {} in sample {} and {} in sample {} (a collate "
          "function of your own may accept them)",
          first, indices[0], rows[i], indices[i]);
  }
  Shape shape = first.shape();
  shape.insert(0, int64_t(rows.size()));
  const Tensor out = first.device().is_cpu() ? batch_memory(shape, first.dtype())
                                             : empty(shape, {.dtype = first.dtype(), .device = first.device()});
  const int64_t bytes = first.numel() * size_of(first.dtype());
  for (size_t i = 0; i < rows.size() && bytes > 0; ++i) {
    if (rows[i].is_contiguous() && rows[i].device().is_cpu())
      std::memcpy(static_cast<char*>(out.data_ptr()) + int64_t(i) * bytes, rows[i].data_ptr(), size_t(bytes));
    else out.select(0, int64_t(i)).copy_(rows[i]);
  }
  return out;
}

Tensor pad_column(const std::vector<Tensor>& rows, std::span<const int64_t> indices, double value) {
  const Tensor& first = rows[0];
  Shape shape = first.defined() ? first.shape() : Shape();
  bool ragged = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].defined()) return stack_column(rows, indices);  // which says so
    check(rows[i].dim() == first.dim() && rows[i].dtype() == first.dtype() && rows[i].device() == first.device(),
          "[DataLoader] expected samples of one rank and dtype, got {} in sample {} and {} in sample {}", first,
          indices[0], rows[i], indices[i]);
    ragged |= !(rows[i].shape() == first.shape());
    for (int64_t d = 0; d < shape.size(); ++d) shape[d] = std::max(shape[d], rows[i].shape()[d]);
  }
  if (!ragged) return stack_column(rows, indices);
  check_fits("PadCollate", value, first.dtype());
  shape.insert(0, int64_t(rows.size()));
  Tensor out = first.device().is_cpu() ? batch_memory(shape, first.dtype())
                                       : empty(shape, {.dtype = first.dtype(), .device = first.device()});
  out.fill_(is_floating(first.dtype()) ? Scalar(value) : Scalar(int64_t(value)));
  for (size_t i = 0; i < rows.size(); ++i) {
    Tensor place = out.select(0, int64_t(i));
    for (int64_t d = 0; d < rows[i].dim(); ++d) place = place.narrow(d, 0, rows[i].shape()[d]);
    place.copy_(rows[i]);
  }
  return out;
}

}  // namespace tapir::inline v0::data::detail

namespace tapir::inline v0::data {

std::string LoaderStats::str() const {
  char text[256];
  std::snprintf(text, sizeof text,
                "%lld batches, %lld samples; the loop waited %.3f s; workers: get %.3f s, collate %.3f s, copy %.3f s",
                static_cast<long long>(batches), static_cast<long long>(samples), wait, load, collate, copy);
  return text;
}

}  // namespace tapir::inline v0::data
