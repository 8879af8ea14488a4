// What the stand-in for NCCL does with bytes: element types, reductions, sockets.
#pragma once
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

using Bytes = std::string;

namespace {

constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr const char *kTypes[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                  "uint64", "float16", "float32", "float64", "bfloat16"},
                     *kReductions[] = {"sum", "prod", "max", "min", "avg"};

float from_bf16(uint16_t v) {
  const uint32_t bits = uint32_t(v) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
uint16_t to_bf16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
template <class A> A combine(A a, A b, int op) {
  return op == 1 ? a * b : op == 2 ? std::max(a, b) : op == 3 ? std::min(a, b) : a + b;
}

template <class T, class A = T, class From, class To>
Bytes reduced(const std::vector<Bytes>& in, int op, From from, To to) {
  Bytes out = in[0];
  for (size_t i = 0; i < out.size() / sizeof(T); ++i) {
    A sum{};
    for (size_t r = 0; r < in.size(); ++r) {
      T v;
      std::memcpy(&v, in[r].data() + i * sizeof(T), sizeof(T));
      sum = r ? combine<A>(sum, from(v), op) : from(v);
    }
    if (op == 4) sum = A(sum / A(in.size()));
    const T y = to(sum);
    std::memcpy(out.data() + i * sizeof(T), &y, sizeof(T));
  }
  return out;
}
#ifdef __aarch64__  // where g++ has no _Float16 before version 13
using Float16 = __fp16;
#else
using Float16 = _Float16;
#endif
Bytes reduced(const std::vector<Bytes>& in, int type, int op) {
  const auto same = [](auto v) { return v; };
  switch (type) {
    case 0: return reduced<int8_t>(in, op, same, same);
    case 1: return reduced<uint8_t>(in, op, same, same);
    case 2: return reduced<int32_t>(in, op, same, same);
    case 4: return reduced<int64_t>(in, op, same, same);
    case 6:
      return reduced<Float16, float>(
          in, op, [](Float16 v) { return float(v); }, [](float v) { return Float16(v); });
    case 7: return reduced<float>(in, op, same, same);
    case 8: return reduced<double>(in, op, same, same);
    default: return reduced<uint16_t, float>(in, op, from_bf16, to_bf16);
  }
}

bool send_all(int fd, const void* data, size_t n) {
  for (auto* p = static_cast<const char*>(data); n > 0;) {
    const ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
    if (k <= 0) return false;
    p += k, n -= size_t(k);
  }
  return true;
}
bool recv_all(int fd, void* data, size_t n) {
  for (auto* p = static_cast<char*>(data); n > 0;) {
    const ssize_t k = recv(fd, p, n, 0);
    if (k <= 0) return false;
    p += k, n -= size_t(k);
  }
  return true;
}
bool send_bytes(int fd, const Bytes& b) {
  const uint64_t n = b.size();
  return send_all(fd, &n, sizeof n) && send_all(fd, b.data(), n);
}
bool recv_bytes(int fd, Bytes& b) {
  uint64_t n = 0;
  if (!recv_all(fd, &n, sizeof n)) return false;
  b.resize(n);
  return recv_all(fd, b.data(), n);
}

}  // namespace
