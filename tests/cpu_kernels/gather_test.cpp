#include "catch.h"
#include "naive.h"

using namespace tapir_tests;

namespace {

struct Layout {
  std::vector<int> order;
  int64_t gap;
};
const Layout layouts[] = {{{0, 1, 2}, 0}, {{2, 0, 1}, 0}, {{1, 2, 0}, 2}};

}  // namespace

TEST_CASE("gather: every dtype, dimension and layout") {
  for (DType t : all_dtypes)
    for (const auto& [order, gap] : layouts)
      for (int64_t dim : {0, 1, 2}) {
        Array x(t, {4, 5, 3}, order, {}, gap), index(kInt64, {3, 4, 2}, order), out(t, {3, 4, 2});
        x.random(7), index.random(9, 0, dim == 0 ? 3 : dim == 1 ? 4 : 2);
        Context& ctx = cpu_context();
        cpu_table().gather(ctx, {out.view, x.view, index.view, {dim}});
        CHECK(!ctx.error.set);
        bool same = true;
        for_places(out.view.shape(), [&](const Place& at) {
          same = same && get(out, at) == get(x, with(at, dim, int64_t(get(index, at))));
        });
        CHECK(same);
      }
}

TEST_CASE("gather: nothing, one element, bad indices") {
  Array x(kFloat32, {3}), none(kInt64, {0}), empty(kFloat32, {0});
  x.random(1);
  cpu_table().gather(cpu_context(), {empty.view, x.view, none.view, {0}});
  Array x0(kFloat32, {}), i0(kInt64, {}), y0(kFloat32, {});
  x0.fill(5), i0.fill(0);
  cpu_table().gather(cpu_context(), {y0.view, x0.view, i0.view, {0}});
  CHECK(get(y0, {}) == 5);

  Array index(kInt64, {2, 3}), table(kFloat32, {3, 3}), out(kFloat32, {2, 3});
  table.random(2), index.fill(1), out.fill(-9);
  put(index, {0, 2}, -1), put(index, {1, 1}, 7);
  Context& ctx = cpu_context();
  cpu_table().gather(ctx, {out.view, table.view, index.view, {0}});
  CHECK((ctx.error.set && ctx.error.position == 2 && ctx.error.value == -1 && ctx.error.bound == 3));
  for_places(out.view.shape(),
             [&](const Place& at) { CHECK(get(out, at) == (get(index, at) == 1 ? get(table, with(at, 0, 1)) : -9)); });

  Array nothing(kFloat32, {0, 3});
  Context& again = cpu_context();
  cpu_table().gather(again, {out.view, nothing.view, index.view, {0}});
  CHECK((again.error.set && again.error.position == 0 && again.error.bound == 0));
}

TEST_CASE("scatter: the last one wins, sums add up, in every dtype and layout") {
  for (ScatterOp op : {ScatterOp::Assign, ScatterOp::Add})
    for (DType t : all_dtypes)
      for (const auto& [order, gap] : layouts)
        for (int64_t dim : {0, 1, 2}) {
          Array out(t, {4, 5, 3}, order, {}, gap), index(kInt64, {3, 4, 2}, order), source(t, {4, 4, 3});
          out.random(3), source.random(7), index.random(9, 0, dim == 0 ? 3 : dim == 1 ? 4 : 2);
          Array expected = copy_of(out);
          for_places(index.view.shape(), [&](const Place& at) {
            const Place to = with(at, dim, int64_t(get(index, at)));
            put(expected, to, op == ScatterOp::Add ? get(expected, to) + get(source, at) : get(source, at));
          });
          cpu_table().scatter(cpu_context(), {out.view, index.view, source.view, {dim, op}});
          CHECK(values(out.view) == values(expected.view));
        }
}

TEST_CASE("scatter: a bad index leaves everything as it was") {
  Array out(kFloat32, {3, 4}), index(kInt64, {2, 4}), source(kFloat32, {2, 4});
  out.random(3), source.fill(8), index.fill(2);
  const auto before = values(out.view);
  put(index, {1, 1}, 3), put(index, {1, 3}, -1);
  Context& ctx = cpu_context();
  cpu_table().scatter(ctx, {out.view, index.view, source.view, {0, ScatterOp::Add}});
  CHECK((ctx.error.set && ctx.error.position == 5 && ctx.error.value == 3 && ctx.error.bound == 3));
  CHECK(values(out.view) == before);
}

TEST_CASE("scatter: a number as the source, nothing, one element; any number of threads") {
  Array out(kInt32, {3}), index(kInt64, {2}), none(kInt64, {0}), o0(kInt32, {}), i0(kInt64, {});
  out.fill(1), index.fill(2), o0.fill(1), i0.fill(0);
  cpu_table().scatter(cpu_context(), {out.view, index.view, TensorView(Scalar(4), kInt32), {0, ScatterOp::Add}});
  CHECK(values(out.view) == std::vector<double>{1, 1, 9});
  cpu_table().scatter(cpu_context(), {out.view, none.view, none.view, {0, ScatterOp::Add}});
  cpu_table().scatter(cpu_context(), {o0.view, i0.view, TensorView(Scalar(4), kInt32), {0, ScatterOp::Assign}});
  CHECK(get(o0, {}) == 4);

  std::vector<double> one;
  for (int threads : {1, 4}) {
    const Threads guard(threads);
    Array sum(kFloat32, {10, 300}), ids(kInt64, {500, 300}), x(kFloat32, {500, 300});
    sum.fill(0), ids.random(1, 0, 9), eighths(x, 5);
    for (int64_t i = 0; i < x.count; ++i) write(kFloat32, x.view.data, i, read(kFloat32, x.view.data, i) * 1.2345f);
    cpu_table().scatter(cpu_context(), {sum.view, ids.view, x.view, {0, ScatterOp::Add}});
    if (threads == 1) one = values(sum.view);
    else CHECK(values(sum.view) == one);
  }
}
