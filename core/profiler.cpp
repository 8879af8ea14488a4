#include "profiler.h"

#include <cxxabi.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "allocator.h"
#include "backend.h"
#include "device_table.h"
#include "error.h"
#include "modes.h"
#include "recording.h"
#include "trace_call.h"

namespace tapir::inline v0::profiler {
namespace {

struct Open {
  Kind kind;
  const char* name;
  int64_t begin, bytes;
  bool nvtx;
};
/// Two events around a kernel, until they are read.
struct Timing {
  const DeviceTable* table;
  Device device;
  void *stream, *begin, *end;
  void destroy() const { table->destroy_event(device, begin), table->destroy_event(device, end); }
};
/// What one thread writes down. A thread may come too late, with a log that by then belongs to another session: it asks under the mutex.
struct Log {
  std::mutex mutex;
  uint64_t session = 0;
  ThreadRecording data;
  std::vector<std::vector<char>> texts;  // of which each stays where it is
  std::vector<Timing> timings;
  std::vector<Open> open;
  int64_t first_kernel = -1;  // that no operation has claimed yet; -1: none
  int64_t bytes = 0;          // allocated since the last operation or scope
};
/// The state of all threads' recording. Never destroyed: threads may outlive main.
struct Profile {
  std::mutex mutex;
  std::deque<Log> logs;  // the first is that of the thread that started
  ProfileOptions options;
  uint64_t sessions = 0;
  std::atomic<int64_t> began{0};
  struct Zero {  // of a device: an event whose time on the host is known
    std::atomic<void*> event{nullptr};
    int64_t time = 0;
    const DeviceTable* table = nullptr;
  } zeros[kMaxDevices];
  std::atomic<const DeviceTable*> nvtx{nullptr};
};
Profile& profile() {
  static Profile* const r = new Profile;
  return *r;
}

/// Of this thread.
struct Mine {
  Log* log;
  uint64_t session;
  const BackendTable* real[kNumDeviceTypes];
  BackendTable observing[kNumDeviceTypes];  // before `real`
};
constinit thread_local Mine mine{};

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
int64_t since_began() { return now() - profile().began; }

std::string thread_name() {
  char name[32] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  return name;
}

/// Gives this thread a log of that session, and puts a table before each that it uses. False when the session is over.
bool attach(uint64_t session) {
  Profile& r = profile();
  {
    std::lock_guard lock(r.mutex);
    if (detail::session.load() != session) return false;
    auto log = std::find_if(r.logs.begin(), r.logs.end(), [](const Log& l) { return l.session == 0; });
    Log& own = log == r.logs.end() ? r.logs.emplace_back() : *log;
    std::lock_guard log_lock(own.mutex);
    own.session = session;
    own.data.name = thread_name();
    own.first_kernel = -1, own.bytes = 0;
    mine.log = &own, mine.session = session;
  }
  for (int type = 0; type < kNumDeviceTypes; ++type)
    if (const BackendTable* table = modes.tables[type]) modes.tables[type] = &observed(*table, DeviceType(type));
  return true;
}

/// f(log) with the log of this thread, while that session runs (0: whichever).
template <class F> void with_log(uint64_t wanted, F f) {
  const uint64_t session = detail::session.load(std::memory_order_acquire);
  if (session == 0 || (wanted && wanted != session)) return;
  if (mine.session != session && !attach(session)) return;
  std::lock_guard lock(mine.log->mutex);
  if (mine.log->session != session) return;
  try {
    f(*mine.log);
  } catch (const std::bad_alloc&) {  // the program goes on without that event
  }
}

/// What comes after belongs to another operation.
void claim(Log& log) {
  log.first_kernel = -1;
  if (!log.open.empty()) log.open.back().bytes += log.bytes;
  log.bytes = 0;
}

void close_scope(Log& log, int64_t time) {
  claim(log);
  const Open scope = log.open.back();
  log.open.pop_back();
  if (scope.nvtx && &log == mine.log) profile().nvtx.load()->range_pop();
  log.data.events.push_back(
      {.kind = scope.kind, .name = scope.name, .begin = scope.begin, .end = time, .bytes = scope.bytes});
}

void open_scope(Log& log, Kind kind, const char* name) {
  claim(log);
  const DeviceTable* nvtx = profile().nvtx.load(std::memory_order_relaxed);
  if (nvtx) nvtx->range_push(shown_name({.kind = kind, .name = name}).c_str());
  log.open.push_back({kind, name, since_began(), 0, nvtx != nullptr});
}

// ---- kernels ----
/// A device's clock is tied to the host's once, when the first kernel meets it.
void tie_clock(const DeviceTable& table, Device device, void* stream) {
  Profile& r = profile();
  Profile::Zero& zero = r.zeros[device.index];
  if (zero.event) return;
  std::lock_guard lock(r.mutex);
  if (zero.event) return;
  void* event = table.create_event(device, true);
  table.record_event(device, event, stream);
  table.synchronize_event(device, event);
  zero.time = since_began(), zero.table = &table, zero.event = event;
}

/// The thread's table is what it was, where no recording runs any more.
void forget(DeviceType type) {
  if (modes.tables[int(type)] == &mine.observing[int(type)]) modes.tables[int(type)] = mine.real[int(type)];
}

/// One kernel call, or what is like one.
class KernelCall {
 public:
  KernelCall(const char* name, const char* op, const entry::Work& work, Device device, void* stream, bool timed = true)
      : name_(name), op_(op), work_(work) {
    session_ = detail::session.load(std::memory_order_acquire);
    if (!session_) {
      forget(device.type);
      return;
    }
    if (const DeviceTable* table = mine.real[int(device.type)]->device) {
      nvtx_ = profile().nvtx.load(std::memory_order_relaxed);
      if (nvtx_) nvtx_->range_push(shown_name({.kind = Kind::Kernel, .name = name_, .detail = op_}).c_str());
      if (timed) start_timing(*table, device, stream);
    }
    outer_ = std::exchange(tapir::detail::simulation, &simulation_);
    begin_ = since_began();
  }
  ~KernelCall() {
    if (!session_) return;
    const int64_t end = since_began();
    tapir::detail::simulation = outer_;
    if (timing_.table) record_end();
    if (nvtx_) nvtx_->range_pop();
    const bool failed = std::uncaught_exceptions() > exceptions_;
    bool kept = false;
    with_log(session_, [&](Log& log) {
      Event e{.kind = Kind::Kernel,
              .name = name_,
              .detail = op_,
              .begin = begin_,
              .end = end,
              .work = work_,
              .simulation = simulation_};
      if (timing_.table) e.span = int64_t(log.timings.size()), log.timings.push_back(timing_), kept = true;
      log.data.events.push_back(e);
      if (failed) log.first_kernel = -1;
      else if (log.first_kernel < 0) log.first_kernel = begin_;
    });
    if (timing_.table && !kept) timing_.destroy();
  }
  KernelCall(const KernelCall&) = delete;

