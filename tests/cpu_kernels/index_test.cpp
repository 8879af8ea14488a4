#include "catch.h"
#include "naive.h"

using namespace tapir_tests;

namespace {

struct Case {
  std::vector<int64_t> table, index;  // shapes
  size_t keys;
  std::vector<int> order;
};
const Case cases[] = {
    {{5, 3, 4}, {6}, 1, {0, 1, 2}}, {{5, 3, 4}, {6}, 1, {2, 1, 0}}, {{5, 3, 4}, {2, 3}, 2, {0, 2, 1}},
    {{5, 3, 4}, {7}, 3, {0, 1, 2}}, {{5, 3, 4}, {}, 1, {1, 0, 2}},  {{9}, {4, 2}, 1, {0}},
    {{4, 70}, {20}, 1, {0, 1}},     {{3, 2}, {}, 0, {0, 1}},        {{2, 2, 2, 2}, {3, 1, 2}, 2, {3, 2, 1, 0}},
};

std::vector<int64_t> result_shape(const Case& c) {
  std::vector<int64_t> shape = c.index;
  shape.insert(shape.end(), c.table.begin() + int64_t(c.keys), c.table.end());
  return shape;
}
struct Keys {
  std::vector<Array> arrays;
  std::vector<TensorView> views;
  explicit Keys(const Case& c) {
    for (size_t k = 0; k < c.keys; ++k) {
      arrays.emplace_back(kInt64, c.index, std::vector<int>{}, std::vector<int>{}, k % 2);
      arrays.back().random(uint32_t(11 + k), -int(c.table[k]), int(c.table[k]) - 1);
    }
    for (Array& a : arrays) views.push_back(a.view);
  }
  /// Where in the table a place of the result lies.
  Place in_table(const Case& c, const Place& at) const {
    Place to;
    const Place head(at.begin(), at.begin() + int64_t(c.index.size()));
    for (size_t k = 0; k < c.keys; ++k) {
      const int64_t i = int64_t(get(arrays[k], head));
      to.push_back(i < 0 ? i + c.table[k] : i);
    }
    to.insert(to.end(), at.begin() + int64_t(c.index.size()), at.end());
    return to;
  }
};

}  // namespace

TEST_CASE("index: keys of any number, shape and sign, in every dtype") {
  for (DType t : all_dtypes)
    for (const Case& c : cases) {
      Array x(t, c.table, c.order), out(t, result_shape(c));
      x.random(3);
      const Keys keys(c);
      Context& ctx = cpu_context();
      cpu_table().index(ctx, {out.view, x.view, keys.views, {}});
      CHECK(!ctx.error.set);
      bool same = true;
      for_places(out.view.shape(),
                 [&](const Place& at) { same = same && get(out, at) == get(x, keys.in_table(c, at)); });
      CHECK(same);
    }
}

TEST_CASE("index_put: the last one wins, or all add up") {
  for (bool accumulate : {false, true})
    for (DType t : all_dtypes)
      for (const Case& c : cases) {
        Array out(t, c.table, c.order), source(t, result_shape(c));
        out.random(3), source.random(5);
        Array expected = copy_of(out);
        const Keys keys(c);
        for_places(source.view.shape(), [&](const Place& at) {
          const Place to = keys.in_table(c, at);
          put(expected, to, accumulate ? get(expected, to) + get(source, at) : get(source, at));
        });
        cpu_table().index_put(cpu_context(), {out.view, source.view, keys.views, {accumulate}});
        CHECK(values(out.view) == values(expected.view));
      }
}

TEST_CASE("index and index_put: a bad index is recorded, the other elements are right") {
  Array x(kFloat32, {3, 4}), index(kInt64, {5}), out(kFloat32, {5, 4});
  x.random(3), index.fill(-1), out.fill(-9);
  put(index, {2}, 3), put(index, {4}, -4);
  const std::vector<TensorView> keys{index.view};
  Context& ctx = cpu_context();
  cpu_table().index(ctx, {out.view, x.view, keys, {}});
  CHECK((ctx.error.set && ctx.error.position == 2 && ctx.error.value == 3 && ctx.error.bound == 3));
  for_places(out.view.shape(),
             [&](const Place& at) { CHECK(get(out, at) == (at[0] == 2 || at[0] == 4 ? -9 : get(x, with(at, 0, 2)))); });

  Array target(kInt64, {3, 4});
  target.fill(0);
  Context& again = cpu_context();
  cpu_table().index_put(again, {target.view, TensorView(Scalar(1), kInt64), keys, {true}});
  CHECK((again.error.set && again.error.position == 2));
  for_places(target.view.shape(), [&](const Place& at) { CHECK(get(target, at) == (at[0] == 2 ? 3 : 0)); });
}

TEST_CASE("index and index_put: nothing to do") {
  Array x(kFloat32, {3, 4}), none(kInt64, {0}), empty(kFloat32, {0, 4}), thin(kFloat32, {3, 0}), one(kInt64, {2}),
      out(kFloat32, {2, 0});
  one.fill(1), x.random(1);
  const auto before = values(x.view);
  cpu_table().index(cpu_context(), {empty.view, x.view, std::vector<TensorView>{none.view}, {}});
  cpu_table().index(cpu_context(), {out.view, thin.view, std::vector<TensorView>{one.view}, {}});
  cpu_table().index_put(cpu_context(), {x.view, empty.view, std::vector<TensorView>{none.view}, {true}});
  CHECK(values(x.view) == before);
}

TEST_CASE("index_put: sums do not depend on the number of threads") {
  std::vector<double> first;
  for (int threads : {1, 4}) {
    const Threads guard(threads);
    Array grad(kFloat32, {50, 600}), index(kInt64, {200}), dy(kFloat32, {200, 600});
    grad.fill(0), index.random(3, 0, 49), eighths(dy, 4);
    for (int64_t i = 0; i < dy.count; ++i) write(kFloat32, dy.view.data, i, read(kFloat32, dy.view.data, i) * 0.123f);
    cpu_table().index_put(cpu_context(), {grad.view, dy.view, std::vector<TensorView>{index.view}, {true}});
    if (threads == 1) first = values(grad.view);
    else CHECK(values(grad.view) == first);
  }
}
