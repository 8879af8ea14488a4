#include "device_run.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "../../core/error.h"

namespace tapir::inline v0::ir {

constexpr int kMostFailures = 3;

static thread_local constinit bool captures = false;
bool DeviceRun::captures_here() { return captures; }

/// The smallest free piece that is large enough; where there is none, one in place of the largest free one, unless a graph uses it.
void* DeviceRun::Scratch::take(int64_t bytes) {
  Piece *fits = nullptr, *largest = nullptr;
  for (Piece& p : pieces) {
    if (p.taken) continue;
    if (p.memory->bytes >= bytes && (!fits || p.memory->bytes < fits->memory->bytes)) fits = &p;
    if (!largest || p.memory->bytes > largest->memory->bytes) largest = &p;
  }
  if (!fits) {
    check_runtime(!complete, "[compile] a kernel wants more memory while it is captured than before");
    if (!largest || kept) largest = &pieces.emplace_back();
    largest->memory = {};
    largest->memory = allocate_storage(bytes, device);
    fits = largest;
  }
  fits->taken = true;
  return fits->memory->data;
}
void DeviceRun::Scratch::give(void* piece) {
  for (Piece& p : pieces)
    if (p.memory && p.memory->data == piece) p.taken = false;
}
void DeviceRun::Scratch::give_all() {
  for (Piece& p : pieces) p.taken = false;
}

/// What kernels of this thread take their scratch memory from, for a scope; on both sides of the plugin's border.
class DeviceRun::Pooled {
 public:
  Pooled(const DeviceTable& table, Scratch& pool) : table_(table), pool_(pool), before_(scratch_pool) { set(&pool); }
  ~Pooled() { pool_.give_all(), set(before_); }  // a kernel that threw kept its own
  Pooled(const Pooled&) = delete;

 private:
  void set(ScratchPool* pool) {
    scratch_pool = pool;
    if (table_.set_scratch_pool) table_.set_scratch_pool(pool);
  }
  const DeviceTable& table_;
  Scratch& pool_;
  ScratchPool* const before_;
};

static bool switched_off() {
  const char* text = std::getenv("TAPIR_CUDA_GRAPHS");
  return text && std::strcmp(text, "0") == 0;
}

DeviceRun::DeviceRun(Device device, StoragePtr position, uint64_t numbers)
    : device_(device), graphs_(!switched_off() && backend(device).device->begin_capture),
      position_(std::move(position)), numbers_(numbers), stream_(current_stream(device)), scratch_(device) {
  if (position_) hold(position_);
  if (!graphs_) why_ = switched_off() ? "TAPIR_CUDA_GRAPHS=0" : "the device keeps no graphs";
}
DeviceRun::~DeviceRun() { drop_graph(); }

void DeviceRun::drop_graph() {
  if (graph_) cuda_backend()->device->destroy_graph(device_, std::exchange(graph_, nullptr));
  scratch_.kept = false;
}

bool DeviceRun::enter_stream() {
  void* const now = current_stream(device_);
  if (now == stream_) return false;
  const DeviceTable& table = *backend(device_).device;
  void* const event = table.create_event(device_, false);
  table.record_event(device_, event, stream_);
  table.wait_event(device_, now, event);
  table.destroy_event(device_, event);
  for (const StoragePtr& s : held_) table.record_stream(device_, s->data, now);
  for (const Scratch::Piece& p : scratch_.pieces) table.record_stream(device_, p.memory->data, now);
  stream_ = now;
  return true;
}

TensorView DeviceRun::position() const {
  TensorView at(Scalar(0), kInt64);
  at.is_scalar = false, at.device = device_, at.data = position_->data;
  return at;
}

void DeviceRun::set_position(uint64_t offset) {
  if (position_ && std::exchange(at_, ~uint64_t(0)) != offset)
    backend(device_).fill(context(device_), {position(), Scalar(int64_t(offset))});
}

/// Queues the work, kernel by kernel, on the current stream.
void DeviceRun::plain(Queue queue, void* f) {
  Context& ctx = context(device_);
  const Pooled pool(*backend(device_).device, scratch_);
  queue(f, ctx);
  if (!position_) return;
  const TensorView at = position();
  backend(device_).binary(ctx, {at, at, TensorView(Scalar(int64_t(numbers_)), kInt64), {BinaryOp::Add}});
}

/// Work of others that no capture may meet: it says nothing of this program. Its own that may not be is refused by another name, where
/// it is queued.
static bool is_spoilt_by_others(const std::string& why) {
  return why.find("cudaErrorStreamCaptureInvalidated") != std::string::npos;
}

bool DeviceRun::capture(Queue queue, void* f) {
  const DeviceTable& table = *backend(device_).device;
  const char* spoilt = "";
  bool whole = false;
  try {
    ScopedMode<void*> stream(modes.streams[device_.index], table.begin_capture(device_));
    ScopedMode<bool> complete(scratch_.complete, true), here(captures, true);
    try {
      plain(queue, f);
      whole = true;
    } catch (const std::exception& e) {  // the plain run that follows says what is really wrong
      why_ = e.what();
    }
    graph_ = table.end_capture(device_, whole, spoilt);
  } catch (const std::exception& e) {
    why_ = e.what();
    return false;
  }
  if (!graph_ && whole) why_ = spoilt;
  if (graph_) why_.clear(), scratch_.kept = true, failures_ = 0;
  return graph_;
}

void DeviceRun::run(bool same, uint64_t offset, Queue queue, void* f) {
  if (!same) drop_graph(), warm_ = false;
  set_position(offset);
  const bool seen = &backend(device_) != cuda_backend();  // by a profiler or a log
  if (!graph_ && graphs_ && warm_ && !seen && !capture(queue, f)) {
    warm_ = false;
    if (!is_spoilt_by_others(why_) && ++failures_ == kMostFailures) graphs_ = false;
  }
  if (graph_ && !seen) {
    for (const auto& custom : customs_) custom->before_launch();
    backend(device_).device->launch_graph(device_, graph_, stream_);
    for (const auto& custom : customs_) custom->after_launch();
    ++launches_;
  } else {
    plain(queue, f);
    ++plain_, warm_ = true;
  }
  at_ = offset + numbers_;
}

std::string DeviceRun::text() const {
  std::string s = tapir::format("on {}: {}, launched {} times; {} runs call by call", device_,
                                graph_    ? "one graph"
                                : graphs_ ? "no graph now"
                                          : "no graph",
                                launches_, plain_);
  return why_.empty() ? s : s + ", because " + why_;
}

}  // namespace tapir::inline v0::ir
