// CUDA's small vectors, dim3, and the variables that tell a thread its place.
#pragma once
#include <cstdint>

#define TAPIR_VECTOR(T, name, align)                                    \
  struct alignas(sizeof(T)) name##1 {                                   \
    T x;                                                                \
  };                                                                    \
  struct alignas(2 * sizeof(T)) name##2 {                               \
    T x, y;                                                             \
  };                                                                    \
  struct name##3 {                                                      \
    T x, y, z;                                                          \
  };                                                                    \
  struct alignas(align) name##4 {                                       \
    T x, y, z, w;                                                       \
  };                                                                    \
  constexpr name##1 make_##name##1(T x) { return {x}; }                 \
  constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TAPIR_VECTOR(signed char, char, 4)
TAPIR_VECTOR(unsigned char, uchar, 4)
TAPIR_VECTOR(short, short, 8)
TAPIR_VECTOR(unsigned short, ushort, 8)
TAPIR_VECTOR(int, int, 16)
TAPIR_VECTOR(unsigned, uint, 16)
TAPIR_VECTOR(long, long, 16)
TAPIR_VECTOR(unsigned long, ulong, 16)
TAPIR_VECTOR(long long, longlong, 16)
TAPIR_VECTOR(unsigned long long, ulonglong, 16)
TAPIR_VECTOR(float, float, 16)
TAPIR_VECTOR(double, double, 16)
#undef TAPIR_VECTOR

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
