#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("pad: modes, cuts, channels last") {
  const Tensor x = view(arange(0, 4, 1, {.dtype = kFloat64}), {1, 1, 4});
  const auto line = [&](std::vector<int64_t> sizes, std::string_view mode) {
    return pad(x, sizes, {.mode = mode}).to_vector<int64_t>();
  };
  CHECK(line({2, 1}, "constant") == std::vector<int64_t>{0, 0, 0, 1, 2, 3, 0});
  CHECK(line({2, 1}, "reflect") == std::vector<int64_t>{2, 1, 0, 1, 2, 3, 2});
  CHECK(line({2, 1}, "replicate") == std::vector<int64_t>{0, 0, 0, 1, 2, 3, 3});
  CHECK(line({2, 1}, "circular") == std::vector<int64_t>{2, 3, 0, 1, 2, 3, 0});
  CHECK(line({-1, 2}, "constant") == std::vector<int64_t>{1, 2, 3, 0, 0});
  CHECK(line({-4, 1}, "constant") == std::vector<int64_t>{0});
  CHECK(line({-1, 2}, "reflect") == std::vector<int64_t>{1, 2, 3, 2, 1});
  CHECK(line({-1, 2}, "circular") == std::vector<int64_t>{1, 2, 3, 1, 2});
  CHECK(line({2, -1}, "circular") == std::vector<int64_t>{1, 2, 0, 1, 2});
  CHECK(pad(contiguous(numbers({2, 3, 4, 5}), kChannelsLast), {1, 1}).is_contiguous(kChannelsLast));
  CHECK(pad(zeros({2, 0}), {1, 1}, {.value = 7}).to_vector<double>() == std::vector<double>{7, 7, 7, 7});
}

TEST_CASE("pad: sizes that do not fit") {
  const Tensor x = zeros({1, 2, 3, 4});
  CHECK(refuses([&] { pad(x, {1, 1, 1}); }, "even"));
  CHECK(refuses([&] { pad(x, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}); }, "at most 8"));
  CHECK(refuses([&] { pad(x, {-2, -3}); }, "-1"));
  CHECK(refuses([&] { pad(x, {INT64_MAX, INT64_MAX}); }, "overflows"));
  CHECK(refuses([&] { pad(x, {4, 0}, {.mode = "reflect"}); }, "reflect", "3"));
  CHECK(refuses([&] { pad(x, {5, 0}, {.mode = "circular"}); }, "circular", "4"));
  CHECK(refuses([&] { pad(zeros({1, 2, 0}), {1, 1}, {.mode = "replicate"}); }, "replicate"));
  CHECK(refuses([&] { pad(x, {1, 1}, {.mode = "reflect"}); }, "3D"));
  CHECK(refuses([&] { pad(x, {1, 1}, {.mode = "mirror"}); }, "mirror"));
  CHECK(refuses([&] { pad(x, {1, 1, 1, 1}, {.mode = "reflect", .value = 0}); }, "value"));
}
