// Atomic operations, with exactly the types that CUDA has them for. One fiber runs at a time, so each is a read and a write; the
// compiler's instrumentation is off in them, and note_atomic tells the race check what they do.
#pragma once
#include <cstddef>

#include "launch.h"

namespace cuda_emulation {
#pragma GCC visibility push(hidden)
void note_atomic(const void* address, size_t size);
#pragma GCC visibility pop
}  // namespace cuda_emulation

#ifdef __SANITIZE_THREAD__
#define TAPIR_NOTE_ATOMIC(p) cuda_emulation::note_atomic(p, sizeof *(p))
#else
#define TAPIR_NOTE_ATOMIC(p) void(0)
#endif
#define TAPIR_ATOMIC(name, T, formula)                              \
  __attribute__((no_sanitize("thread"))) inline T name(T* p, T v) { \
    TAPIR_NOTE_ATOMIC(p);                                           \
    const T old = *p;                                               \
    *p = static_cast<T>(formula);                                   \
    return old;                                                     \
  }                                                                 \
  inline T name##_block(T* p, T v) { return name(p, v); }           \
  inline T name##_system(T* p, T v) { return name(p, v); }
#define TAPIR_ATOMIC_OF_INTEGERS(name, formula) \
  TAPIR_ATOMIC(name, int, formula)              \
  TAPIR_ATOMIC(name, unsigned, formula)         \
  TAPIR_ATOMIC(name, unsigned long long, formula)
TAPIR_ATOMIC(atomicAdd, int, unsigned(old) + unsigned(v))
TAPIR_ATOMIC(atomicAdd, unsigned, old + v)
TAPIR_ATOMIC(atomicAdd, unsigned long long, old + v)
TAPIR_ATOMIC(atomicAdd, float, old + v)
TAPIR_ATOMIC(atomicAdd, double, old + v)
TAPIR_ATOMIC(atomicSub, int, unsigned(old) - unsigned(v))
TAPIR_ATOMIC(atomicSub, unsigned, old - v)
TAPIR_ATOMIC_OF_INTEGERS(atomicMin, old < v ? old : v)
TAPIR_ATOMIC_OF_INTEGERS(atomicMax, old > v ? old : v)
TAPIR_ATOMIC(atomicMin, long long, old < v ? old : v)
TAPIR_ATOMIC(atomicMax, long long, old > v ? old : v)
TAPIR_ATOMIC_OF_INTEGERS(atomicAnd, old& v)
TAPIR_ATOMIC_OF_INTEGERS(atomicOr, old | v)
TAPIR_ATOMIC_OF_INTEGERS(atomicXor, old ^ v)
TAPIR_ATOMIC_OF_INTEGERS(atomicExch, v)
TAPIR_ATOMIC(atomicExch, float, v)
TAPIR_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)
TAPIR_ATOMIC(atomicDec, unsigned, old == 0 || old > v ? v : old - 1)
#define TAPIR_ATOMIC_CAS(T)                                                          \
  __attribute__((no_sanitize("thread"))) inline T atomicCAS(T* p, T expected, T v) { \
    TAPIR_NOTE_ATOMIC(p);                                                            \
    const T old = *p;                                                                \
    if (old == expected) *p = v;                                                     \
    return old;                                                                      \
  }
TAPIR_ATOMIC_CAS(int)
TAPIR_ATOMIC_CAS(unsigned)
TAPIR_ATOMIC_CAS(unsigned long long)
TAPIR_ATOMIC_CAS(unsigned short)
#undef TAPIR_ATOMIC
#undef TAPIR_ATOMIC_OF_INTEGERS
#undef TAPIR_ATOMIC_CAS