 private:
  void record_end() noexcept {
    try {
      timing_.table->record_event(timing_.device, timing_.end, timing_.stream);
    } catch (const std::exception&) {  // the device has failed, and says so to whoever waits for it
      timing_.destroy(), timing_ = {};
    }
  }
  void start_timing(const DeviceTable& table, Device device, void* stream) {
    tie_clock(table, device, stream);
    timing_ = {&table, device, stream, table.create_event(device, true), table.create_event(device, true)};
    table.record_event(device, timing_.begin, stream);
  }
  const char *name_, *op_;
  entry::Work work_;
  tapir::detail::Simulation simulation_, *outer_ = nullptr;
  uint64_t session_;
  int64_t begin_ = 0;
  int exceptions_ = std::uncaught_exceptions();
  Timing timing_{};
  const DeviceTable* nvtx_ = nullptr;
};

template <class E> auto observed_call(Context& ctx, const E& e) {
  const char* op = "";
  if constexpr (requires { e.params.op; }) op = tapir::detail::name_of_op(e.params.op);
  const KernelCall scope(entry::name_of(entry::id_of<E>), op, entry::work_of(e), ctx.device, ctx.stream);
  return entry::kernel_of<E>(*mine.real[int(ctx.device.type)])(ctx, e);
}

void observed_copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, void* stream) {
  const Device device = to_device.is_cuda() ? to_device : from_device;
  const char* kinds[2][2] = {{"HtoH", "HtoD"}, {"DtoH", "DtoD"}};
  const char* kind = kinds[from_device.is_cuda()][to_device.is_cuda()];
  const KernelCall scope("copy_bytes", kind, {.bytes = 2 * double(bytes)}, device, stream);
  mine.real[int(device.type)]->copy_bytes(to, to_device, from, from_device, bytes, stream);
}
void observed_synchronize(Device device, void* stream) {
  const KernelCall scope("synchronize", "", {}, device, stream, false);
  mine.real[int(device.type)]->synchronize(device, stream);
}

// ---- memory ----
void note_memory(Device device, int64_t bytes) {
  if (!is_on()) return forget(device.type);
  const DeviceTable* table = mine.real[int(device.type)]->device;
  const int64_t allocated = (device.is_cpu() ? memory_stats() : table->memory_stats(device)).allocated;
  with_log(0, [&](Log& log) {
    log.bytes += bytes;
    log.data.memory.push_back({device, since_began(), allocated});
  });
}
void* observed_allocate(int64_t bytes, Device device, void* stream) {
  void* data = mine.real[int(device.type)]->allocate(bytes, device, stream);
  if (data) note_memory(device, bytes);
  return data;
}
void observed_release(void* data, int64_t bytes, Device device) {
  mine.real[int(device.type)]->release(data, bytes, device);
  if (data) note_memory(device, -bytes);
}

std::string demangled(const char* name) {
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, nullptr);
  std::string s = text ? text : name;
  std::free(text);
  return s;
}

/// Nanoseconds since the recording began, when that event was passed.
int64_t time_of(const Timing& t, void* event) {
  const Profile::Zero& zero = profile().zeros[t.device.index];
  return zero.time + int64_t(t.table->elapsed_ms(t.device, zero.event.load(), event) * 1e6);
}

