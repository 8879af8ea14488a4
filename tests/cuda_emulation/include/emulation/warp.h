// Barriers and the operations of a warp. The default argument knows the line of the call, so that a message can name it.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "launch.h"

namespace cuda_emulation {
using Site = std::source_location;
enum class Vote { None, And, Or, Count };
#pragma GCC visibility push(hidden)
int barrier(Vote vote, bool predicate, const Site& site);
/// What a lane gets of the values that the lanes of `mask` brought; values[i] counts where bit i of mask is set.
using Combine = uint64_t (*)(const uint64_t (&values)[32], unsigned mask, unsigned lane, uint64_t own);
/// Waits for the lanes of `mask`. `source`: the lane whose value this one gets, where `combine` is null.
uint64_t exchange(unsigned mask, uint64_t value, unsigned source, Combine combine, bool orders_memory,
                  const Site& site);
void note_fence();
[[noreturn]] void trap();
#pragma GCC visibility pop

template <class T> uint64_t to_bits(T v) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  return bits;
}
template <class T> T from_bits(uint64_t bits) {
  T v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}
inline unsigned lane_id() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }
/// What a register of a shuffle may be; smaller integers are widened to int by the caller, as CUDA's overloads do.
template <class T>
concept Register = std::is_arithmetic_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8);
template <class T> T shuffle(unsigned mask, T v, unsigned source, const Site& site) {  // does not order memory
  return from_bits<T>(exchange(mask, to_bits(v), source, nullptr, false, site));
}
inline uint64_t ballot(const uint64_t (&values)[32], unsigned mask, unsigned, uint64_t) {
  uint64_t all = 0;
  for (unsigned m = mask; m; m &= m - 1) all |= (values[std::countr_zero(m)] & 1) << std::countr_zero(m);
  return all;
}
template <class Op> uint64_t reduce(unsigned mask, uint64_t v, Op, const Site& site) {
  const auto fold = [](const uint64_t(&values)[32], unsigned mask, unsigned, uint64_t) {
    uint64_t all = values[std::countr_zero(mask)];
    for (unsigned m = mask & (mask - 1); m; m &= m - 1) all = Op{}(all, values[std::countr_zero(m)]);
    return all;
  };
  return exchange(mask, v, 0, fold, false, site);
}
}  // namespace cuda_emulation

#define TAPIR_SITE const cuda_emulation::Site& site = cuda_emulation::Site::current()
inline void __syncthreads(TAPIR_SITE) { cuda_emulation::barrier(cuda_emulation::Vote::None, false, site); }
inline int __syncthreads_and(int p, TAPIR_SITE) { return cuda_emulation::barrier(cuda_emulation::Vote::And, p, site); }
inline int __syncthreads_or(int p, TAPIR_SITE) { return cuda_emulation::barrier(cuda_emulation::Vote::Or, p, site); }
inline int __syncthreads_count(int p, TAPIR_SITE) {
  return cuda_emulation::barrier(cuda_emulation::Vote::Count, p, site);
}
inline void __syncwarp(unsigned mask = ~0u, TAPIR_SITE) {
  cuda_emulation::exchange(mask, 0, cuda_emulation::lane_id(), nullptr, true, site);
}
inline void __threadfence() { cuda_emulation::note_fence(); }
inline void __threadfence_system() { cuda_emulation::note_fence(); }
inline void __threadfence_block() {}
[[noreturn]] inline void __trap() { cuda_emulation::trap(); }
inline void __nanosleep(unsigned) {}

template <cuda_emulation::Register T> T __shfl_sync(unsigned mask, T v, int source, int width = 32, TAPIR_SITE) {
  const int first = int(cuda_emulation::lane_id()) / width * width;
  return cuda_emulation::shuffle(mask, v, unsigned(first + source % width), site);
}
template <cuda_emulation::Register T> T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, TAPIR_SITE) {
  const int lane = int(cuda_emulation::lane_id());
  return cuda_emulation::shuffle(mask, v, unsigned(lane % width >= int(delta) ? lane - int(delta) : lane), site);
}
template <cuda_emulation::Register T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, TAPIR_SITE) {
  const int lane = int(cuda_emulation::lane_id());
  return cuda_emulation::shuffle(mask, v, unsigned(lane % width + int(delta) < width ? lane + int(delta) : lane), site);
}
template <cuda_emulation::Register T> T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, TAPIR_SITE) {
  // As in the hardware: a lane of a later group is out of reach, one of an earlier group is not.
  const int lane = int(cuda_emulation::lane_id()), other = lane ^ bits, last = lane / width * width + width - 1;
  return cuda_emulation::shuffle(mask, v, unsigned(other <= last ? other : lane), site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, TAPIR_SITE) {
  return unsigned(cuda_emulation::exchange(mask, predicate != 0, 0, cuda_emulation::ballot, false, site));
}
inline int __any_sync(unsigned mask, int predicate, TAPIR_SITE) { return __ballot_sync(mask, predicate, site) != 0; }
inline int __all_sync(unsigned mask, int predicate, TAPIR_SITE) { return __ballot_sync(mask, !predicate, site) == 0; }
template <class T>
requires(sizeof(T) == 4 || sizeof(T) == 8) unsigned __match_any_sync(unsigned mask, T v, TAPIR_SITE) {
  const auto same = [](const uint64_t(&values)[32], unsigned mask, unsigned, uint64_t own) {
    uint64_t lanes = 0;
    for (unsigned m = mask; m; m &= m - 1) lanes |= uint64_t(values[std::countr_zero(m)] == own) << std::countr_zero(m);
    return lanes;
  };
  return unsigned(cuda_emulation::exchange(mask, cuda_emulation::to_bits(v), 0, same, false, site));
}
#define TAPIR_REDUCE(name, T, formula)                             \
  inline T name(unsigned mask, T v, TAPIR_SITE) {                  \
    const auto op = [](uint64_t p, uint64_t q) {                   \
      const T a = T(p), b = T(q);                                  \
      return uint64_t(formula);                                    \
    };                                                             \
    return T(cuda_emulation::reduce(mask, uint64_t(v), op, site)); \
  }
TAPIR_REDUCE(__reduce_add_sync, unsigned, a + b)
TAPIR_REDUCE(__reduce_add_sync, int, unsigned(a) + unsigned(b))
TAPIR_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
TAPIR_REDUCE(__reduce_min_sync, int, a < b ? a : b)
TAPIR_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
TAPIR_REDUCE(__reduce_max_sync, int, a > b ? a : b)
TAPIR_REDUCE(__reduce_and_sync, unsigned, a& b)
TAPIR_REDUCE(__reduce_or_sync, unsigned, a | b)
TAPIR_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef TAPIR_REDUCE
#undef TAPIR_SITE
