#include "library_call.h"

#include "runtime.h"

namespace cuda_emulation {
LibraryCall::LibraryCall(const char* name, cudaStream_t stream) : name_(name) {
  const std::lock_guard lock(runtime);
  Stream* s = stream_of(stream);
  if (!s) throw Fault(std::string("[") + name + "] not a live stream");
  work_ = new Work({.call = name}, *s);
}
void LibraryCall::end() {
  if (counting()) count_call("library", name_, moved_);
  else check_margins();
}
LibraryCall::~LibraryCall() { delete work_; }
static void claim_for_device(const void* data, size_t bytes, bool write) {
  if (bytes && !is_device_pointer(data) && !is_pinned(data, bytes)) fail("was given an address of the host");
  claim(data, bytes, write);
}
void LibraryCall::reads(const void* data, size_t bytes) { reads(data, bytes, bytes); }
void LibraryCall::writes(void* data, size_t bytes) { writes(data, bytes, bytes); }
void LibraryCall::reads(const void* data, size_t bytes, size_t useful) {
  if (counting()) moved_.read += double(useful);
  else claim_for_device(data, bytes, false);
}
void LibraryCall::writes(void* data, size_t bytes, size_t useful) {
  if (counting()) moved_.written += double(useful);
  else claim_for_device(data, bytes, true);
}
bool LibraryCall::counted(const std::string& rate, double operations, const std::string& text) {
  moved_.rate = rate, moved_.operations += operations, moved_.text = text;
  return counting();
}
void on_stream(cudaStream_t stream, std::function<void(cudaStream_t)> work) {
  if (!is_captured(stream)) return work(stream);
  const cudaError_t error = keep(stream, [work = std::move(work)](cudaStream_t s) { return work(s), cudaSuccess; });
  if (error != cudaSuccess) throw Fault("[cuda_emulation] a capture was spoilt before");
}
}  // namespace cuda_emulation
