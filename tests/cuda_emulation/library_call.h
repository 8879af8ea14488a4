// For what stands in for a vendor's library (BLAS, convolutions, sorting): host code that does the work of one call on device memory.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>

#include "count.h"

#pragma GCC visibility push(hidden)
namespace cuda_emulation {
class Work;

/// While it lives, device memory that was announced is open to host code, and the call counts as one piece of work on the stream.
/// Announce before use; announcing checks bounds, device and order between streams as a kernel's access would. Throws Fault.
class LibraryCall {
 public:
  LibraryCall(const char* name, cudaStream_t stream);
  explicit LibraryCall(const char* name, Work* adopted) : work_(adopted), name_(name) {}
  /// Checks that nothing was written just outside the memory that was announced.
  void end();
  ~LibraryCall();
  LibraryCall(const LibraryCall&) = delete;
  LibraryCall& operator=(const LibraryCall&) = delete;
  void reads(const void* data, size_t bytes);
  void writes(void* data, size_t bytes);
  /// `bytes` from first to last, `useful` of them are of the operand.
  void reads(const void* data, size_t bytes, size_t useful);
  void writes(void* data, size_t bytes, size_t useful);
  /// True where calls are counted (Note [Counting]): the caller leaves the work out, and this is what it is: so many operations at the
  /// speed that `rate` names.
  bool counted(const std::string& rate, double operations, const std::string& text);

 private:
  Work* work_;
  Moved moved_;
  const char* name_;
};

/// Calls work(stream): at once, or where the stream is captured whenever the graph is launched. It owns what it uses.
void on_stream(cudaStream_t stream, std::function<void(cudaStream_t)> work);

}  // namespace cuda_emulation
#pragma GCC visibility pop
