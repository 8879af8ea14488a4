#include "helpers.h"

static Tensor counted(const Shape& shape) { return reshape(arange(numel_of(shape), {.dtype = kFloat64}), shape); }

TEST_CASE("views share memory, count writes, and pass gradients to their base") {
  const Tensor x = counted({4, 4});
  const auto views = [](const Tensor& x) {
    return std::vector<Tensor>{
        diagonal(x, 1),          unfold(x, 0, 2, 2),    movedim(x, 0, 1),       swapaxes(x, 0, 1),
        unflatten(x, 1, {2, 2}), tensor_split(x, 3)[1], x[{Slice(1, 3), None}], atleast_3d(x)};
  };
  for (Tensor v : views(x)) {
    const auto before = x.version();
    v.zero_();
    CHECK(x.version() > before);
    CHECK(v.data<double>() >= x.data<double>());
  }
  for (size_t k = 0; k < views(x).size(); ++k)
    CHECK(gradients_hold(
        [&](const Tensor& x) {
          Tensor y = x * 1.0, v = views(y)[k];
          v.mul_(3);
          return y * y;
        },
        {rand({4, 4}, {.dtype = kFloat64}).requires_grad_()}));
  const Tensor base = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK_THROWS_AS(diagonal(base).zero_(), ValueError);
}
