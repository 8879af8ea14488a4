// What the tests share: arrays on the device, streams and events with an end, and what a Fault says.
#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "../../catch.h"

namespace emulation_tests {

template <class T> struct Array {  // on the device
  T* p = nullptr;
  size_t n;
  explicit Array(size_t n) : n(n) {
    if (cudaMalloc(&p, n * sizeof(T)) != cudaSuccess) FAIL("cudaMalloc");
  }
  explicit Array(const std::vector<T>& v) : Array(v.size()) { set(v); }
  Array(const Array&) = delete;
  ~Array() { cudaFree(p); }
  void set(const std::vector<T>& v) {
    REQUIRE(cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  std::vector<T> host() const {
    std::vector<T> v(n);
    REQUIRE(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return v;
  }
};
struct NewStream {
  cudaStream_t s = nullptr;
  explicit NewStream(unsigned flags = cudaStreamNonBlocking) {
    REQUIRE(cudaStreamCreateWithFlags(&s, flags) == cudaSuccess);
  }
  ~NewStream() { cudaStreamDestroy(s); }
  operator cudaStream_t() const { return s; }
};
struct NewEvent {
  cudaEvent_t e = nullptr;
  explicit NewEvent(unsigned flags = cudaEventDisableTiming) {
    REQUIRE(cudaEventCreateWithFlags(&e, flags) == cudaSuccess);
  }
  ~NewEvent() { cudaEventDestroy(e); }
  operator cudaEvent_t() const { return e; }
};
inline std::vector<float> numbers(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = float(i * 37 % 101) / 50 - 1;
  return v;
}
/// What the Fault of `run` says; empty where there is none.
inline std::string fault_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const cuda_emulation::Fault& f) {
    return f.what();
  }
  return {};
}

}  // namespace emulation_tests

#define CHECK_FAULT(text, ...)                                      \
  do {                                                              \
    const std::string got = fault_of([&] { (void)(__VA_ARGS__); }); \
    INFO(got);                                                      \
    CHECK(got.find(text) != std::string::npos);                     \
  } while (false)
#define CHECK_NO_FAULT(...) CHECK(fault_of([&] { (void)(__VA_ARGS__); }) == "")
