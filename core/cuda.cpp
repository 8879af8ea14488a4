#include "cuda.h"

#include <utility>

#include "backend.h"
#include "device_table.h"
#include "error.h"
#include "tensor.h"

namespace tapir::inline v0::cuda {
namespace {

thread_local int current = 0;

const DeviceTable& table() {
  const BackendTable* backend = cuda_backend();
  if (!backend) fail(ErrorKind::Value, "[cuda] expected a CUDA device that this program can use: {}", why_not());
  return *backend->device;
}

/// The device of that number, -1 being the current one.
Device device_of(int device) {
  if (device == -1) device = current;
  table();
  check(device >= 0 && device < device_count(), "[cuda] expected the index of one of {} CUDA devices, got {}",
        device_count(), device);
  return {DeviceType::CUDA, int8_t(device)};
}
Device at(int device) { return {DeviceType::CUDA, int8_t(device)}; }

}  // namespace

DeviceProperties get_device_properties(int device) {
  const Device d = device_of(device);
  DeviceProperties p;
  table().properties(d, p);
  return p;
}
std::string get_device_name(int device) { return get_device_properties(device).name; }
int current_device() { return current; }
void set_device(int device) { current = device_of(device).index; }
void synchronize(int device) {
  const Device d = device_of(device);
  table().synchronize_device(d);
}
int64_t synchronizations() { return table().synchronizations(); }

Stream::Stream(int device, int priority) {
  const Device d = device_of(device);
  device_ = d.index;
  handle_ = table().create_stream(d, priority);
}
void Stream::synchronize() const { cuda_backend()->synchronize(device_of(device_), handle_); }
bool Stream::query() const { return table().query_stream(device_of(device_), handle_); }
void Stream::wait_event(const Event& event) const {
  if (event.handle()) table().wait_event(at(device_), handle_, event.handle());
}
void Stream::wait_stream(const Stream& other) const { wait_event(other.record_event()); }
Event Stream::record_event() const {
  Event event(false, device_);
  event.record(*this);
  return event;
}
Stream default_stream(int device) { return Stream(device_of(device).index, static_cast<void*>(nullptr)); }
Stream current_stream(int device) {
  const Device d = device_of(device);
  return Stream(d.index, modes.streams[d.index]);
}
void set_stream(const Stream& stream) { modes.streams[device_of(stream.device()).index] = stream.handle(); }

Event::Event(bool enable_timing, int device) : device_(device_of(device).index) {
  handle_ = table().create_event(at(device_), enable_timing);
}
Event::~Event() {
  if (handle_) table().destroy_event(at(device_), handle_);
}
Event::Event(Event&& o) noexcept : device_(o.device_), handle_(std::exchange(o.handle_, nullptr)) {}
Event& Event::operator=(Event&& o) noexcept {
  std::swap(device_, o.device_), std::swap(handle_, o.handle_);
  return *this;
}
void Event::record(const Stream& stream) {
  check(stream.device() == device_, "[Event] expected a stream of cuda:{}, got one of cuda:{}", device_,
        stream.device());
  table().record_event(at(device_), handle_, stream.handle());
}
void Event::synchronize() const { table().synchronize_event(at(device_), handle_); }
bool Event::query() const { return table().query_event(at(device_), handle_); }
double Event::elapsed_time(const Event& end) const {
  check(end.device_ == device_, "[Event] expected an event of cuda:{}, got one of cuda:{}", device_, end.device_);
  return table().elapsed_ms(at(device_), handle_, end.handle_);
}

MemoryStats memory_stats(int device) {
  const Device d = device_of(device);
  return table().memory_stats(d);
}
int64_t memory_allocated(int device) { return memory_stats(device).allocated; }
int64_t max_memory_allocated(int device) { return memory_stats(device).max_allocated; }
int64_t memory_reserved(int device) { return memory_stats(device).reserved; }
int64_t max_memory_reserved(int device) { return memory_stats(device).max_reserved; }
void reset_peak_memory_stats(int device) {
  const Device d = device_of(device);
  table().reset_peak(d);
}
std::string memory_summary(int device) {
  const Device d = device_of(device);
  return memory_table(d.str() + " memory", memory_stats(device), mem_get_info(device).free);
}
void empty_cache(int device) {
  const Device d = device_of(device);
  (void)context(d);  // gives back the scratch memory of this thread's last kernel
  table().empty_cache(d);
}
MemoryInfo mem_get_info(int device) {
  const Device d = device_of(device);
  MemoryInfo info{};
  table().mem_get_info(d, info.free, info.total);
  return info;
}
void set_per_process_memory_fraction(double fraction, int device) {
  check(fraction > 0 && fraction <= 1, "[set_per_process_memory_fraction] expected a fraction in (0, 1], got {}",
        fraction);
  const Device d = device_of(device);
  table().set_memory_fraction(d, fraction);
}
std::vector<MemoryBlock> memory_snapshot(int device) {
  const Device d = device_of(device);
  std::vector<MemoryBlock> blocks;
  table().for_each_block(
      d, [](void* to, const MemoryBlock& b) { static_cast<std::vector<MemoryBlock>*>(to)->push_back(b); }, &blocks);
  return blocks;
}
void record_stream(const Tensor& x, const Stream& stream) {
  check(x.device().is_cuda(), "[record_stream] expected a CUDA tensor, got one on {}", x.device());
  table().record_stream(x.device(), x.impl_or_null()->storage->data, stream.handle());
}
void wait_for_device(Device waiter, Device other) {
  const DeviceTable& t = table();
  void* const event = t.create_event(other, false);
  t.record_event(other, event, tapir::current_stream(other));
  t.wait_event(waiter, tapir::current_stream(waiter), event);
  t.destroy_event(other, event);
}

}  // namespace tapir::inline v0::cuda

namespace tapir::inline v0::backends::cuda {
void set_matmul_allow_tf32(bool on) { cuda_settings.matmul_allow_tf32 = on; }
bool matmul_allow_tf32() { return cuda_settings.matmul_allow_tf32; }
void set_cudnn_allow_tf32(bool on) { cuda_settings.cudnn_allow_tf32 = on; }
bool cudnn_allow_tf32() { return cuda_settings.cudnn_allow_tf32; }
void set_cudnn_benchmark(bool on) { cuda_settings.cudnn_benchmark = on; }
bool cudnn_benchmark() { return cuda_settings.cudnn_benchmark; }
}  // namespace tapir::inline v0::backends::cuda
