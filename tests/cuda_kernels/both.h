#pragma once
// What tests of cuda_kernels/ share: an entry runs on arrays of the host and on copies of them on the device, and leaves the same.
#include <tapir/core/cuda.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "../cpu_kernels/arrays.h"
#include "catch.h"

namespace tapir_tests {

/// A copy of an array on the device, gaps included.
class Mirror {
 public:
  explicit Mirror(const Array& a) : view(a.view), bytes_(int64_t(a.bytes.size())) {
    const BackendTable& table = backend(kCUDA);
    view.device = kCUDA, view.data = table.allocate(bytes_ + 1, kCUDA, current_stream(kCUDA));
    if (bytes_) table.copy_bytes(view.data, kCUDA, a.bytes.data(), kCPU, bytes_, current_stream(kCUDA));
  }
  Mirror(const Mirror&) = delete;
  ~Mirror() { backend(kCUDA).release(view.data, bytes_ + 1, kCUDA); }
  std::vector<char> fetch() const {
    std::vector<char> bytes(size_t(bytes_) + 8);
    if (bytes_) backend(kCUDA).copy_bytes(bytes.data(), kCPU, view.data, kCUDA, bytes_, current_stream(kCUDA));
    backend(kCUDA).synchronize(kCUDA, current_stream(kCUDA));
    return bytes;
  }
  TensorView view;

 private:
  int64_t bytes_;
};

/// An operand that an entry reads or writes; null: absent.
using Operands = std::vector<Array*>;

/// Runs `run(table, context, views)` on both and compares all arrays; empty, or the first difference. tolerance: relative and absolute.
template <class F> std::string differ(const Operands& operands, double tolerance, F&& run) {
  std::vector<std::unique_ptr<Mirror>> mirrors;
  std::vector<TensorView> host, device;
  for (const Array* a : operands) {
    mirrors.push_back(a ? std::make_unique<Mirror>(*a) : nullptr);
    host.push_back(a ? a->view : TensorView()), device.push_back(a ? mirrors.back()->view : TensorView());
  }
  run(cpu_table(), cpu_context(), host);
  run(backend(kCUDA), context(kCUDA), device);
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!operands[k]) continue;
    const Array& a = *operands[k];
    const std::vector<char> got = mirrors[k]->fetch();
    for (int64_t i = 0; i < a.count; ++i) {
      const double x = read(a.view.dtype, a.view.data, i), y = read(a.view.dtype, got.data(), i);
      if (x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= tolerance * (1 + std::abs(x))) continue;
      return "operand " + std::to_string(k) + " (" + std::string(name_of(a.view.dtype)) + ") at " + std::to_string(i) +
             ": CPU " + std::to_string(x) + ", device " + std::to_string(y);
    }
  }
  return "";
}

}  // namespace tapir_tests

#define NEEDS_DEVICE() \
  if (!tapir::cuda::is_available()) SKIP_TEST("no CUDA device")
