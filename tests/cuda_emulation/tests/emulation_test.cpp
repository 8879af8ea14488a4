// The emulation's own tests: right kernels give their results under every schedule, and every planted fault is caught. Built twice,
// plain and checked (the .cu files instrumented): what only the checked one can see is marked so.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../../../core/dtype.h"
#include "../../catch.h"
#include "../library_call.h"
#include "arrays.h"
#include "test_kernels.h"

using namespace emulation_tests;
using cuda_emulation::Fault;

namespace {
#ifdef TAPIR_CHECKED
constexpr bool kChecked = true;
#else
constexpr bool kChecked = false;
#endif

/// Runs under several schedules; false where a result is off by more than `tolerance`.
bool same_under_schedules(const std::function<std::vector<float>()>& run, const std::vector<float>& expected,
                          float tolerance = 0) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    cuda_emulation::set_seed(seed);
    const auto y = run();
    for (size_t i = 0; i < y.size(); ++i)
      if (!(std::abs(y[i] - expected[i]) <= tolerance)) return false;
  }
  return true;
}
}  // namespace

TEST_CASE("kernels give the same results under every schedule") {
  const long R = 37, C = 52;
  const auto x = numbers(R * C);
  Array<float> a(x), b(x), y(R * C), sums(R), product(R * R);
  const Matrix ma{a.p, R, C, C, 1}, my{y.p, R, C, C, 1}, mt{b.p, R, C, 1, R};  // mt: the same shape, transposed strides
  std::vector<float> twice(R * C), mixed(R * C), row_sums(R, 0), soft(R * C), products(R * R, 0);
  for (long r = 0; r < R; ++r) {
    float z = 0;
    for (long c = 0; c < C; ++c) {
      const float v = x[size_t(r * C + c)];
      twice[size_t(r * C + c)] = 2 * v, mixed[size_t(r * C + c)] = v + x[size_t(c * R + r)];
      row_sums[size_t(r)] += v, z += std::exp(v);
    }
    for (long c = 0; c < C; ++c) soft[size_t(r * C + c)] = std::exp(x[size_t(r * C + c)]) / z;
  }
  for (long i = 0; i < R; ++i)
    for (long j = 0; j < R; ++j)
      for (long k = 0; k < C; ++k) products[size_t(i * R + j)] += x[size_t(i * C + k)] * x[size_t(j * C + k)];
  CHECK(same_under_schedules([&] { return add(ma, ma, my, nullptr), y.host(); }, twice));
  CHECK(same_under_schedules([&] { return add(ma, mt, my, nullptr), y.host(); }, mixed));
  CHECK(same_under_schedules([&] { return row_sum(a.p, sums.p, R, C, nullptr), sums.host(); }, row_sums, 1e-5f));
  CHECK(same_under_schedules([&] { return softmax(a.p, y.p, R, C, nullptr), y.host(); }, soft, 1e-6f));
  CHECK(same_under_schedules(
      [&] {
        return matmul(ma, {a.p, C, R, 1, C}, {product.p, R, R, R, 1}, nullptr), product.host();
      },
      products, 1e-4f));
  const auto v = numbers(64);
  const std::vector<float> backwards(v.rbegin(), v.rend());
  CHECK(same_under_schedules(
      [&] {
        Array<float> t(v);
        return reverse(t.p, nullptr), t.host();
      },
      backwards));
  float total = 0;
  for (float f : x) total += f;
  CHECK(same_under_schedules(
      [&] {
        Array<float> partial(16), sum(1);
        Array<unsigned> arrived(std::vector<unsigned>{0});
        return last_block_sum(a.p, partial.p, arrived.p, sum.p, R * C, nullptr), sum.host();
      },
      {total}, 1e-4f));
  std::vector<int> values(10000), bins(256, 0);
  for (size_t i = 0; i < values.size(); ++i) ++bins[size_t((values[i] = int(i * i % 1000)) & 255)];
  Array<int> dv(values), h(std::vector<int>(256, 0));
  histogram(dv.p, h.p, 10000, nullptr);
  CHECK(h.host() == bins);
}

