#include <limits>
#include <sstream>

#include <tapir/core/print.h>
#include <tapir/core/tensor.h>
#include <tapir/ops/arithmetic.h>

#include "../catch.h"
#include "print_golden.h"

using namespace tapir;

TEST_CASE("tensors print as PyTorch prints them") {
  for (const auto& c : tapir_tests::printed_by_pytorch()) {
    std::vector<double> values = c.values;
    if (values.empty())
      for (int64_t i = 0; i < numel_of(c.shape); ++i) values.push_back(c.start + double(i) * c.step);
    const Tensor x = tensor(std::span<const double>(values), c.shape, {.dtype = c.dtype});
    CHECK(x.str() == c.text);
  }
}

TEST_CASE("strided, undefined and extreme tensors print") {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  CHECK(alias(x, {3, 2}, {1, 3}, 0).str() == "tensor([[1, 4],\n        [2, 5],\n        [3, 6]])");
  CHECK(alias(x, {4}, {0}, 5).str() == "tensor([6, 6, 6, 6])");
  CHECK(Tensor().str() == "undefined");
  CHECK(tensor(std::vector<int64_t>{std::numeric_limits<int64_t>::min(), 0}).str() ==
        "tensor([-9223372036854775808,                    0])");
  // A huge expanded tensor is summarized without being read.
  CHECK(alias(x, {1 << 30, 1}, {0, 1}, 0).str() ==
        "tensor([[1],\n        [1],\n        [1],\n        ...,\n        [1],\n        [1],\n        [1]])");
}

TEST_CASE("leaves and results of operations say what they are") {
  Tensor x = tensor({1., 2.});
  x.requires_grad_();
  CHECK(x.str() == "tensor([1., 2.], requires_grad=True)");
  const Tensor y = neg(x);
  CHECK(y.str() == "tensor([-1., -2.], grad_fn=<" + std::string(y.grad_fn()) + ">)");
}

TEST_CASE("streams take tensors, shapes, devices and dtypes") {
  std::ostringstream out;
  out << tensor({1, 2}) << " " << Shape{2, 3} << " " << kCPU << " " << kBFloat16;
  CHECK(out.str() == "tensor([1, 2]) (2, 3) cpu bfloat16");
}
