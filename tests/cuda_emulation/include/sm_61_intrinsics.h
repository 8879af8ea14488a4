#pragma once
#include <cstdint>

/// sum + the products of the words' four signed bytes; integers wrap.
constexpr int __dp4a(int a, int b, int sum) {
  unsigned total = unsigned(sum);
  for (int shift = 0; shift < 32; shift += 8) total += unsigned(int8_t(a >> shift) * int8_t(b >> shift));
  return int(total);
}
