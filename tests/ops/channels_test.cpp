#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("pixel_shuffle and back") {
  const Tensor x = numbers({2, 12, 3, 4});
  CHECK(close(pixel_unshuffle(pixel_shuffle(x, 2), 2), x));
  CHECK(close(channel_shuffle(channel_shuffle(x, 3), 4), x));
}

TEST_CASE("channels: counts that do not fit") {
  const Tensor x = zeros({2, 6, 3, 4});
  CHECK(refuses([&] { pixel_shuffle(x, 2); }, "divisible", "(2, 6, 3, 4)"));
  CHECK(refuses([&] { pixel_shuffle(x, 0); }, "positive", "0"));
  CHECK(refuses([&] { pixel_shuffle(zeros({6, 3}), 2); }, "3 dimensions"));
  CHECK(refuses([&] { pixel_shuffle(x, int64_t(1) << 40); }, "overflows"));
  CHECK(refuses([&] { pixel_unshuffle(x, 2); }, "divisible"));
  CHECK(refuses([&] { pixel_unshuffle(x, -1); }, "positive"));
  CHECK(refuses([&] { channel_shuffle(x, 4); }, "divides", "6"));
  CHECK(refuses([&] { channel_shuffle(x, 0); }, "0"));
  CHECK(refuses([&] { channel_shuffle(zeros({2, 6}), 2); }, "more than 2"));
  CHECK(refuses([&] { local_response_norm(x, 0); }, "size", "0"));
  CHECK(refuses([&] { local_response_norm(zeros({2, 6}), 2); }, "3D"));
}