TEST_CASE("warp operations") {
  Array<long long> out(32 * kWarpResults);
  for (unsigned seed = 0; seed < 5; ++seed) {
    cuda_emulation::set_seed(seed);
    REQUIRE(warp_operations(out.p, nullptr) == cudaSuccess);
    const auto got = out.host();
    for (int lane = 0; lane < 32; ++lane) {
      INFO(lane);
      const long long* r = &got[size_t(lane * kWarpResults)];
      CHECK(r[0] == 50);
      CHECK(r[1] == lane / 8 * 8 + 2);
      CHECK(r[2] == (lane < 3 ? lane : lane - 3));
      CHECK(r[3] == (lane % 16 + 3 < 16 ? lane + 3 : lane));
      CHECK(r[4] == (lane ^ 5));
      CHECK(r[5] == (1ll << 40) + 7);
      CHECK(r[6] == (lane ^ 1));
      CHECK(r[7] == 0x49249249);
      CHECK(r[8] == 2);
      CHECK(r[9] == 2);
      CHECK(r[10] == 15ll << lane / 4 * 4);
      CHECK(r[11] == -31 * 16);
      CHECK(r[12] == 31);
      CHECK(r[13] == -20);
      CHECK(r[14] == (lane < 16 ? lane ^ 1 : lane ^ 2));
      CHECK(r[15] == 8 + 4 + 31 + 63 + 3 + 3);
    }
  }
}

TEST_CASE("products and matrices of a warp, by the layouts of PTX") {
  const auto whole = [](size_t n, int factor) {  // small numbers, exact in 16 bits
    std::vector<int> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = int(i) * factor % 23 - 11;
    return v;
  };
  const std::vector<int> a = whole(16 * 16, 7), b = whole(16 * 8, 5), before = whole(16 * 8, 3);
  for (const bool half : {false, true}) {
    const auto bits = [&](const std::vector<int>& v) {
      std::vector<unsigned short> out;
      for (const int x : v) out.push_back(half ? tapir::Half(float(x)).bits : tapir::BFloat16(float(x)).bits);
      return out;
    };
    const Array<unsigned short> left(bits(a)), right(bits(b));
    for (unsigned seed = 0; seed < 5; ++seed) {
      cuda_emulation::set_seed(seed);
      Array<float> d(std::vector<float>(before.begin(), before.end()));
      REQUIRE(warp_product(left.p, right.p, d.p, half, nullptr) == cudaSuccess);
      const auto got = d.host();
      for (int i = 0; i < 16 * 8; ++i) {
        int sum = before[size_t(i)];
        for (int k = 0; k < 16; ++k) sum += a[size_t(i / 8 * 16 + k)] * b[size_t(k * 8 + i % 8)];
        CHECK(got[size_t(i)] == float(sum));
      }
    }
  }
  std::vector<float> a32(16 * 8),
      b32(8 * 8);  // halves above 1024, which TF32 has not: a fraction of 10 bits, ties go up
  for (size_t i = 0; i < a32.size(); ++i) a32[i] = 1024 + float(2 * i % 1024) + (i % 2 ? 0.5f : -0.5f);
  for (size_t i = 0; i < b32.size(); ++i) b32[i] = float(int(i % 7) - 3);
  const Array<float> left32(a32), right32(b32);
  Array<float> d32(std::vector<float>(before.begin(), before.end()));
  REQUIRE(warp_tf32_product(left32.p, right32.p, d32.p, true, nullptr) == cudaSuccess);
  const auto got32 = d32.host();
  for (int i = 0; i < 16 * 8; ++i) {
    float sum = float(before[size_t(i)]);
    for (int k = 0; k < 8; ++k) {
      const float x = a32[size_t(i / 8 * 8 + k)];
      sum += (x < 1024 ? x : std::floor(x + 0.5f)) * b32[size_t(k * 8 + i % 8)];
    }
    CHECK(got32[size_t(i)] == sum);
  }
  const auto bytes = [](size_t n, int factor) {
    std::vector<signed char> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = (signed char)(int(i) * factor);
    return v;
  };
  const std::vector<signed char> a8 = bytes(16 * 32, 77), b8 = bytes(32 * 8, 45);
  const Array<signed char> left8(a8), right8(b8);
  Array<int> d8(before);
  REQUIRE(warp_int_product(left8.p, right8.p, d8.p, nullptr) == cudaSuccess);
  const auto got8 = d8.host();
  for (int i = 0; i < 16 * 8; ++i) {
    int sum = before[size_t(i)];
    for (int k = 0; k < 32; ++k) sum += a8[size_t(i / 8 * 32 + k)] * b8[size_t(k * 8 + i % 8)];
    CHECK(got8[size_t(i)] == sum);
  }
  std::vector<unsigned short> rows(32 * 8);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = (unsigned short)(i + 1);
  const Array<unsigned short> x(rows);
  Array<unsigned> words(2 * 4 * 32);
  REQUIRE(warp_matrices(x.p, words.p, nullptr) == cudaSuccess);
  const auto got = words.host();
  for (unsigned i = 0; i < got.size(); ++i) {
    const unsigned m = i / 32 % 4, g = i % 32 / 4, t = i % 4;
    const auto element = [&](unsigned row, unsigned column) {
      const unsigned n = (8 * m + row) * 8 + column + 1;
      return n > 252 ? 0u : n;  // four of the last row are zeros
    };
    CHECK(got[i] == (i < 128 ? element(g, 2 * t) | element(g, 2 * t + 1) << 16
                             : element(2 * t, g) | element(2 * t + 1, g) << 16));
  }
  CHECK_FAULT("was not rounded", warp_tf32_product(left32.p, right32.p, d32.p, false, nullptr));
  CHECK_FAULT("a row of a matrix at no multiple of 16 bytes", misaligned_row(words.p, nullptr));
  Array<float> from(numbers(32)), early(32);
  REQUIRE(early_read(from.p, early.p, nullptr) == cudaSuccess);
  for (const float y : early.host()) CHECK(std::isnan(y));
}

