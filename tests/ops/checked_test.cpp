#include <tapir/ops/checked.h>

#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("a fused result that is not its composite form's is a bug of ours") {
  const Tensor x = numbers({2, 3});
  compare_results("softmax", x, add(x, 1e-12));
  CHECK_THROWS_AS(compare_results("softmax", x, add(x, 1e-3)), InternalError);
  CHECK_THROWS_AS(compare_results("softmax", x, numbers({3, 2})), InternalError);
  const Tensor nan = full({2}, std::nan(""), {.dtype = kFloat64});
  const Tensor up = full({2}, INFINITY, {.dtype = kFloat64});
  compare_results("softmax", nan, nan);
  compare_results("softmax", nan, up);
  compare_results("softmax", up, nan);
  compare_results("softmax", up, up);
  CHECK_THROWS_AS(compare_results("softmax", up, neg(up)), InternalError);
  CHECK_THROWS_AS(compare_results("softmax", up, zeros({2}, {.dtype = kFloat64})), InternalError);
  compare_results("softmax", zeros({2}, {.dtype = kFloat64}), nan);
  CHECK_THROWS_AS(compare_results("softmax", nan, zeros({2}, {.dtype = kFloat64})), InternalError);
}
