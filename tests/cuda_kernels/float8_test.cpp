// cuda_kernels/quant/float8: bytes and products of 8-bit floats beside the CPU's.
#include "../variable.h"
#include "both.h"
#include "kernels.h"

using namespace tapir;
using tapir_tests::Array, tapir_tests::differ, tapir_tests::Variable;

namespace {

/// Numbers of many sizes. turned: columns lie as rows do; repeats: all rows are one.
Array matrix(DType dtype, int64_t m, int64_t n, bool turned = false, int64_t gap = 0, bool repeats = false) {
  Array x(dtype, {m, n}, turned ? std::vector<int>{1, 0} : std::vector<int>{0, 1},
          repeats ? std::vector<int>{0} : std::vector<int>{}, gap);
  x.random(uint32_t(m * 31 + n), -3000, 3000);
  for (int64_t i = 0; i < x.count; ++i)
    tapir_tests::write(dtype, x.view.data, i,
                       tapir_tests::read(dtype, x.view.data, i) * std::pow(2.0, double(i * 7 % 23) - 20));
  return x;
}
/// The same bytes and the same scale on both devices.
std::string bytes_differ(Array& x, Float8 format, bool rows = true, bool columns = true) {
  Array out(kUInt8, {x.view.sizes[0], x.view.sizes[1]}), turned(kUInt8, {x.view.sizes[1], x.view.sizes[0]}),
      scale(kFloat32, {});
  return differ({rows ? &out : nullptr, columns ? &turned : nullptr, &scale, &x}, 0,
                [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                  table.to_float8(ctx, {.out = v[0], .transposed = v[1], .scale = v[2], .x = v[3], .params = {format}});
                });
}

constexpr int64_t kShapes[][2] = {{1, 1},   {1, 16},   {16, 1},   {3, 5},     {64, 128},  {65, 129}, {63, 127},
                                  {16, 48}, {130, 16}, {48, 300}, {200, 272}, {17, 1040}, {0, 4},    {4, 0}};

int64_t served() {
  const std::string text = cuda::library_report();
  const size_t library = text.find("cuBLASLt"), at = text.find("served: ", library);
  return library == text.npos || at == text.npos ? 0 : std::stoll(text.substr(at + 8));
}

struct Product {
  Array a, b, a_scale, b_scale, out, bias;
  Float8MatmulParams params;
  Product(int64_t m, int64_t n, int64_t k, DType dtype, Float8MatmulParams params, DType bias_dtype,
          bool turned = false)
      : a(kUInt8, {m, k}), b(kUInt8, {n, k}), a_scale(kFloat32, {}), b_scale(kFloat32, {}),
        out(dtype, {m, n}, turned ? std::vector<int>{1, 0} : std::vector<int>{0, 1}), bias(bias_dtype, {n}),
        params(params) {
    a.random(uint32_t(m), 0, 0x5f), b.random(uint32_t(n + 1), 0, 0x5f), bias.random(3, -40, 40);
    for (Array* x : {&a, &b})
      for (int64_t i = 0; i < x->count; ++i)  // of both signs
        tapir_tests::write(kUInt8, x->view.data, i,
                           tapir_tests::read(kUInt8, x->view.data, i) + (i * 5 % 3 == 0 ? 128 : 0));
    a_scale.fill(0.013f), b_scale.fill(0.37f);
  }
  std::string differs(double tolerance, bool with_bias = true) {
    return differ(
        {&out, &a, &a_scale, &b, &b_scale, with_bias ? &bias : nullptr}, tolerance,
        [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
          table.float8_matmul(
              ctx,
              {.out = v[0], .a = v[1], .a_scale = v[2], .b = v[3], .b_scale = v[4], .bias = v[5], .params = params});
        });
  }
};
double tolerance_of(DType dtype) { return dtype == kFloat32 ? 1e-5 : dtype == kFloat16 ? 2e-3 : 1.6e-2; }

}  // namespace

TEST_CASE("cuda to_float8: the CPU's bytes and scale, for any shape, dtype, strides and what is asked for") {
  NEEDS_DEVICE();
  for (const auto& [m, n] : kShapes)
    for (const DType dtype : {kFloat32, kFloat16, kBFloat16})
      for (const Float8 format : {Float8::E4M3, Float8::E5M2})
        for (const bool turned : {false, true}) {
          INFO(m << " " << n << " " << name_of(dtype) << " " << int(format) << " " << turned);
          Array x = matrix(dtype, m, n, turned);
          CHECK(bytes_differ(x, format) == "");
          Array with_gaps = matrix(dtype, m, n, turned, 1);
          CHECK(bytes_differ(with_gaps, format) == "");
        }
  for (const bool turned : {false, true}) {
    Array x = matrix(kBFloat16, 48, 272, turned), wide = matrix(kFloat64, 20, 32, turned);
    CHECK(bytes_differ(x, Float8::E4M3, true, false) == "");
    CHECK(bytes_differ(x, Float8::E5M2, false, true) == "");
    CHECK(bytes_differ(wide, Float8::E4M3) == "");
  }
  Array repeated = matrix(kFloat32, 40, 32, false, 0, true), large = matrix(kFloat16, 700, 1600);
  CHECK(bytes_differ(repeated, Float8::E4M3) == "");
  CHECK(bytes_differ(large, Float8::E4M3) == "");
}

