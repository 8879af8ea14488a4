// Norms of matrices and condition numbers.
#include <cmath>
#include <limits>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../extremum.h"
#include "../linalg.h"
#include "../reduce.h"
#include "../reduce/reduce_front.h"
#include "../slicing.h"
#include "../ternary.h"
#include "../unary.h"
#include "../vector_norm.h"
#include "linalg_front.h"

namespace tapir::inline v0::linalg {

namespace {
/// x, converted, and which of its dimensions are the matrices'.
struct Matrices {
  Tensor x;
  int64_t row, column;
  uint32_t mask;
  Matrices(const char* op, const Tensor& given, const Dims& dims, const ReduceOptions& o) {
    check(given.dim() >= 2, "[{}] expected a tensor with at least 2 dimensions, got {}", op, given);
    check(is_floating(given.dtype()), "[{}] expected a tensor of floating point dtype, got {}", op, given);
    check(dims.size() == 2, "[{}] expected two dimensions, got {}", op, dims);
    row = wrap_dim(op, dims[0], given.dim()), column = wrap_dim(op, dims[1], given.dim());
    mask = reduce_mask(op, dims, given);
    const DType dtype = o.dtype.value_or(given.dtype());
    check(is_floating(dtype), "[{}] expected a floating point dtype, got {}", op, dtype);
    x = to(given, dtype);
  }
  /// Singular values, (..., K).
  Tensor singular_values() const {
    Dims order;
    for (int64_t d = 0; d < x.dim(); ++d)
      if (d != row && d != column) order.push_back(d);
    order.push_back(row), order.push_back(column);
    return svdvals(permute(x, order));
  }
  /// y, which has lost both dimensions, with them as 1.
  Tensor finish(Tensor y, bool keepdim) const {
    for (int64_t d = 0; keepdim && d < x.dim(); ++d)
      if (mask >> d & 1) y = unsqueeze(y, d);
    return y;
  }
};
}  // namespace

/// The largest (smallest) along dim; of nothing: 0 (ValueError).
static Tensor extreme(const Tensor& x, int64_t dim, bool largest, bool keepdim = false) {
  if (largest && x.shape()[dim < 0 ? dim + x.dim() : dim] == 0) return sum(x, dim, {.keepdim = keepdim});
  return largest ? amax(x, dim, {.keepdim = keepdim}) : amin(x, dim, {.keepdim = keepdim});
}

Tensor matrix_norm(const Tensor& x, std::string_view ord, const Dims& dims, const ReduceOptions& o) try {
  if (!o.dtype) TAPIR_AUTOCAST(matrix_norm, x, ord, dims, o);
  const Matrices m("linalg.matrix_norm", x, dims, o);
  check(ord == "fro" || ord == "nuc", "[linalg.matrix_norm] expected ord \"fro\", \"nuc\" or a number, got \"{}\"",
        ord);
  if (ord == "fro") return vector_norm(m.x, 2, dims, {.keepdim = o.keepdim});
  return m.finish(sum(m.singular_values(), -1), o.keepdim);
} catch (...) {
  fail_as("linalg.matrix_norm");
}

Tensor matrix_norm(const Tensor& x, Scalar ord, const Dims& dims, const ReduceOptions& o) try {
  if (!o.dtype) TAPIR_AUTOCAST(matrix_norm, x, ord, dims, o);
  const Matrices m("linalg.matrix_norm", x, dims, o);
  const double p = ord.to_double(), size = std::abs(p);
  check(size == 1 || size == 2 || std::isinf(p),
        "[linalg.matrix_norm] expected ord 1, 2, inf or their negatives, got {}", ord);
  if (size == 2) return m.finish(extreme(m.singular_values(), -1, p > 0), o.keepdim);
  const int64_t summed = size == 1 ? m.row : m.column, other = size == 1 ? m.column : m.row;
  const Tensor y = extreme(sum(abs(m.x), summed, {.keepdim = true}), other, p > 0, true);
  return o.keepdim ? y : squeeze(y, {m.row, m.column});
} catch (...) {
  fail_as("linalg.matrix_norm");
}

/// No dims: all, which then are a vector, or with an order one vector or one matrix.
static Tensor norm_over(const Tensor& x, Scalar ord, const Dims& dims, const ReduceOptions& o) {
  check(!dims.empty() || x.dim() <= 2,
        "[linalg.norm] expected 1 or 2 dimensions where there is an ord and no dims, got {}", x);
  const bool matrix = dims.size() == 2 || (dims.empty() && x.dim() == 2);
  return matrix ? matrix_norm(x, ord, dims.empty() ? Dims{0, 1} : dims, o) : vector_norm(x, ord, dims, o);
}
Tensor norm(const Tensor& x, std::optional<Scalar> ord, const Dims& dims, const ReduceOptions& o) {
  check_defined("norm", "x", x);
  if (!o.dtype) TAPIR_AUTOCAST(norm, x, ord, dims, o);
  check(dims.size() <= 2, "[linalg.norm] expected one or two dims, got {}", dims);
  return ord ? norm_over(x, *ord, dims, o) : vector_norm(x, 2, dims, o);
}
Tensor norm(const Tensor& x, std::string_view ord, const Dims& dims, const ReduceOptions& o) {
  check_defined("norm", "x", x);
  if (!o.dtype) TAPIR_AUTOCAST(norm, x, ord, dims, o);
  check(dims.size() == 2 || (dims.empty() && x.dim() == 2),
        "[linalg.norm] expected a matrix or two dims for ord \"{}\", got {}", ord, x);
  return matrix_norm(x, ord, dims.empty() ? Dims{0, 1} : dims, o);
}

/// |A| |A^-1|; inf where A has no inverse, 0 where it has no elements.
template <class Ord> static Tensor cond_by_inverse(const Tensor& a, Ord p) {
  check_square("linalg.cond", a);
  if (rows(a) == 0) return sum(a, {-2, -1});
  const Tensor singular = eq(slogdet(a.detach()).first, 0);
  const Tensor regular = where(unsqueeze(unsqueeze(singular, -1), -1), identity_like(a), a);
  return masked_fill(matrix_norm(a, p) * matrix_norm(inv(regular), p), singular,
                     std::numeric_limits<double>::infinity());
}
Tensor cond(const Tensor& a, Scalar p) {
  check_defined("cond", "a", a);
  check_matrices("linalg.cond", a);
  if (std::abs(p.to_double()) != 2) return cond_by_inverse(a, p);
  const Tensor s = svdvals(a);
  if (s.shape().back() == 0) return sum(s, -1);
  const Tensor largest = select(s, -1, 0), smallest = select(s, -1, -1);
  return p.to_double() > 0 ? largest / smallest : smallest / largest;
}
Tensor cond(const Tensor& a, std::string_view p) {
  check_defined("cond", "a", a);
  return check_matrices("linalg.cond", a), cond_by_inverse(a, p);
}

}  // namespace tapir::inline v0::linalg