void read_timings(Log& log) {
  for (const Timing& t : log.timings) {
    t.table->synchronize_event(t.device, t.end);
    log.data.spans.push_back({t.device, t.stream, time_of(t, t.begin), time_of(t, t.end)});
    t.destroy();
  }
  log.timings.clear();
}

}  // namespace

const BackendTable& observed(const BackendTable& table, DeviceType type) {
  const uint64_t session = detail::session.load();
  if (!session || (mine.session != session && !attach(session))) return table;
  BackendTable& own = mine.observing[int(type)];
  const BackendTable& real = &table == &own ? *mine.real[int(type)] : table;  // left over from an earlier recording
  mine.real[int(type)] = &real;
  own = real;
#define X(name, E) \
  if (real.name) own.name = observed_call<entry::E>;
  TAPIR_ENTRIES(X)
#undef X
  own.copy_bytes = observed_copy, own.synchronize = observed_synchronize;
  const ProfileOptions& options = profile().options;
  if (options.profile_memory) own.allocate = observed_allocate, own.release = observed_release;
  if (options.nvtx && real.device && real.device->range_push) profile().nvtx = real.device;
  return own;
}

namespace detail {

uint64_t begin(Kind kind, const char* name) noexcept {
  uint64_t session = 0;
  with_log(0, [&](Log& log) { open_scope(log, kind, name), session = log.session; });
  return session;
}
uint64_t begin(std::string_view name) noexcept {
  uint64_t session = 0;
  with_log(0, [&](Log& log) {
    std::vector<char>& text = log.texts.emplace_back(name.begin(), name.end());
    text.push_back(0);
    open_scope(log, Kind::User, text.data()), session = log.session;
  });
  return session;
}
void end(uint64_t session) noexcept {
  with_log(session, [&](Log& log) {
    if (!log.open.empty()) close_scope(log, since_began());
  });
}

void operation(const char* name, std::span<const Shape* const> inputs) noexcept {
  with_log(0, [&](Log& log) {
    const int64_t time = since_began();
    Event e{.kind = Kind::Op,
            .name = name,
            .begin = log.first_kernel < 0 ? time : log.first_kernel,
            .end = time,
            .bytes = log.bytes};
    if (profile().options.record_shapes && !inputs.empty()) {
      auto& shapes = log.data.shapes;
      e.shapes = int64_t(shapes.size());
      shapes.push_back(int64_t(inputs.size()));
      for (const Shape* s : inputs) {
        shapes.push_back(s ? s->size() : -1);
        if (s) shapes.insert(shapes.end(), s->begin(), s->end());
      }
    }
    log.data.events.push_back(e);
    log.first_kernel = -1, log.bytes = 0;
  });
}

}  // namespace detail

void start_recording(const ProfileOptions& options) {
  Profile& r = profile();
  uint64_t session;
  {
    std::lock_guard lock(r.mutex);
    check(detail::session.load() == 0,
          "[Profile] expected no other profile, but one is running (there is one for all threads)");
    r.options = options;
    r.nvtx = nullptr;
    r.began = now();
    session = ++r.sessions;
    detail::session = session;
  }
  attach(session);
}

Recording stop_recording() {
  Profile& r = profile();
  Recording out;
  std::lock_guard lock(r.mutex);
  const uint64_t session = detail::session.exchange(0);
  check(session != 0, "[Profile] expected a profile that runs");
  out.duration = since_began();
  for (Log& log : r.logs) {
    std::lock_guard log_lock(log.mutex);
    if (log.session != session) continue;
    out.duration = since_began();  // a scope may have been opened meanwhile
    while (!log.open.empty()) close_scope(log, out.duration);
    read_timings(log);
    log.session = 0, log.bytes = 0;
    out.threads.push_back(std::exchange(log.data, {}));
    for (auto& text : std::exchange(log.texts, {})) out.texts.push_back(std::move(text));
  }
  for (int i = 0; i < kMaxDevices; ++i)
    if (void* event = r.zeros[i].event.exchange(nullptr))
      r.zeros[i].table->destroy_event(Device(DeviceType::CUDA, int8_t(i)), event);
  for (int type = 0; type < kNumDeviceTypes; ++type) forget(DeviceType(type));
  return out;
}

std::string shown_name(const Event& event) {
  const std::string name = event.name;
  switch (event.kind) {
    case Kind::Op:
    case Kind::User: return name;
    case Kind::Kernel: return *event.detail ? name + "(" + event.detail + ")" : name;
    case Kind::Backward: return name + "Backward";
    case Kind::Optimizer: return "Optimizer.step#" + name + ".step";
    case Kind::Loader: return "DataLoader." + name;
    case Kind::Module: break;
  }
  std::string type = demangled(event.name);
  const size_t last = type.substr(0, type.find('<')).rfind("::");
  return last == std::string::npos ? type : type.substr(last + 2);
}

}  // namespace tapir::inline v0::profiler
