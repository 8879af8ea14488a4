// Products made of others.
#include "../products.h"

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../front.h"
#include "../reduce.h"
#include "../shape.h"
#include "../slicing.h"

namespace tapir::inline v0 {

/// The dtype of the sum.
static DType check_addr(const char* op, const Tensor& input, const Tensor& a, const Tensor& b, const AddmmOptions& o) {
  check(a.dim() == 1 && b.dim() == 1, "[{}] expected two vectors, got {} and {}", op, a, b);
  const Shape shape{a.shape()[0], b.shape()[0]};
  check(broadcasts_to(input.shape(), shape), "[{}] expected an input that broadcasts to {}, got {}", op, shape, input);
  const Operand x = input, y = a, z = b;
  const DType dtype = result_type({&x, &y, &z});
  check_factor(op, "beta", o.beta, dtype), check_factor(op, "alpha", o.alpha, dtype);
  return dtype;
}
/// x times a number that keeps x's dtype, a bool's too.
static Tensor scaled(const Tensor& x, Scalar factor) {
  if (factor.to_double() == 1) return x;
  return mul(x, x.dtype() == kBool ? Scalar(factor.to_bool()) : factor);
}
Tensor addr(const Tensor& input, const Tensor& a, const Tensor& b, const AddmmOptions& o) try {
  TAPIR_AUTOCAST(addr, input, a, b, o);
  const DType dtype = check_addr("addr", input, a, b, o);
  const Tensor product = scaled(outer(to(a, dtype), to(b, dtype)), o.alpha);
  return o.beta.to_double() == 0 ? product : add(scaled(to(input, dtype), o.beta), product);
} catch (...) {
  fail_as("addr");
}
Tensor& addr_(Tensor& self, const Tensor& a, const Tensor& b, const AddmmOptions& o) try {
  const DType dtype = check_addr("addr_", self, a, b, o);
  check_can_cast("addr_", dtype, self.dtype());
  const Tensor product = scaled(outer(to(a, dtype), to(b, dtype)), o.alpha);
  check(product.shape() == self.shape(), "[addr_] expected a tensor of the product's shape {}, got {}", product.shape(),
        self);
  if (o.beta.to_double() == 0) return copy_(self, product);
  if (o.beta.to_double() != 1) mul_(self, self.dtype() == kBool ? Scalar(o.beta.to_bool()) : o.beta);
  return add_(self, product);
} catch (...) {
  fail_as("addr_");
}

static void check_addbmm(const char* op, const Tensor& a, const Tensor& b) {
  check(a.dim() == 3 && b.dim() == 3 && a.shape()[0] == b.shape()[0] && a.shape()[2] == b.shape()[1],
        "[{}] expected two batches of matrices, (B, M, K) and (B, K, N), got {} and {}", op, a, b);
}
/// (B, M, K) as (M, B K), (B, K, N) as (B K, N): the sum over the batch is the product's own.
static Tensor side_by_side(const Tensor& a) {
  return reshape(permute(a, {1, 0, 2}), {a.shape()[1], a.shape()[0] * a.shape()[2]});
}
static Tensor stacked(const Tensor& b) { return reshape(b, {b.shape()[0] * b.shape()[1], b.shape()[2]}); }
Tensor addbmm(const Tensor& input, const Tensor& a, const Tensor& b, const AddmmOptions& o) try {
  TAPIR_AUTOCAST(addbmm, input, a, b, o);
  return check_addbmm("addbmm", a, b), addmm(input, side_by_side(a), stacked(b), o);
} catch (...) {
  fail_as("addbmm");
}
Tensor& addbmm_(Tensor& self, const Tensor& a, const Tensor& b, const AddmmOptions& o) try {
  return check_addbmm("addbmm_", a, b), addmm_(self, side_by_side(a), stacked(b), o);
} catch (...) {
  fail_as("addbmm_");
}

// ---- chains ----

/// Matrices first to last, split where `splits` says.
static Tensor multiply_chain(std::span<const Tensor> m, const std::vector<std::vector<size_t>>& splits, size_t first,
                             size_t last) {
  if (first == last) return m[first];
  const size_t at = splits[first][last];
  return mm(multiply_chain(m, splits, first, at), multiply_chain(m, splits, at + 1, last));
}
/// Cormen et al., "Introduction to Algorithms", 15.2.
static Tensor chain(const char* op, std::span<const Tensor> m) {
  const size_t n = m.size();
  for (size_t i = 0; i < n; ++i) {
    check(m[i].dim() == 2, "[{}] expected matrices, got {} at position {}", op, m[i], int64_t(i));
    check(i == 0 || m[i - 1].shape()[1] == m[i].shape()[0],
          "[{}] expected matrices that can be multiplied, got {} and {} at position {}", op, m[i - (i > 0)], m[i],
          int64_t(i));
  }
  std::vector<std::vector<double>> cost(n, std::vector<double>(n));
  std::vector<std::vector<size_t>> splits(n, std::vector<size_t>(n));
  for (size_t length = 1; length < n; ++length)
    for (size_t i = 0; i + length < n; ++i) {
      const size_t j = i + length;
      for (size_t k = i; k < j; ++k) {
        const double c =
            cost[i][k] + cost[k + 1][j] + double(m[i].shape()[0]) * double(m[k].shape()[1]) * double(m[j].shape()[1]);
        if (k == i || c < cost[i][j]) cost[i][j] = c, splits[i][j] = k;
      }
    }
  return multiply_chain(m, splits, 0, n - 1);
}
Tensor chain_matmul(std::span<const Tensor> matrices) try {
  TAPIR_AUTOCAST(chain_matmul, matrices);
  check(!matrices.empty(), "[chain_matmul] expected at least one matrix, got {}", "none");
  return chain("chain_matmul", matrices);
} catch (...) {
  fail_as("chain_matmul");
}

namespace linalg {
Tensor multi_dot(std::span<const Tensor> tensors) try {
  check_defined("linalg.multi_dot", "tensors", tensors);
  TAPIR_AUTOCAST(multi_dot, tensors);
  const char* name = "linalg.multi_dot";
  check(tensors.size() >= 2, "[{}] expected at least 2 tensors, got {}", name, int64_t(tensors.size()));
  std::vector<Tensor> m(tensors.begin(), tensors.end());
  const bool row = m.front().dim() == 1, column = m.back().dim() == 1;
  if (row) m.front() = unsqueeze(m.front(), 0);
  if (column) m.back() = unsqueeze(m.back(), 1);
  Tensor y = chain(name, m);
  if (column) y = squeeze(y, 1);
  return row ? squeeze(y, 0) : y;
} catch (...) {
  fail_as("linalg.multi_dot");
}

Tensor vecdot(const Tensor& a, const Tensor& b, int64_t dim) try {
  TAPIR_AUTOCAST(vecdot, a, b, dim);
  check(a.dtype() == b.dtype(), "[linalg.vecdot] expected vectors of one dtype, got {} and {}", a, b);
  return sum(mul(a, b), dim, {.dtype = a.dtype()});
} catch (...) {
  fail_as("linalg.vecdot");
}

Tensor cross(const Tensor& a, const Tensor& b, int64_t dim) try {
  check_defined("linalg.cross", "a", a, "b", b);
  TAPIR_AUTOCAST(cross, a, b, dim);
  common_device("linalg.cross", {&a, &b});
  check(a.dim() == b.dim(), "[linalg.cross] expected as many dimensions of both, got {} and {}", a, b);
  dim = wrap_dim("linalg.cross", dim, a.dim());
  check(a.dim() > 0 && a.shape()[dim] == 3 && b.shape()[dim] == 3,
        "[linalg.cross] expected a size of 3 in dimension {}, got {} and {}", dim, a, b);
  const auto turned = [dim](const Tensor& x, int64_t by) {
    return cat({narrow(x, dim, by, 3 - by), narrow(x, dim, 0, by)}, dim);
  };
  return mul(turned(a, 1), turned(b, 2)) - mul(turned(a, 2), turned(b, 1));
} catch (...) {
  fail_as("linalg.cross");
}
}  // namespace linalg

Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim) try {
  check_defined("cross", "a", a, "b", b);
  TAPIR_AUTOCAST(cross, a, b, dim);
  if (dim) return linalg::cross(a, b, *dim);
  check(a.dim() == b.dim(), "[cross] expected as many dimensions of both, got {} and {}", a, b);
  for (int64_t d = 0; d < a.dim(); ++d)
    if (a.shape()[d] == 3 && b.shape()[d] == 3) return linalg::cross(a, b, d);
  fail(ErrorKind::Value, "[cross] expected a dimension of size 3, got {} and {}", a, b);
} catch (...) {
  fail_as("cross");
}

Tensor kron(const Tensor& a, const Tensor& b) try {
  check_defined("kron", "a", a, "b", b);
  const int64_t rank = std::max(a.dim(), b.dim());
  Shape left, right, shape;
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t da = d - rank + a.dim(), db = d - rank + b.dim(), na = da < 0 ? 1 : a.shape()[da],
                  nb = db < 0 ? 1 : b.shape()[db];
    if (na != 1 && nb != 1) left.push_back(na), left.push_back(1), right.push_back(1), right.push_back(nb);
    else left.push_back(na), right.push_back(nb);
    shape.push_back(na * nb);
  }
  return reshape(mul(reshape(a, left), reshape(b, right)), shape);
} catch (...) {
  fail_as("kron");
}

}  // namespace tapir::inline v0
