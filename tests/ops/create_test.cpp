#include "helpers.h"

TEST_CASE("arange of integers: start and step are truncated, the count is not") {
  CHECK(values(arange(-0.9, 2.1, 2.0, {.dtype = kInt32})) == Values{0, 2});
  CHECK(values(arange(0, 1.5, 0.5, {.dtype = kInt64})) == Values{0, 0, 0});
  CHECK(values(arange(0.5, 2, 0.5, {.dtype = kFloat64})) == Values{0.5, 1, 1.5});
}
