#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include <tapir/core/dtype.h>
#include <tapir/core/error.h>

#include "../catch.h"
#include "messages.h"

using namespace tapir;
using tapir_tests::message_of;

namespace {

/// Nearest value with `fraction` bits after the leading one and exponents from `least` to 127 or `most`, ties to even, in double.
double rounded(double v, int fraction, int least, double overflow) {
  if (!std::isfinite(v) || v == 0) return v;
  int exponent;
  std::frexp(v, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 1, least) - fraction);
  const double r = std::nearbyint(v / unit) * unit;  // the default rounding is to even
  return std::abs(r) >= overflow ? std::copysign(std::numeric_limits<double>::infinity(), v) : r;
}
double rounded_half(double v) { return rounded(v, 10, -14, 65536); }
double rounded_bfloat(double v) { return rounded(v, 7, -126, 0x1p128); }

bool same(double a, double b) {
  return (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
}

template <class F> void for_many_floats(F f) {
  for (uint64_t u = 0; u < (uint64_t(1) << 32); u += 4099) f(std::bit_cast<float>(uint32_t(u)));
  for (uint32_t half = 0; half < 65536; ++half) {  // every half, its neighbours, and the ties between halves
    const float v = Half::to_float(uint16_t(half)), next = Half::to_float(uint16_t(half + 1));
    if (!std::isfinite(v) || !std::isfinite(next)) continue;
    const float tie = v / 2 + next / 2;
    for (float t : {v, tie, std::nextafter(tie, v), std::nextafter(tie, next)}) f(t);
    const float wide = std::bit_cast<float>(half << 16 | 0x8000u);  // the ties between bfloat16 values
    for (float t : {wide, std::nextafter(wide, 0.0f), std::nextafter(wide, 2 * wide)}) f(t);
  }
  for (float v : {65504.f, 65519.996f, 65520.f, 65536.f, 1e30f, std::numeric_limits<float>::max(),
                  std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min(), 0x1p-25f,
                  std::nextafter(0x1p-25f, 1.0f), 0x1p-24f})
    f(v), f(-v);
}

}  // namespace

TEST_CASE("all 65536 halves and bfloat16 values survive float and back") {
  int bad = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float h = Half::to_float(uint16_t(bits)), b = std::bit_cast<float>(bits << 16);
    bad += std::isnan(h) ? !std::isnan(Half::to_float(Half::from_float(h))) : Half::from_float(h) != bits;
    bad += std::isnan(b) ? !std::isnan(std::bit_cast<float>(uint32_t(BFloat16::from_float(b)) << 16))
                         : BFloat16::from_float(b) != bits;
  }
  CHECK(bad == 0);
  CHECK(Half::to_float(0x3c00) == 1.0f);
  CHECK(Half::to_float(0x0001) == 0x1p-24f);
  CHECK(Half::to_float(0x7bff) == 65504.0f);
}

TEST_CASE("float to 16 bits rounds to nearest even, with subnormals and overflow") {
  int64_t bad = 0;
  float first_bad = 0;
  for_many_floats([&](float v) {
    const bool ok =
        same(Half::to_float(Half::from_float(v)), rounded_half(v)) && same(float(BFloat16(v)), rounded_bfloat(v));
    if (!ok && !bad++) first_bad = v;
  });
  INFO("first at " << first_bad);
  CHECK(bad == 0);
  // A NaN whose set bits all lie below the kept ones stays a NaN.
  CHECK(std::isnan(float(Half(std::bit_cast<float>(0x7f800001u)))));
  CHECK(std::isnan(float(BFloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("dtypes are promoted as PyTorch promotes them") {
  // Rows and columns in the order of DType; letters: d f h b (floats), l i s c u (integers), o (bool).
  const char* const table[] = {"fdffffffff", "dddddddddd", "fdhfhhhhhh", "fdfbbbbbbb", "fdhbllllll",
                               "fdhbliiiii", "fdhblissss", "fdhbliscsc", "fdhblissuu", "fdhbliscuo"};
  const std::string letters = "fdhbliscuo";
  for (int a = 0; a < kNumDTypes; ++a)
    for (int b = 0; b < kNumDTypes; ++b) {
      INFO(name_of(DType(a)) << " and " << name_of(DType(b)));
      CHECK(promote_types(DType(a), DType(b)) == DType(letters.find(table[a][b])));
    }
}

TEST_CASE("dtypes have names") {
  for (int i = 0; i < kNumDTypes; ++i) CHECK(dtype_from_name(name_of(DType(i))) == DType(i));
  for (const char* wrong : {"complex64", "qint8", "Float32", "", "float"})
    CHECK(
        message_of<ValueError>([&] { dtype_from_name(wrong); }) ==
        "[dtype] expected one of float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool, got \"" +
            std::string(wrong) + "\"");
}