TEST_CASE("cuda to_float8: addresses that are no multiple of 16 bytes") {
  NEEDS_DEVICE();
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const int64_t begin : {1, 3, 8}) {
      INFO(name_of(dtype) << " " << begin);
      Array x = matrix(dtype, 33, 64), out(kUInt8, {32 * 64 + 5}), turned(kUInt8, {32 * 64 + 5}), scale(kFloat32, {});
      CHECK(differ({&out, &turned, &scale, &x}, 0,
                   [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                     const auto part = [&](TensorView a, int64_t rows, int64_t columns) {
                       a.data = a.as<char>() + begin * size_of(a.dtype);
                       a.rank = 2, a.sizes[0] = rows, a.sizes[1] = columns, a.strides[0] = columns, a.strides[1] = 1;
                       return a;
                     };
                     for (const TensorView& bytes : {v[0], v[1]}) table.fill(ctx, {bytes, Scalar(int64_t(7))});
                     table.to_float8(ctx, {.out = part(v[0], 31, 64),
                                           .transposed = part(v[1], 64, 31),
                                           .scale = v[2],
                                           .x = part(v[3], 31, 64),
                                           .params = {}});
                   }) == "");
    }
}

TEST_CASE("cuda to_float8: zeros have the scale 1, NaN and infinity leave NaN") {
  NEEDS_DEVICE();
  Array x(kFloat32, {20, 48}), scale(kFloat32, {}), out(kUInt8, {20, 48});
  x.fill(0);
  CHECK(bytes_differ(x, Float8::E4M3) == "");
  for (const Float8 format : {Float8::E4M3, Float8::E5M2})
    for (const double special : {double(NAN), double(INFINITY), -double(INFINITY)}) {
      Array y = matrix(kFloat32, 20, 48);
      y.set(special, 13, 17);
      Array as_floats(kFloat32, {20, 48});  // by a product with the identity, since NaN has several bytes
      Array one(kUInt8, {48, 48}), unit(kFloat32, {});
      one.fill(0), unit.fill(1);
      for (int64_t i = 0; i < 48; ++i) one.set(0x38, i, i);  // 1 in E4M3
      CHECK(differ({&as_floats, &y, &scale, &out, &one, &unit}, 0,
                   [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                     table.to_float8(ctx, {.out = v[3], .scale = v[2], .x = v[1], .params = {format}});
                     table.float8_matmul(ctx, {.out = v[0],
                                               .a = v[3],
                                               .a_scale = v[5],
                                               .b = v[4],
                                               .b_scale = v[5],
                                               .params = {format, Float8::E4M3}});
                     table.fill(ctx, {v[3], Scalar(int64_t(0))});
                   }) == "");
    }
}

TEST_CASE("cuda float8_matmul: by the library where it has the product, else the same in bfloat16") {
  NEEDS_DEVICE();
  constexpr Float8 e4 = Float8::E4M3, e5 = Float8::E5M2;
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {5, 16, 32}, {33, 48, 64}, {16, 32, 17}, {20, 7, 16}, {64, 128, 160}, {3, 16, 0}, {0, 16, 16}})
    for (const DType dtype : {kFloat32, kFloat16, kBFloat16})
      for (const Float8MatmulParams params : {Float8MatmulParams{e4, e4}, {e5, e4}, {e4, e5}, {e5, e5}}) {
        INFO(m << " " << n << " " << k << " " << name_of(dtype) << " " << int(params.a) << int(params.b));
        const bool offered = n % 16 == 0 && k % 16 == 0 && m * n * k > 0 && (params.a == e4 || params.b == e4);
        for (const DType bias : {dtype, kFloat32}) {
          Product p(m, n, k, dtype, params, bias);
          const int64_t before = served();
          CHECK(p.differs(tolerance_of(dtype)) == "");
          if (offered && is_emulated()) CHECK(served() == before + 1);
          CHECK(p.differs(tolerance_of(dtype), false) == "");
        }
        Product turned(m, n, k, dtype, params, dtype, true);
        CHECK(turned.differs(tolerance_of(dtype)) == "");
      }
  if (!is_emulated()) return;
  const Variable refuse("TAPIR_EMULATED_BLAS", "refuse");
  Product p(40, 80, 96, kBFloat16, {e5, e4}, kFloat32);  // sums are rounded to 16 bits then: no bias that cancels them
  CHECK(p.differs(tolerance_of(kBFloat16), false) == "");
}
