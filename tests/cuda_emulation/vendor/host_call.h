// What the stand-ins for vendor libraries share: one call of the library's is one piece of work on the stream, done by the CPU's kernels.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "../../../core/backend.h"
#include "../../../core/cuda_launch.h"
#include "../library_call.h"

namespace tapir::inline v0::cuda_kernels {

/// A vendor's library works on the device that its caller has chosen; a null stream is that device's.
struct __attribute__((visibility("hidden"))) ChosenDevice {
  explicit ChosenDevice(Device device) : on(device) {}
  cuda::OnDevice on;
};
class __attribute__((visibility("hidden"))) HostCall : ChosenDevice, public cuda_emulation::LibraryCall {
 public:
  HostCall(const char* name, const Context& ctx) : HostCall(name, ctx.device, static_cast<cudaStream_t>(ctx.stream)) {}
  HostCall(const char* name, Device device, cudaStream_t stream) : ChosenDevice(device), LibraryCall(name, stream) {}
  /// The view as the CPU's kernels take it, announced.
  TensorView read(const TensorView& v) { return announce(v, false); }
  TensorView write(const TensorView& v) { return announce(v, true); }

 private:
  TensorView announce(TensorView v, bool written) {
    if (!v.defined()) return v;
    v.device = kCPU;
    int64_t first = 0, last = 0;
    for (int64_t d = 0; d < v.rank; ++d) {
      if (v.sizes[d] == 0) return v;
      (v.strides[d] < 0 ? first : last) += (v.sizes[d] - 1) * v.strides[d];
    }
    char* const data = static_cast<char*>(v.data) + first * size_of(v.dtype);
    const size_t bytes = size_t((last - first + 1) * size_of(v.dtype));
    const size_t useful = std::min(bytes, size_t(v.numel() * size_of(v.dtype)));
    if (written) writes(data, bytes, useful);
    else reads(data, bytes, useful);
    return v;
  }
};

/// One call of a library that may be captured: work(call), which owns what it uses.
template <class F> void host_call(const char* name, Device device, cudaStream_t stream, F work) {
  const ChosenDevice chosen(device);
  cuda_emulation::on_stream(stream, [name, device, work = std::move(work)](cudaStream_t on) {
    HostCall call(name, device, on);
    work(call);
    call.end();
  });
}
template <class F> void host_call(const char* name, const Context& ctx, F work) {
  host_call(name, ctx.device, static_cast<cudaStream_t>(ctx.stream), std::move(work));
}

/// A view of memory on the device.
inline TensorView device_view(Device device, const void* data, DType dtype, std::initializer_list<int64_t> sizes,
                              std::initializer_list<int64_t> strides) {
  TensorView v(Scalar(0), dtype);
  v.is_scalar = false, v.data = const_cast<void*>(data), v.device = device, v.rank = int64_t(sizes.size());
  std::copy(sizes.begin(), sizes.end(), v.sizes);
  std::copy(strides.begin(), strides.end(), v.strides);
  return v;
}

}  // namespace tapir::inline v0::cuda_kernels
