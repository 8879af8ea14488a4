#include <tapir/core/dims.h>
#include <tapir/core/error.h>

#include "../catch.h"
#include "messages.h"

using namespace tapir;
using tapir_tests::message_of;

TEST_CASE("dims hold up to 16 numbers") {
  CHECK(Dims().str() == "()");
  CHECK(Dims(4).str() == "(4,)");
  CHECK(Dims{2, -3, 4}.str() == "(2, -3, 4)");
  CHECK(Dims::filled(16, 1).size() == 16);
  CHECK(message_of<ValueError>([] { Dims::filled(17, 1); }) == "[Shape] expected at most 16 dimensions, got 17");
  CHECK_THROWS_AS(Dims(std::vector<int64_t>(17, 2)), ValueError);
  Dims d{1, 2, 3};
  d.insert(1, 9);
  CHECK(d == Dims{1, 9, 2, 3});
  d.erase(0);
  CHECK(d == Dims{9, 2, 3});
  CHECK(d.contains(2));
  CHECK(!d.contains(1));
}

TEST_CASE("strides of contiguous shapes") {
  CHECK(contiguous_strides({2, 3, 4}) == Strides{12, 4, 1});
  CHECK(contiguous_strides({2, 0, 4}) == Strides{4, 4, 1});
  CHECK(is_contiguous({2, 1, 4}, {4, 77, 1}));
  CHECK(!is_contiguous({2, 3}, {1, 2}));
  CHECK(numel_of({}) == 1);
}
