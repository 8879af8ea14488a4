// Random numbers that are the same on every machine.
#pragma once
#include <cstdint>

namespace ops_fuzz {

/// Steele, Lea and Flood 2014, SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return int64_t(next() % uint64_t(n)); }
  double unit() { return double(next() >> 11) * 0x1p-53; }
  bool chance(double p) { return unit() < p; }
  template <class List> const auto& of(const List& list) { return list[size_t(below(int64_t(list.size())))]; }

 private:
  uint64_t state_;
};

}  // namespace ops_fuzz
