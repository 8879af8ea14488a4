// Equations between tensors, as equations between matrices.
#include "../arithmetic.h"
#include "../create.h"
#include "../front.h"
#include "../linalg.h"
#include "../pointwise.h"
#include "../shape.h"

namespace tapir::inline v0 {

static Shape joined(Shape a, const Shape& b) {
  for (int64_t n : b) a.push_back(n);
  return a;
}
static Shape part(const Shape& s, int64_t first, int64_t last) {
  return std::span(s.data() + first, size_t(last - first));
}

namespace linalg {
Tensor tensorinv(const Tensor& a, int64_t ind) {
  check(ind > 0, "[linalg.tensorinv] expected ind above 0, got {}", ind);
  const int64_t split = std::min(ind, a.dim());
  const Shape first = part(a.shape(), 0, split), last = part(a.shape(), split, a.dim());
  check(numel_of(first) == numel_of(last),
        "[linalg.tensorinv] expected as many elements in the first {} dimensions as in the others, got {}", ind, a);
  return reshape(inv(reshape(a, {numel_of(first), numel_of(last)})), joined(last, first));
}

Tensor tensorsolve(const Tensor& a, const Tensor& b, const Dims& dims) try {
  const uint32_t moved = dims.empty() ? 0 : reduce_mask("linalg.tensorsolve", dims, a);
  Dims order;
  for (int64_t d = 0; d < a.dim(); ++d)
    if (!(moved >> d & 1)) order.push_back(d);
  for (int64_t d : dims) order.push_back(wrap_dim("linalg.tensorsolve", d, a.dim()));
  const Tensor from = permute(a, order);
  check(from.dim() >= b.dim() && part(from.shape(), 0, b.dim()) == b.shape() && b.numel() * b.numel() == a.numel(),
        "[linalg.tensorsolve] expected a of shape (b's shape, ...) with {} times as many elements, got {} and {}",
        b.numel(), from, b);
  return reshape(solve(reshape(from, {b.numel(), b.numel()}), reshape(b, {b.numel()})),
                 part(from.shape(), b.dim(), from.dim()));
} catch (...) {
  fail_as("linalg.tensorsolve");
}

Tensor vander(const Tensor& x, std::optional<int64_t> n) {
  check_defined("linalg.vander", "x", x);
  check(x.dim() > 0, "[linalg.vander] expected a tensor with dimensions, got {}", x);
  const int64_t count = n.value_or(x.shape().back());
  check(count >= 0, "[linalg.vander] expected N of at least 0, got {}", count);
  return pow(unsqueeze(x, -1), arange(count, {.dtype = x.dtype(), .device = x.device()}));
}
}  // namespace linalg

}  // namespace tapir::inline v0
