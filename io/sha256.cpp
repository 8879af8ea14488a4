#include "sha256.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "file.h"

namespace tapir::inline v0::io {

namespace {

using State = std::array<uint32_t, 8>;

constexpr bool is_prime(uint32_t n) {
  for (uint32_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return true;
}

/// floor(n^(1/k) 2^32) for k 2 or 3, by bisection on 128-bit integers: the greatest r with r^k <= n 2^(32 k).
constexpr uint64_t scaled_root(uint32_t n, int k) {
  uint64_t low = 0, high = uint64_t(20) << 32;
  while (high - low > 1) {
    const uint64_t r = low + (high - low) / 2;
    bool fits;
    if (k == 2) fits = static_cast<unsigned __int128>(r) * r <= static_cast<unsigned __int128>(n) << 64;
    else {  // r^3 <= n 2^96  <=>  r^2 <= floor(n 2^96 / r), and n 2^96 is below 2^105
      fits = static_cast<unsigned __int128>(r) * r <= (static_cast<unsigned __int128>(n) << 96) / r;
    }
    (fits ? low : high) = r;
  }
  return low;
}

/// The fractional bits of roots of the first `N` primes: the constants of the standard.
template <size_t N> constexpr std::array<uint32_t, N> root_bits(int k) {
  std::array<uint32_t, N> out{};
  uint32_t prime = 2;
  for (auto& word : out) {
    word = uint32_t(scaled_root(prime, k));
    while (!is_prime(++prime)) {}
  }
  return out;
}
constexpr State kStart = root_bits<8>(2);
constexpr std::array<uint32_t, 64> kRound = root_bits<64>(3);
static_assert(kStart[0] == 0x6a09e667 && kRound[63] == 0xc67178f2);

void add_block(State& state, const unsigned char* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] = uint32_t(block[4 * i]) << 24 | uint32_t(block[4 * i + 1]) << 16 | uint32_t(block[4 * i + 2]) << 8 |
           block[4 * i + 3];
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25), choice = (e & f) ^ (~e & g);
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t t = h + s1 + choice + kRound[size_t(i)] + w[i];
    h = g, g = f, f = e, e = d + t, d = c, c = b, b = a, a = t + s0 + majority;
  }
  const State add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += add[i];
}

/// The last bytes with their padding (a 1 bit, zeros, the length in bits) and the digits.
std::string finish(State state, const unsigned char* rest, uint64_t total) {
  const size_t count = total % 64;
  unsigned char blocks[128] = {};
  std::copy_n(rest, count, blocks);
  blocks[count] = 0x80;
  const size_t size = count < 56 ? 64 : 128;
  for (size_t i = 0; i < 8; ++i) blocks[size - 1 - i] = static_cast<unsigned char>(total * 8 >> 8 * i);
  for (size_t at = 0; at < size; at += 64) add_block(state, blocks + at);
  std::string text;
  for (const uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  return text;
}

}  // namespace

std::string sha256(std::string_view bytes) {
  State state = kStart;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t at = 0;
  for (; bytes.size() - at >= 64; at += 64) add_block(state, data + at);
  return finish(state, data + at, bytes.size());
}

std::string sha256_of_file(const std::string& path) {
  InputFile file("sha256", path);
  State state = kStart;
  unsigned char block[64];
  int64_t at = 0;
  for (; file.size() - at >= 64; at += 64) {
    file.read(at, block, 64);
    add_block(state, block);
  }
  file.read(at, block, file.size() - at);
  return finish(state, block, uint64_t(file.size()));
}

}  // namespace tapir::inline v0::io
