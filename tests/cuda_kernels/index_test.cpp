#include "both.h"

using namespace tapir_tests;

TEST_CASE("CUDA gather and index: all dtypes, layouts, key counts") {
  NEEDS_DEVICE();
  for (DType t : all_dtypes)
    for (const int64_t gap : {0, 1}) {
      Array x(t, {6, 32}, {}, {}, gap), out(t, {4, 32}), at(kInt64, {4, 32});
      x.random(3), at.random(5, 0, 5);
      CHECK(differ({&out, &x, &at}, 0, [](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
              table.gather(ctx, {v[0], v[1], v[2], {0}});
            }) == "");
      Array rows(kInt64, {3, 2}, {1, 0}), to(t, {3, 2, 32});
      rows.random(7, -6, 5);
      CHECK(differ({&to, &x, &rows}, 0, [](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
              table.index(ctx, {v[0], v[1], {v[2]}, {}});
            }) == "");
      Array y(t, {5, 4, 3, 8}, {1, 0, 2, 3}, {}, gap), a(kInt64, {7}), b(kInt64, {7}), picked(t, {7, 3, 8});
      y.random(9), a.random(1, -5, 4), b.random(2, -4, 3);
      CHECK(differ({&picked, &y, &a, &b}, 0,
                   [](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                     table.index(ctx, {v[0], v[1], {v[2], v[3]}, {}});
                   }) == "");
      Array all(t, {5, 4, 3, 8});
      CHECK(differ({&all, &y}, 0, [](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
              table.index(ctx, {v[0], v[1], {}, {}});
            }) == "");
    }
}

TEST_CASE("CUDA index: a bad position is reported at the next wait") {
  NEEDS_DEVICE();
  Array x(kFloat32, {6, 4}), out(kFloat32, {5, 4}), at(kInt64, {5});
  at.set(6, 3), at.set(-7, 4);
  Mirror mx(x), mout(out), mat(at);
  Context& ctx = context(kCUDA);
  backend(kCUDA).index(ctx, {mout.view, mx.view, {mat.view}, {}});
  check_values(ctx, "[test] {value} at {position} of {bound}");
  CHECK_THROWS_WITH(mout.fetch(), "[test] 6 at 3 of 6");
}

namespace {
std::string puts_alike(DType t, int64_t rows, int64_t positions, int64_t width, bool accumulate, bool repeats_source) {
  Array out(t, {rows, width}), at(kInt64, {positions});
  Array source(t, {positions, width}, {}, repeats_source ? std::vector<int>{0} : std::vector<int>{});
  out.random(2, 0, 2), source.random(3, 0, 2), at.random(5, int(-rows), int(rows) - 1);
  return differ({&out, &source, &at}, 0,
                [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                  table.index_put(ctx, {v[0], v[1], {v[2]}, {accumulate}});
                });
}
std::string scatters_alike(DType t, std::vector<int64_t> out_shape, std::vector<int64_t> shape, int64_t dim,
                           ScatterOp op, std::vector<int> repeated = {}) {
  Array out(t, out_shape), at(kInt64, shape, {}, repeated), source(t, shape);
  const bool product = op == ScatterOp::Multiply;
  out.random(2, product ? 1 : 0, product ? 1 : 3), source.random(3, product ? 1 : -2, product ? 1 : 3);
  for (int64_t i = 0; product && i < source.count; i += 301) write(t, source.view.data, i, 2);
  if (is_floating(t) && op == ScatterOp::Max) write(t, source.view.data, 1, std::nan(""));
  at.random(5, 0, int(out_shape[size_t(dim)]) - 1);
  return differ({&out, &source, &at}, 0,
                [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                  table.scatter(ctx, {v[0], v[2], v[1], {dim, op}});
                });
}
}  // namespace

TEST_CASE("CUDA index_put: repeated positions, many of them") {
  NEEDS_DEVICE();
  for (DType t : all_dtypes)
    for (const bool accumulate : {false, true}) {
      CHECK(puts_alike(t, 5, 1, 7, accumulate, false) == "");
      CHECK(puts_alike(t, 5, 40, 7, accumulate, false) == "");
      CHECK(puts_alike(t, 40, 300, 33, accumulate, false) == "");
      CHECK(puts_alike(t, 9, 40, 3, accumulate, true) == "");
    }
  for (const bool accumulate : {false, true}) {
    CHECK(puts_alike(kFloat32, 3, 3000, 1, accumulate, false) == "");
    CHECK(puts_alike(kInt64, 1, 3000, 2, accumulate, false) == "");
    CHECK(puts_alike(kFloat64, 2000, 3000, 1, accumulate, false) == "");
  }
}

TEST_CASE("CUDA scatter: lines and sorted positions") {
  NEEDS_DEVICE();
  for (DType t : all_dtypes)
    for (const ScatterOp op :
         {ScatterOp::Assign, ScatterOp::Add, ScatterOp::Multiply, ScatterOp::Max, ScatterOp::Min}) {
      CHECK(scatters_alike(t, {5, 6, 4}, {4, 9, 3}, 1, op) == "");
      CHECK(scatters_alike(t, {6, 4}, {300, 4}, 0, op) == "");
      CHECK(scatters_alike(t, {4, 200}, {3, 150}, 1, op) == "");
      CHECK(scatters_alike(t, {50, 40}, {300, 33}, 0, op, {1}) == "");
    }
  CHECK(scatters_alike(kFloat32, {2}, {5000}, 0, ScatterOp::Add) == "");
}

TEST_CASE("CUDA nonzero: counts and coordinates") {
  NEEDS_DEVICE();
  for (DType t : all_dtypes)
    for (const auto& shape : {std::vector<int64_t>{}, {7}, {3, 5, 4}, {70, 80}}) {
      std::vector<int> order;
      for (size_t d = shape.size(); d-- > 0;) order.push_back(int(d));
      Array x(t, shape, order, {}, 1);
      x.random(5, 0, 1);
      Mirror mirror(x);
      const int64_t count = cpu_table().count_nonzero(cpu_context(), {x.view});
      CHECK(backend(kCUDA).count_nonzero(context(kCUDA), {mirror.view}) == count);
      Array out(kInt64, {count, int64_t(shape.size())}, {1, 0});
      CHECK(differ({&out, &x}, 0, [](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
              table.nonzero(ctx, {v[0], v[1]});
            }) == "");
    }
}
