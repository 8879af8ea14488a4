// What an operand that repeats or is transposed makes of a pointwise operation: the bits of the same on a copy.
#include "../same_bits.h"
#include "catch.h"

#include <tapir/tapir.h>

#include <vector>

using namespace tapir;
using tapir_tests::same_bits;

namespace {

struct Repeated {
  Dims sizes, to;
};
const Repeated kRepeated[] = {
    {{1, 100}, {100, 100}},     {{70, 1}, {70, 90}},        {{1, 1}, {40, 60}},     {{1, 5, 1, 33}, {6, 5, 7, 33}},
    {{7, 1, 200}, {7, 9, 200}}, {{1, 3, 1}, {50, 3, 2000}}, {{1, 3000}, {2, 3000}}, {{1, 4, 1, 1, 8}, {3, 4, 5, 6, 8}},
};

}  // namespace

TEST_CASE("pointwise: what repeats gives the bits of a copy", "[isa]") {
  manual_seed(1);
  for (const Repeated& r : kRepeated)
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
      CAPTURE(r.sizes, r.to, name_of(dtype));
      const Tensor x = (rand(r.sizes) + 0.1).to(dtype), y = (rand(r.sizes) + 0.1).to(dtype), few = x.expand(r.to),
                   few2 = y.expand(r.to), all = few.contiguous(), all2 = few2.contiguous();
      CHECK(same_bits(exp(few), exp(all)));
      CHECK(same_bits(gelu(few), gelu(all)));
      CHECK(same_bits(pow(few, 2.5), pow(all, 2.5)));
      CHECK(same_bits(few / few2, all / all2));
      CHECK(same_bits(pow(few, few2), pow(all, all2)));
      CHECK(same_bits(exp(few) + all2, exp(all) + all2));
      CHECK(same_bits(lerp(few, few2, 0.3), lerp(all, all2, 0.3)));
      CHECK(same_bits(exp(few.transpose(0, -1)), exp(all.transpose(0, -1))));
    }
}

TEST_CASE("pointwise: transposed operands give the bits of copies", "[isa]") {
  manual_seed(2);
  for (const Dims& sizes : {Dims{37, 53}, Dims{100, 100}, Dims{3, 130, 18}, Dims{16, 64}, Dims{17, 65}, Dims{700, 300}})
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt32, kInt64, kUInt8}) {
      CAPTURE(sizes, name_of(dtype));
      const Tensor x = (rand(sizes) * 100 + 1).to(dtype);
      Dims turned = sizes;
      std::swap(turned[turned.size() - 2], turned[turned.size() - 1]);
      const Tensor y = (rand(turned) * 100 + 1).to(dtype).transpose(-2, -1), copy = y.contiguous();
      CHECK(same_bits(x + y, x + copy));
      CHECK(same_bits(y * x, copy * x));
      CHECK(same_bits(x < y, x < copy));
      CHECK(same_bits(where(x < y, y, x), where(x < copy, copy, x)));
      CHECK(same_bits(x.to(kFloat32) + y, x.to(kFloat32) + copy));
      CHECK(same_bits(x + y.narrow(-1, 0, 1), x + copy.narrow(-1, 0, 1)));
      CHECK(same_bits(y.clone().contiguous(), copy));
      Tensor in_place = x.clone(), expected = x + copy;
      in_place.add_(y);
      CHECK(same_bits(in_place, expected));
    }
}
