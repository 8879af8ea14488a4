#include <tapir/core/generator.h>

#include "catch.h"
#include "naive.h"

using namespace tapir_tests;

TEST_CASE("dropout: elements stay by the frozen stream, in every float and layout") {
  for (DType t : float_dtypes)
    for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 0, 1}})
      for (double p : {0.0, 0.1, 0.5, 1.0}) {
        Array x(t, {7, 50, 9}, order, {}, 1), y(t, {7, 50, 9}), mask(kBool, {7, 50, 9}, order);
        eighths(x, 3);
        cpu_table().dropout(cpu_context(), {.y = y.view, .mask = mask.view, .x = x.view, .params = {p, 1234, 77}});
        int64_t i = 0;
        bool same = true, right = true;
        for_places(x.view.shape(), [&](const Place& at) {
          const bool keep = double(Philox::uniform(Philox::block(1234, 77 + uint64_t(i) / 4).word[i % 4])) >= p;
          ++i;
          same = same && (get(mask, at) != 0) == keep;
          right =
              right && std::abs(get(y, at) - (keep ? get(x, at) / (1 - p) : 0)) <= tolerance(t) * std::abs(get(y, at));
        });
        CHECK((same && right));
      }
}

TEST_CASE("dropout: p = 1 of infinities is 0; nothing; in place; any number of threads") {
  Array x(kFloat32, {300}), mask(kBool, {300}), empty(kFloat32, {0}), none(kBool, {0});
  x.fill(INFINITY);
  cpu_table().dropout(cpu_context(), {.y = x.view, .mask = mask.view, .x = x.view, .params = {1, 1, 0}});
  CHECK(values(x.view) == std::vector<double>(300, 0));
  cpu_table().dropout(cpu_context(), {.y = empty.view, .mask = none.view, .x = empty.view, .params = {0.5, 1, 0}});

  std::vector<double> first;
  for (int threads : {1, 4}) {
    const Threads guard(threads);
    Array a(kFloat32, {33, 1001}), kept(kBool, {33, 1001});
    a.fill(1);
    cpu_table().dropout(cpu_context(), {.y = a.view, .mask = kept.view, .x = a.view, .params = {0.25, 9, 3}});
    if (threads == 1) first = values(a.view);
    else CHECK(values(a.view) == first);
  }
}

TEST_CASE("random and dropout: a number on the device is added to the offset") {
  Array base(kInt64, {}), x(kFloat32, {100}), y(kFloat32, {100}), ones(kFloat32, {100});
  base.fill(5), ones.fill(1);
  cpu_table().random(cpu_context(), {.out = x.view, .base = base.view, .params = {RandomOp::Uniform, 42, 2}});
  cpu_table().random(cpu_context(), {.out = y.view, .params = {RandomOp::Uniform, 42, 7}});
  CHECK(values(x.view) == values(y.view));
  cpu_table().dropout(cpu_context(), {.y = x.view, .x = ones.view, .base = base.view, .params = {0.5, 42, 2}});
  cpu_table().dropout(cpu_context(), {.y = y.view, .x = ones.view, .params = {0.5, 42, 7}});
  CHECK(values(x.view) == values(y.view));
}
