#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace tapir::inline v0::cpu {

/// Whether results of so many bytes are written past the caches: the lines that they overwrite need not be read first. Smaller ones stay
/// for whoever reads them next. The size is that of a common last-level cache; what systems say of theirs is often the whole machine's.
inline bool past_caches([[maybe_unused]] int64_t bytes) {
#if defined(__AVX__)
  return bytes >= int64_t(32) << 20;
#else
  return false;
#endif
}

/// Copies past the caches; end_stream() before another thread may look.
inline void stream_copy(char* to, const char* from, int64_t bytes) {
#if defined(__AVX512F__) || defined(__AVX__)
  const int64_t head = std::min<int64_t>(-reinterpret_cast<uintptr_t>(to) & 63, bytes);
  std::memcpy(to, from, size_t(head));
  int64_t i = head;
  for (; i + 64 <= bytes; i += 64) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
#else
    const auto* x = reinterpret_cast<const __m256i*>(from + i);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), _mm256_loadu_si256(x));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), _mm256_loadu_si256(x + 1));
#endif
  }
  std::memcpy(to + i, from + i, size_t(bytes - i));
#else
  std::memcpy(to, from, size_t(bytes));
#endif
}
inline void end_stream() {
#if defined(__AVX512F__) || defined(__AVX__)
  _mm_sfence();
#endif
}

}  // namespace tapir::inline v0::cpu
