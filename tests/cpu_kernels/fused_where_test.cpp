// Where and Keep in fused calls.
#include <vector>

#include <tapir/core/parallel.h>
#include <tapir/tapir.h>

#include "../catch.h"
#include "../same_bits.h"
#include "fused_steps.h"

using namespace tapir;
using tapir_tests::same_bits, tapir_tests::Steps;

namespace {

Tensor dropped(const Tensor& x, double p) {
  Tensor y = empty(x.shape(), {.dtype = x.dtype()});
  backend(x).dropout(context(x), {.y = y, .x = x, .params = {.p = p, .seed = 9, .offset = 11}});
  return y;
}

}  // namespace

TEST_CASE("a fused call drops what dropout drops, in any order and layout") {
  NoGrad off;
  const int threads = get_num_threads();
  for (const int64_t columns : {1, 7, 128, 513, 1030, 4097})
    for (const DType type : {kFloat32, kFloat64})
      for (const double p : {0.3, 1.0})
        for (const bool dense : {true, false}) {
          INFO(columns << " columns of " << name_of(type) << ", p " << p << (dense ? "" : ", apart"));
          const Tensor whole = randn({37, columns + 3}).to(type);
          const Tensor x = dense ? whole.narrow(1, 2, columns).contiguous() : whole.narrow(1, 2, columns);
          const Tensor row = randn({columns}).to(type), column = randn({37, 1}).to(type);
          const Tensor once = dropped(x * 1.5, p), expected = once * column + row;
          const Tensor kept = dropped(ones(x.shape(), {.dtype = type}), p) != 0;
          for (const int n : {1, 4}) {
            set_num_threads(n);
            Tensor y = empty(x.shape(), {.dtype = type}), mask = empty(x.shape(), {.dtype = kBool});
            for (const bool stored : {false, true}) {  // a mask that others read, too, is bytes
              Steps s;
              const uint8_t a = s.load(x), m = s.binary(BinaryOp::Mul, a, s.number(1.5, type), type), k = s.keep(p);
              const uint8_t scaled = s.binary(BinaryOp::Mul, m, s.number(p < 1 ? 1 / (1 - p) : 0, type), type);
              const uint8_t w = s.where(k, scaled, s.number(0, type), type);
              const uint8_t product = s.binary(BinaryOp::Mul, w, s.load(column), type);
              s.store(s.binary(BinaryOp::Add, product, s.load(row), type), y);
              if (stored) s.store(k, mask);
              s.run();
              CHECK(same_bits(y, expected));
              if (stored) CHECK(same_bits(mask, kept));
            }
          }
          set_num_threads(threads);
        }
}

TEST_CASE("a mask stays while steps in registers read it") {
  NoGrad off;
  for (const int64_t columns : {5, 700, 2048, 5001})
    for (const bool swapped : {false, true}) {
      INFO(columns << " columns");
      const Tensor x = randn({9, columns}), z = randn({9, columns}), column = randn({9, 1});
      std::vector<Tensor> out;
      for (int i = 0; i < 5; ++i) out.push_back(empty({9, 2 * columns}).slice(1, 0, 2 * columns, 2));
      Steps s;
      const uint8_t a = s.load(x), b = s.load(z), c = s.load(column);
      const uint8_t mask = s.binary(BinaryOp::Gt, a, b, kBool);
      const uint8_t sum = s.binary(BinaryOp::Add, a, b, kFloat32);
      const uint8_t w = swapped ? s.where(mask, c, sum, kFloat32) : s.where(mask, sum, c, kFloat32);
      std::vector<uint8_t> values = {w};  // each takes a slot until the end
      for (int i = 0; i < 4; ++i) values.push_back(s.binary(BinaryOp::Mul, values.back(), i % 2 ? a : b, kFloat32));
      for (size_t i = 0; i < values.size(); ++i) s.store(values[i], out[i]);
      s.run();
      Tensor expected = swapped ? where(x > z, column.expand({9, columns}), x + z) : where(x > z, x + z, column);
      for (int i = 0; i < 5; ++i) {
        CHECK(same_bits(out[size_t(i)], expected));
        expected = expected * (i % 2 ? x : z);
      }
    }
}