TEST_CASE("block votes, atomics, indices") {
  Array<int> votes(3);
  REQUIRE(block_votes(votes.p, nullptr) == cudaSuccess);
  CHECK(votes.host() == std::vector<int>{0, 1, 48});
  Array<unsigned> words(std::vector<unsigned>(8, 0));
  REQUIRE(atomics(words.p, nullptr) == cudaSuccess);
  const auto w = words.host();
  CHECK(w[0] == 200);
  CHECK(w[1] == 99);
  CHECK(w[2] == ~0u);
  CHECK(w[3] == 0);  // the exclusive or of 0 to 99
  float f;
  std::memcpy(&f, &w[4], 4);
  CHECK(f == 50);
  CHECK(w[6] == 300);
  CHECK(int(w[7]) == -99);
  const dim3 grid(2, 3, 2), block(3, 2, 4);
  Array<uint3> where(12 * 24);
  REQUIRE(where_am_i(where.p, grid, block, nullptr) == cudaSuccess);
  const auto at = where.host();
  const uint3 last = at[12 * 24 - 1], middle = at[(1 + 2 * (2 + 3 * 0)) * 24 + (2 + 3 * (1 + 2 * 1))];
  CHECK((last.x == 102 && last.y == 201 && last.z == 103));
  CHECK((middle.x == 102 && middle.y == 201 && middle.z == 1));
}

