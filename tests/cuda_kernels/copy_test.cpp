#include "both.h"

using namespace tapir_tests;

namespace {
std::string copies(DType to, DType from, std::vector<int64_t> shape, std::vector<int> out_order, std::vector<int> order,
                   std::vector<int> repeated = {}, int64_t gap = 0) {
  Array out(to, shape, out_order, {}, gap), x(from, shape, order, repeated, gap);
  x.random(7, -300, 300);
  if (is_floating(from) && x.count > 3) write(from, x.view.data, 1, NAN), write(from, x.view.data, 2, INFINITY);
  return differ({&out, &x}, 0, [](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
    table.copy(ctx, {v[0], v[1]});
  });
}
}  // namespace

TEST_CASE("CUDA copy: every dtype to every dtype, in any layout") {
  NEEDS_DEVICE();
  for (const DType to : all_dtypes)
    for (const DType from : all_dtypes) {
      CAPTURE(name_of(to), name_of(from));
      CHECK(copies(to, from, {1003}, {}, {}) == "");
      CHECK(copies(to, from, {5, 36}, {}, {}, {0}) == "");
      CHECK(copies(to, from, {7, 33}, {}, {1, 0}) == "");
      CHECK(copies(to, from, {3, 5, 7}, {}, {1, 2, 0}, {2}, 2) == "");
      CHECK(copies(to, from, {}, {}, {}) == "");
      CHECK(copies(to, from, {0, 2}, {}, {}) == "");
    }
}

TEST_CASE("CUDA copy: planes that change their order") {
  NEEDS_DEVICE();
  for (const DType t : {kUInt8, kFloat16, kFloat32, kFloat64}) {
    CHECK(copies(t, t, {70, 41}, {}, {1, 0}) == "");
    CHECK(copies(t, t, {3, 64, 130}, {}, {0, 2, 1}) == "");
    CHECK(copies(t, t, {2, 19, 8, 9}, {0, 2, 3, 1}, {}) == "");  // to channels last
    CHECK(copies(t, t, {2, 19, 8, 9}, {}, {0, 2, 3, 1}, {}, 1) == "");
    CHECK(copies(t, t, {4, 9, 3, 10, 2}, {}, {4, 3, 2, 1, 0}) == "");
  }
}

TEST_CASE("CUDA fill and range") {
  NEEDS_DEVICE();
  for (const DType t : all_dtypes) {
    CAPTURE(name_of(t));
    for (const Scalar value : {Scalar(3), Scalar(-2.75), Scalar(true)})
      for (const int64_t gap : {0, 1}) {
        Array out(t, {5, 37}, {1, 0}, {}, gap);
        CHECK(differ({&out}, 0, [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                table.fill(ctx, {v[0], value});
              }) == "");
        Array line(t, {101}, {}, {}, gap);
        CHECK(differ({&line}, 1e-6, [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                table.range(ctx, {v[0], {value, 2}});
              }) == "");
      }
  }
}
