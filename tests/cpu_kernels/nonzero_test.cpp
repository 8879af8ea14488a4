#include "catch.h"
#include "naive.h"

using namespace tapir_tests;

TEST_CASE("nonzero: coordinates in row-major order, in every dtype and layout") {
  for (DType t : all_dtypes)
    for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 0, 1}}) {
      Array x(t, {4, 5, 3}, order, {}, 1);
      x.random(5, -1, 1);
      std::vector<double> expected;
      for_places(x.view.shape(), [&](const Place& at) {
        if (get(x, at) != 0) expected.insert(expected.end(), at.begin(), at.end());
      });
      const int64_t count = cpu_table().count_nonzero(cpu_context(), {x.view});
      REQUIRE(count == int64_t(expected.size() / 3));
      Array out(kInt64, {count, 3});
      cpu_table().nonzero(cpu_context(), {out.view, x.view});
      CHECK(values(out.view) == expected);
    }
}

TEST_CASE("nonzero: nothing, one element, NaN and minus zero") {
  Array empty(kFloat32, {2, 0}), none(kInt64, {0, 2});
  CHECK(cpu_table().count_nonzero(cpu_context(), {empty.view}) == 0);
  cpu_table().nonzero(cpu_context(), {none.view, empty.view});
  Array one(kFloat32, {}), row(kInt64, {1, 0});
  one.fill(2);
  CHECK(cpu_table().count_nonzero(cpu_context(), {one.view}) == 1);
  cpu_table().nonzero(cpu_context(), {row.view, one.view});
  for (DType t : float_dtypes) {
    Array x(t, {3}), out(kInt64, {1, 1});
    put(x, {0}, -0.0), put(x, {1}, NAN), put(x, {2}, 0);
    CHECK(cpu_table().count_nonzero(cpu_context(), {x.view}) == 1);
    cpu_table().nonzero(cpu_context(), {out.view, x.view});
    CHECK(get(out, {0, 0}) == 1);
  }
}

TEST_CASE("nonzero: many elements, several threads") {
  const Threads guard(4);
  Array x(kBool, {37, 5003});
  x.random(5, 0, 1);
  std::vector<double> expected;
  for_places(x.view.shape(), [&](const Place& at) {
    if (get(x, at) != 0) expected.insert(expected.end(), at.begin(), at.end());
  });
  const int64_t count = cpu_table().count_nonzero(cpu_context(), {x.view});
  REQUIRE(count == int64_t(expected.size() / 2));
  Array out(kInt64, {count, 2});
  cpu_table().nonzero(cpu_context(), {out.view, x.view});
  CHECK(values(out.view) == expected);
}
