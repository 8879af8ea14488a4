#include <algorithm>
#include <cmath>
#include <thread>

#include <tapir/core/generator.h>
#include <tapir/core/normal.h>

#include "../catch.h"

using namespace tapir;

namespace {
bool equals(const Philox::Block& b, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  return b.word[0] == w0 && b.word[1] == w1 && b.word[2] == w2 && b.word[3] == w3;
}
}  // namespace

TEST_CASE("Philox 4x32-10 gives the known answers") {
  CHECK(equals(Philox::block(0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));  // Random123's kat_vectors
  static_assert(Philox::block(0, 0).word[0] == 0x6627e8d5);
  // Frozen: these words are what every saved seed stands for.
  CHECK(equals(Philox::block(42, 0), 0x9ceaf053, 0x77f5493b, 0x12bf50ad, 0x5742b3d7));
  CHECK(
      equals(Philox::block(0x0123456789abcdef, 0xfedcba9876543210, 1), 0x2b19200b, 0x5bee5d38, 0x781fe46e, 0x8fc6e39d));
}

TEST_CASE("uniform and integer formulas") {
  CHECK(Philox::uniform(0) == 0.0f);
  CHECK(Philox::uniform(0xffffffff) == 1 - 0x1p-24f);
  CHECK(Philox::uniform(0xffffffff, 0xffffffff) == 1 - 0x1p-53);
  CHECK(Philox::uniform(0x80000000, 0) == 0.5);
  CHECK(Philox::integer(0xffffffff, 6) == 5);
  CHECK(Philox::integer(0, 6) == 0);
  uint64_t x = 88172645463325252u;
  int bad = 0;
  for (int i = 0; i < 100000; ++i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    const uint64_t range = (x * 0x9e3779b97f4a7c15u >> (i % 64)) | 1;
    __extension__ using Wide = unsigned __int128;
    bad += Philox::integer(uint32_t(x >> 32), uint32_t(x), range) != uint64_t(Wide(x) * range >> 64);
  }
  CHECK(bad == 0);
  CHECK(Philox::integer(0x12345678, 0x9abcdef0, 0) == 0x123456789abcdef0);
}

TEST_CASE("normal pairs agree with libm") {
  double worst = -1, sum = 0, squares = 0;
  const int blocks = 50000;
  for (int i = 0; i < blocks; ++i) {
    const auto b = Philox::block(7, uint64_t(i));
    const auto [x, y] = normal_pair(b.word[0], b.word[1]);
    const double u = (double(b.word[0]) + 1) * 0x1p-32, v = double(b.word[1] >> 8) * 0x1p-24;
    const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * 3.14159265358979323846 * v;
    // Words are rounded to float first: near u = 1 the radius then has an absolute error of sqrt(2 * 2^-25).
    const double allowed = 2e-6 * radius + (u > 0.99 ? 4e-4 : 0);
    worst = std::max(
        {worst, std::abs(x - radius * std::cos(angle)) - allowed, std::abs(y - radius * std::sin(angle)) - allowed});
    sum += x + y, squares += double(x) * x + double(y) * y;
  }
  CHECK(worst < 0);
  CHECK(std::abs(sum / (2 * blocks)) < 0.015);
  CHECK(std::abs(squares / (2 * blocks) - 1) < 0.02);
  for (uint32_t w : {0u, 1u, 0xffffffffu}) {
    CHECK(std::isfinite(normal_pair(w, w).first));
    CHECK(std::isfinite(normal_pair(w, w, w, w).second));
  }
}

TEST_CASE("a generator counts blocks of four") {
  Generator g(5);
  CHECK(g.take(1) == std::pair<uint64_t, uint64_t>{5, 0});
  CHECK(g.take(4) == std::pair<uint64_t, uint64_t>{5, 1});
  CHECK(g.take(5) == std::pair<uint64_t, uint64_t>{5, 2});
  CHECK(g.offset() == 4);
  g.set_state(9, 3);
  CHECK(g.take(0) == std::pair<uint64_t, uint64_t>{9, 3});
  CHECK(g.offset() == 3);
}

TEST_CASE("manual_seed restarts every thread's generator") {
  const auto side_seed = [] {
    uint64_t seed = 0;
    std::thread([&] { seed = default_generator().seed(); }).join();
    return seed;
  };
  manual_seed(123);
  CHECK(default_generator().seed() == 123);
  default_generator().take(100);
  const uint64_t first = side_seed(), second = side_seed();
  CHECK(first != 123);
  CHECK(first != second);
  manual_seed(123);
  CHECK(default_generator().offset() == 0);
  CHECK(side_seed() == first);
  CHECK(side_seed() == second);
  manual_seed(124);
  CHECK(side_seed() != first);
  uint64_t own = 0;
  std::thread([&] { manual_seed(77), own = default_generator().seed(); }).join();
  CHECK(own == 77);
  CHECK(default_generator().seed() == 124);  // a side thread seeds itself alone
  manual_seed(0);
}