TEST_CASE("launches that CUDA refuses are refused") {
  CHECK(bare_launch(1, 1024, 0, nullptr) == cudaSuccess);
  CHECK(bare_launch(1, 1025, 0, nullptr) == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(bare_launch(0, 1, 0, nullptr) == cudaErrorInvalidConfiguration);
  CHECK(bare_launch(1, 0, 0, nullptr) == cudaErrorInvalidConfiguration);
  CHECK(bare_launch(dim3(1, 65536), 1, 0, nullptr) == cudaErrorInvalidConfiguration);
  CHECK(bare_launch(1, dim3(1, 1, 65), 0, nullptr) == cudaErrorInvalidConfiguration);
  CHECK(bare_launch(1, 1, 49 << 10, nullptr) == cudaErrorInvalidValue);
  Array<float> y(128);
  CHECK(large_shared(y.p, false, nullptr) == cudaErrorInvalidValue);
  CHECK(large_shared(y.p, true, nullptr) == cudaSuccess);
  CHECK(y.host()[1] == 25598);
  CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(&numbers), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             228 << 10) == cudaErrorInvalidValue);
  CHECK(bare_launch(1, 1, 0, reinterpret_cast<cudaStream_t>(0x1234)) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  CHECK(std::string(cudaGetErrorName(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
}

TEST_CASE("a launch beyond __launch_bounds__ is refused") {
  int most = 0;
  CHECK(bounded_launch(64, 64, &most, nullptr) == cudaSuccess);
  CHECK(most == 64);
  CHECK(bounded_launch(64, 65, &most, nullptr) == cudaErrorLaunchOutOfResources);
  CHECK(cudaGetLastError() == cudaErrorLaunchOutOfResources);
  for (int bound : {1024, 0}) {  // 0: none is written
    CHECK(bounded_launch(bound, 1024, &most, nullptr) == cudaSuccess);
    CHECK(most == 1024);
  }
}

TEST_CASE("barriers that not all threads reach") {
  Array<float> y(64);
  CHECK_FAULT("diverge_kernel] barrier divergence. Threads: 63 in __syncthreads at ", diverge(y.p, nullptr));
  CHECK_FAULT("two_barriers_kernel] barrier divergence", two_barriers(y.p, nullptr));
  CHECK_FAULT("lost_lane_kernel] barrier divergence", lost_lane(y.p, nullptr));
  CHECK_NO_FAULT(reverse(y.p, nullptr));  // and the next kernel is none the worse
}

TEST_CASE("accesses out of range") {
  Array<float> x(64), y(64), odd(50);
  y.set(numbers(64));
  CHECK_FAULT("beyond_end_kernel] block (1, 0, 0) thread (0, 0, 0): touches the allocation of 256 bytes at byte 256",
              beyond_end(y.p, 64, nullptr));
  CHECK_FAULT(
      kChecked ? "touches the allocation of 200 bytes at byte 200" : "wrote just outside the allocation of 200 bytes",
      beyond_end(odd.p, 50, nullptr));
  CHECK_FAULT(kChecked ? "4 bytes before its begin" : "wrote just outside", before_begin(x.p, nullptr));
  CHECK_FAULT("touches the allocation of 256 bytes at byte 256", read_beyond_end(y.p, x.p, 64, nullptr));
  CHECK_FAULT("misaligned_read_kernel] block (0, 0, 0) thread (0, 0, 0): misaligned access: ",
              misaligned_read(y.p, nullptr));
  CHECK_FAULT("at a multiple of 16 bytes, got one and 8", misaligned_write(y.p, nullptr));
  CHECK_FAULT("overflow_stack_kernel] block (0, 0, 0) thread (0, 0, 0): touches an address",
              overflow_stack(y.p, nullptr));
  CHECK_FAULT("[cudaMemsetAsync] touches the allocation of 200 bytes at byte 200", cudaMemset(odd.p, 0, 201));
  CHECK_FAULT("[cudaMemcpy] ", cudaMemcpy(y.p, odd.p, 201, cudaMemcpyDeviceToDevice));
}

TEST_CASE("memory that was freed or never written") {
  Array<float> x(64), y(64);
  float* gone;
  cudaMalloc(&gone, 256);
  cudaMemset(gone, 0, 256);
  cudaFree(gone);
  CHECK_FAULT("scale_kernel] argument 0 points to device memory that is not allocated", scale(gone, y.p, 64, nullptr));
  CHECK_FAULT("[cudaFree] ", cudaFree(gone));
  CHECK_FAULT("[cudaFree] ", cudaFree(x.p + 1));
  Array<float*> table(std::vector<float*>{gone});
  CHECK_FAULT("through_table_kernel] block (0, 0, 0) thread (0, 0, 0): touches device memory that is not allocated",
              through_table(table.p, y.p, nullptr));
  table.set({x.p});
  CHECK_NO_FAULT(through_table(table.p, y.p, nullptr));
  Array<float> fresh(64);
  scale(fresh.p, y.p, 64, nullptr);
  CHECK(std::isnan(y.host()[63]));
}

TEST_CASE("host memory in a kernel, device memory on the host") {
  std::vector<float> on_host(64);
  Array<float> y(64);
  cudaMemset(y.p, 0, 256);
  CHECK_FAULT("scale_kernel] argument 0 is a host pointer", scale(on_host.data(), y.p, 64, nullptr));
  const Matrix right{y.p, 1, 64, 64, 1}, wrong{on_host.data(), 1, 64, 64, 1};
  CHECK_FAULT("add_kernel] argument 1 at byte 0 is a host pointer", add(right, wrong, {y.p, 2, 3, 1, 2}, nullptr));
  float* pinned;
  cudaHostAlloc(&pinned, 256, cudaHostAllocMapped);
  for (int i = 0; i < 64; ++i) pinned[i] = float(i);
  CHECK_NO_FAULT(scale(pinned, y.p, 64, nullptr));
  CHECK(y.host()[3] == 6);
  cudaFreeHost(pinned);
  CHECK_FAULT("host code used a device pointer, into the allocation of 256 bytes", *static_cast<volatile float*>(y.p));
  CHECK_FAULT("host code used a device pointer", *static_cast<volatile float*>(y.p) = 1);
#ifndef __SANITIZE_ADDRESS__  // its memcpy lets no exception pass: there the program ends
  CHECK_FAULT("host code used a device pointer", std::memcpy(on_host.data(), y.p, 256));
#endif
  CHECK(y.host()[3] == 6);
}

TEST_CASE("a host access where nothing can be thrown ends the program with a message") {
  Array<float> y(64);
  int output[2];
  REQUIRE(pipe(output) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(output[1], 2);
    close(1);  // what the test framework says of its child
    std::signal(SIGABRT, SIG_DFL);
    [&]() noexcept { (void)*static_cast<volatile float*>(y.p); }();
    _exit(0);
  }
  close(output[1]);
  std::string text;
  char buffer[256];
  for (ssize_t n; (n = read(output[0], buffer, sizeof buffer)) > 0;) text.append(buffer, size_t(n));
  close(output[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_FALSE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(text.find("host code used a device pointer") != std::string::npos);
}

TEST_CASE("races in a block and between blocks") {
  Array<float> y(numbers(64));
  if (kChecked) {
    CHECK_FAULT("shared memory", reverse_without_barrier(y.p, nullptr));
    CHECK_FAULT("shared memory", warp_without_sync(y.p, nullptr));
    CHECK_FAULT("data race on global memory", blocks_meet(y.p, nullptr));
    CHECK_FAULT("reads shared memory that no thread of the block has written", uninitialised_shared(y.p, nullptr));
    return;
  }
  const auto run = [&] {
    Array<float> v(numbers(64));
    return reverse_without_barrier(v.p, nullptr), v.host();
  };
  cuda_emulation::set_seed(0);
  CHECK_FALSE(same_under_schedules(run, run()));
}

TEST_CASE("what an early kernel reads before it has waited") {
  const auto run = [](const Array<float>& x, Array<float>& y, bool early, bool lets_first = false) {
    return copy_ahead(x.p, y.p, early, lets_first, nullptr);
  };
  Array<float> x(numbers(32)), y(numbers(32)), z(32);
  REQUIRE(run(x, y, false) == cudaSuccess);
  REQUIRE(run(x, z, true) == cudaSuccess);
  REQUIRE(run(x, z, true) == cudaSuccess);
  CHECK(z.host() == x.host());
  if (!kChecked) return;
  CHECK_FAULT("uses device memory before it has waited", run(x, y, true));  // behind a copy
  REQUIRE(run(x, y, false) == cudaSuccess);
  CHECK_FAULT("reads, before it has waited, what the kernel before it wrote", run(y, z, true));
  REQUIRE(run(x, y, false, true) == cudaSuccess);
  REQUIRE(run(x, y, true, true) == cudaSuccess);
  CHECK_FAULT("uses device memory before it has waited", run(x, z, true));
}

TEST_CASE("waits that are missing") {
  Array<float> x(64), y(64);
  std::vector<float> on_host(64);
  NewStream s1, s2;
  NewEvent done;
  cudaMemset(x.p, 0, 256), cudaMemset(y.p, 0, 256), cudaDeviceSynchronize();
  scale(x.p, y.p, 64, s1);
  CHECK_FAULT("scale_kernel] reads the allocation of 256 bytes that ", scale(y.p, x.p, 64, s2));
  CHECK_FAULT("scale_kernel wrote on another stream: no event or synchronization orders the two",
              cudaMemcpyAsync(on_host.data(), y.p, 256, cudaMemcpyDeviceToHost, s2));
  CHECK_FAULT("[cudaMemsetAsync] writes the allocation of 256 bytes while another stream still reads it",
              cudaMemsetAsync(x.p, 0, 256, s2));
  cudaEventRecord(done, s1), cudaStreamWaitEvent(s2, done);
  CHECK_NO_FAULT(scale(y.p, x.p, 64, s2));
  CHECK_FAULT("reads", scale(x.p, y.p, 64, s1));
  cudaStreamSynchronize(s2);
  CHECK_NO_FAULT(scale(x.p, y.p, 64, s1));
  NewStream b1(cudaStreamDefault), b2(cudaStreamDefault);  // the default stream orders these, and them alone
  cudaDeviceSynchronize();
  scale(x.p, y.p, 64, b1);
  CHECK_FAULT("reads", scale(y.p, x.p, 64, b2));
  CHECK_NO_FAULT(scale(y.p, x.p, 64, nullptr));
  CHECK_NO_FAULT(scale(x.p, y.p, 64, b2));
  CHECK_FAULT("no event or synchronization orders the two", scale(x.p, y.p, 64, s1));
}

TEST_CASE("copies to and from pinned memory end when the host has waited") {
  float* pinned;
  REQUIRE(cudaMallocHost(&pinned, 256) == cudaSuccess);
  Array<float> x(64), y(64);
  NewStream s;
  NewEvent done;
  std::fill(pinned, pinned + 64, 3.f);
  cudaMemcpyAsync(x.p, pinned, 256, cudaMemcpyHostToDevice, s);
  pinned[5] = 4;
  CHECK_FAULT("the host changed the pinned source", cudaStreamSynchronize(s));
  std::fill(pinned, pinned + 64, 3.f);
  cudaMemcpyAsync(x.p, pinned, 256, cudaMemcpyHostToDevice, s);
  cudaMemcpyAsync(pinned, x.p, 256, cudaMemcpyDeviceToHost, s);  // in order on the stream: no fault
  CHECK(std::isnan(pinned[0]));
  cudaMemcpyAsync(y.p, pinned, 256, cudaMemcpyHostToDevice, s);
  cudaEventRecord(done, s);
  while (cudaEventQuery(done) == cudaErrorNotReady) {}
  CHECK(pinned[63] == 3);
  cudaFreeHost(pinned);
  CHECK(y.host()[63] == 3);
}

TEST_CASE("two devices") {
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  REQUIRE(count == 2);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  cudaGetLastError();
  Array<float> x(numbers(64)), y(64);
  cudaSetDevice(1);
  {
    Array<float> there(64);
    NewStream s;
    CHECK_FAULT("it belongs to device 0, the work runs on device 1", scale(x.p, there.p, 64, s));
    CHECK_FAULT("it belongs to device 0", cudaMemsetAsync(x.p, 0, 256, s));
    CHECK(cudaMemcpyPeerAsync(there.p, 1, x.p, 0, 256, s) == cudaSuccess);
    CHECK(cudaMemcpyPeerAsync(there.p, 0, x.p, 1, 256, s) == cudaErrorInvalidValue);
    CHECK(scale(there.p, there.p, 64, s) == cudaSuccess);
    cudaStreamSynchronize(s);
    cudaSetDevice(0);
    CHECK(scale(x.p, y.p, 64, s) == cudaErrorInvalidResourceHandle);
    cudaGetLastError();
    CHECK(there.host()[3] == 2 * numbers(64)[3]);
    cudaPointerAttributes a;
    CHECK(cudaPointerGetAttributes(&a, there.p) == cudaSuccess);
    CHECK((a.type == cudaMemoryTypeDevice && a.device == 1));
  }
  int of_other_thread = -1;
  cudaSetDevice(1);
  std::thread([&] { cudaGetDevice(&of_other_thread); }).join();
  CHECK(of_other_thread == 0);
  cudaSetDevice(0);
}

TEST_CASE("memory is limited") {
  size_t before, free, total;
  REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
  void *p, *q;
  REQUIRE(cudaMalloc(&p, total / 2) == cudaSuccess);
  CHECK(cudaMalloc(&q, total / 2 + (1 << 20)) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  cudaMemGetInfo(&free, &total);
  CHECK(free == before - total / 2);
  cudaFree(p);
  cudaMemGetInfo(&free, &total);
  CHECK(free == before);
}

TEST_CASE("virtual memory: addresses apart from memory, mapped, opened and taken away") {
  constexpr size_t kPage = size_t(2) << 20, kFloats = kPage / sizeof(float);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result;
  CHECK(cudaGetDriverEntryPointByVersion("cuMemNoSuch", &entry, 12000, cudaEnableDefault, &result) == cudaSuccess);
  CHECK(result == cudaDriverEntryPointSymbolNotFound);
  CHECK(cudaGetDriverEntryPointByVersion("cuMemMap", &entry, 12000, cudaEnableDefault, &result) == cudaSuccess);
  CHECK(entry == reinterpret_cast<void*>(&cuMemMap));

  size_t before, total, unit = 0;
  CUmemAllocationProp of_device{};
  of_device.type = CU_MEM_ALLOCATION_TYPE_PINNED, of_device.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  REQUIRE(cuMemGetAllocationGranularity(&unit, &of_device, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
  CHECK(unit == kPage);
  REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
  CUdeviceptr at = 0;
  CHECK(cuMemAddressReserve(&at, kPage + 1, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuMemAddressReserve(&at, 4 * kPage, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(at % kPage == 0);
  auto* const x = reinterpret_cast<float*>(uintptr_t(at));
  CHECK_FAULT("not allocated", cudaMemset(x, 0, 8));
  CUmemGenericAllocationHandle memory = 0;
  CHECK(cuMemCreate(&memory, total + kPage, &of_device, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CUmemAccessDesc access{of_device.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (const size_t page : {1, 2}) {
    REQUIRE(cuMemCreate(&memory, kPage, &of_device, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(at + page * kPage + 512, kPage, 0, memory, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemMap(at + 4 * kPage, kPage, 0, memory, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemMap(at + page * kPage, kPage, 0, memory, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(at + page * kPage, kPage, 0, memory, 0) == CUDA_ERROR_INVALID_VALUE);  // there is something
    CHECK(cuMemRelease(memory) == CUDA_SUCCESS);
    CHECK_FAULT("not allocated", cudaMemset(x + page * kFloats + 4096, 0, 8));  // not opened
    REQUIRE(cuMemSetAccess(at + page * kPage, kPage, &access, 1) == CUDA_SUCCESS);
  }
  size_t free;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(before - free == 2 * kPage);

  float* const middle = x + 2 * kFloats;  // the border of two mappings
  CHECK_NO_FAULT(cudaMemset(middle - 64, 0, 128 * sizeof(float)));
  Array<float> from(std::vector<float>(128, 3));
  CHECK_NO_FAULT(scale(from.p, middle - 64, 128, nullptr));
  std::vector<float> host(128);
  CHECK_NO_FAULT(cudaMemcpy(host.data(), middle - 64, 512, cudaMemcpyDeviceToHost));
  CHECK(host == std::vector<float>(128, 6));
  CHECK_FAULT("not allocated", cudaMemset(x, 0, 8));
  CHECK_FAULT("at byte", cudaMemset(x + 3 * kFloats - 2, 0, 16));
  CHECK_FAULT("touches", scale(from.p, x + 3 * kFloats - 64, 128, nullptr));
  CHECK_FAULT("not the begin", cudaFree(x + kFloats));

  NewStream side;
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK_NO_FAULT(cudaMemsetAsync(middle, 0, 64, side));
  CHECK_FAULT("may not be done", cuMemUnmap(at + 2 * kPage, kPage));
  REQUIRE(cudaStreamSynchronize(side) == cudaSuccess);
  CHECK(cuMemUnmap(at + 2 * kPage, kPage / 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAddressFree(at, 4 * kPage) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cuMemUnmap(at + kPage, 2 * kPage) == CUDA_SUCCESS);
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == before - 512);  // `from`
  CHECK_FAULT("not allocated", cudaMemset(middle, 0, 8));
  CHECK(cuMemAddressFree(at, 4 * kPage) == CUDA_SUCCESS);
}

TEST_CASE("events measure time") {
  NewEvent start{cudaEventDefault}, end{cudaEventDefault}, blind;
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, start, end) == cudaErrorInvalidResourceHandle);
  NewStream s;
  cudaEventRecord(start, s);
  bare_launch(100, 32, 0, s);
  cudaEventRecord(end, s);
  CHECK(cudaEventElapsedTime(&ms, start, end) == cudaErrorNotReady);
  cudaEventSynchronize(end);
  CHECK(cudaEventElapsedTime(&ms, start, end) == cudaSuccess);
  CHECK(ms > 0);
  cudaEventRecord(blind, s);
  CHECK(cudaEventElapsedTime(&ms, start, blind) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_CASE("two host threads launch on two streams") {
  const auto run = [](int n) {
    Array<float> x(numbers(1000)), y(1000);
    NewStream s;
    cudaDeviceSynchronize();
    for (int i = 0; i < n; ++i) scale(x.p, y.p, 1000, s), scale(y.p, y.p, 1000, s);
    cudaStreamSynchronize(s);
    return y.host()[999] == 4 * numbers(1000)[999];
  };
  bool first = false, second = false;
  std::thread t([&] { first = run(200); });
  second = run(200);
  t.join();
  CHECK((first && second));
}

TEST_CASE("host functions run") {
  NewStream s;
  int ran = 0;
  CHECK(cudaLaunchHostFunc(
            s, [](void* p) { *static_cast<int*>(p) = 1; }, &ran) == cudaSuccess);
  cudaStreamSynchronize(s);
  CHECK(ran == 1);
}

TEST_CASE("a library call opens what it announces") {
  Array<float> x(numbers(64)), y(64);
  {
    cuda_emulation::LibraryCall call("gemm", cudaStream_t());
    call.reads(x.p, 256), call.writes(y.p, 256);
    for (int i = 0; i < 64; ++i) y.p[i] = x.p[i] + 1;
    call.end();
  }
  CHECK(y.host()[5] == numbers(64)[5] + 1);
  CHECK_FAULT("[gemm] touches device memory that it did not announce, into the allocation of 256 bytes", [&] {
    cuda_emulation::LibraryCall call("gemm", cudaStream_t());
    return *static_cast<volatile float*>(x.p);
  }());
  CHECK_FAULT("[gemm] touches the allocation of 256 bytes at byte 256", [&] {
    cuda_emulation::LibraryCall call("gemm", cudaStream_t());
    call.reads(x.p, 260);
  }());
}

// Run in a process of their own, with the environment that the last test case sets.
TEST_CASE("child: no device", "[.child]") {
  int count = -1;
  void* p;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
  CHECK(cudaMalloc(&p, 1) == cudaErrorNoDevice);
  CHECK(cudaSetDevice(0) == cudaErrorNoDevice);
  CHECK(bare_launch(1, 1, 0, nullptr) == cudaErrorInvalidResourceHandle);
}
TEST_CASE("child: old driver", "[.child]") {
  int count = -1, driver = 0;
  CHECK(cudaDriverGetVersion(&driver) == cudaSuccess);
  CHECK(driver == 11040);
  CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
}
TEST_CASE("child: another architecture", "[.child]") {
  cudaDeviceProp p;
  REQUIRE(cudaGetDeviceProperties(&p, 0) == cudaSuccess);
  CHECK(p.major * 10 + p.minor == 75);
  Array<float> x(std::vector<float>(64, 1));
  CHECK(scale(x.p, x.p, 64, nullptr) == cudaErrorNoKernelImageForDevice);
  CHECK(cudaGetLastError() == cudaErrorNoKernelImageForDevice);
  CHECK(x.host() == std::vector<float>(64, 1));
}
TEST_CASE("child: little memory", "[.child]") {
  size_t free, total;
  void* p;
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(total == 1 << 20);
  CHECK(cudaMalloc(&p, (1 << 20) + 1) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&p, 1 << 20) == cudaSuccess);
}
TEST_CASE("child: order is not checked", "[.child]") {
  Array<float> x(64), y(64);
  NewStream s1, s2;
  cudaDeviceSynchronize();
  scale(x.p, y.p, 64, s1);
  CHECK_NO_FAULT(scale(y.p, x.p, 64, s2));
}
TEST_CASE("what the environment says") {
  const auto passes = [](const std::string& setting, const std::string& name) {
    return tapir_tests::run_alone(setting, "child: " + name) == 0;
  };
  CHECK(passes("TAPIR_EMULATED_DEVICES=0", "no device"));
  CHECK(passes("TAPIR_EMULATED_DRIVER=11040", "old driver"));
  CHECK(passes("TAPIR_EMULATED_MEMORY=1048576", "little memory"));
  CHECK(passes("TAPIR_EMULATED_CAPABILITY=75", "another architecture"));
  CHECK(passes("TAPIR_EMULATED_ORDER=0", "order is not checked"));
  CHECK_FALSE(passes("TAPIR_EMULATED_ORDER=1", "order is not checked"));
}

TEST_CASE("more allocations than a process may have mappings") {
  Array<float> x(numbers(64));
  for (int i = 0; i < 70000; ++i) {
    Array<float> y(64);
    if (cudaMemsetAsync(y.p, 0, 256) != cudaSuccess) FAIL("memset");
  }
  CHECK(x.host()[5] == numbers(64)[5]);
}
