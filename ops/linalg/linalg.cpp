// Systems of equations: Cholesky, LU, triangular solves, and what follows from them.
#include "../linalg.h"

#include <algorithm>
#include <limits>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../diagonal.h"
#include "../extremum.h"
#include "../matmul.h"
#include "../reduce.h"
#include "../slicing.h"
#include "../ternary.h"
#include "../unary.h"
#include "linalg_front.h"

namespace tapir::inline v0 {

void check_matrices(const char* op, const Tensor& a) {
  check(a.dim() >= 2, "[{}] expected a matrix or a batch of matrices, (..., M, N), got {}", op, a);
  check(a.dtype() == kFloat32 || a.dtype() == kFloat64, "[{}] expected float32 or float64, got {}", op, a);
}
void check_square(const char* op, const Tensor& a) {
  check_matrices(op, a);
  check(rows(a) == columns(a), "[{}] expected square matrices, got {}", op, a);
}
void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  common_device(op, {&a, &b});
  check(a.dtype() == b.dtype(), "[{}] expected matrices of one dtype, got {} and {}", op, a, b);
}

ErrorWord run_linalg(const Tensor& a, std::initializer_list<TensorView> outs, std::initializer_list<TensorView> ins,
                     const LinalgParams& params) {
  Context& ctx = context(a);
  backend(a).linalg(ctx, {outs, ins, params});
  return ctx.error;
}

Tensor identity_like(const Tensor& a) {
  const int64_t n = columns(a);
  return expand(eye(n, n, {.dtype = a.dtype(), .device = a.device()}), a.shape());
}

// ---- triangular systems ----

static Tensor triangle_of(const Tensor& x, const TriangularOptions& o) {
  return o.upper ? triu(x, o.unitriangular) : tril(x, -int64_t(o.unitriangular));
}

namespace linalg {
Tensor solve_triangular(const Tensor& a, const Tensor& b, const TriangularOptions& o) {
  TAPIR_AUTOCAST(solve_triangular, a, b, o);
  const char* name = "linalg.solve_triangular";
  check_square(name, a), check_matrices(name, b), check_pair(name, a, b);
  check((o.left ? rows(b) : columns(b)) == rows(a), "[{}] expected a right-hand side that fits {}, got {} (left = {})",
        name, a.shape(), b.shape(), o.left);
  if (!o.left)
    return transposed(
        solve_triangular(transposed(a), transposed(b), {.upper = !o.upper, .unitriangular = o.unitriangular}));
  const Shape batch = broadcast_shapes(name, batch_of(a), batch_of(b));
  const Tensor x = empty_of(b, shape_of(batch, {rows(b), columns(b)}));
  run_linalg(a, {x}, {TensorView(a).expand(shape_of(batch, {rows(a), rows(a)})), TensorView(b).expand(x.shape())},
             {.op = LinalgOp::TriangularSolve, .upper = o.upper, .unit = o.unitriangular});
  return record(name, x, {a, b}, save(a, x), [o](Needs needs, const Tensor& g, const Tensor& a, const Tensor& x) {
    const Tensor gb = solve_triangular(transposed(a), g, {.upper = !o.upper, .unitriangular = o.unitriangular});
    return Grads{needs[0] ? triangle_of(neg(matmul(gb, transposed(x))), o) : Tensor(), gb};
  });
}
}  // namespace linalg

// ---- Cholesky ----

// dA = L^-T P L^-1 with P the lower triangle of L^T dL, its diagonal halved, made symmetric; Murray 2016, arXiv 1602.07527.
static Tensor cholesky_gradient(const Tensor& g, const Tensor& l) {
  const Tensor lt = transposed(l), p = tril(matmul(lt, g)), s = (p + transposed(tril(p, -1))) * 0.5;
  return linalg::solve_triangular(l, linalg::solve_triangular(lt, s, {.upper = true}), {.upper = false, .left = false});
}
static Tensor record_cholesky(const char* name, const Tensor& l, const Tensor& a, bool upper) {
  return record(name, l, {a}, save(l), [upper](const Tensor& g, const Tensor& l) {
    return Grads{upper ? cholesky_gradient(transposed(g), transposed(l)) : cholesky_gradient(g, l)};
  });
}

namespace linalg {
Tensor cholesky(const Tensor& a, const UpperOptions& o) try {
  TAPIR_AUTOCAST(cholesky, a, o);
  check_square("linalg.cholesky", a);
  const Tensor l = empty_of(a, a.shape());
  const ErrorWord e = run_linalg(a, {l}, {a}, {.op = LinalgOp::Cholesky, .upper = o.upper});
  check(!e.set,
        "[linalg.cholesky] expected positive-definite matrices, but in batch element {} the leading minor of order {} "
        "is not "
        "positive (input is {})",
        e.position, e.value, a);
  return record_cholesky("linalg.cholesky", l, a, o.upper);
} catch (...) {
  fail_as("linalg.cholesky");
}
std::pair<Tensor, Tensor> cholesky_ex(const Tensor& a, const UpperOptions& o) try {
  check_square("linalg.cholesky_ex", a);
  const Tensor l = empty_of(a, a.shape()), info = empty(batch_of(a), {.dtype = kInt32, .device = a.device()});
  run_linalg(a, {l, info}, {a}, {.op = LinalgOp::Cholesky, .upper = o.upper});
  return {record_cholesky("linalg.cholesky_ex", l, a, o.upper), info};
} catch (...) {
  fail_as("linalg.cholesky_ex");
}
}  // namespace linalg

Tensor cholesky_solve(const Tensor& b, const Tensor& factor, const UpperOptions& o) {
  check_defined("cholesky_solve", "b", b, "factor", factor);
  TAPIR_AUTOCAST(cholesky_solve, b, factor, o);
  check_square("cholesky_solve", factor), check_matrices("cholesky_solve", b), check_pair("cholesky_solve", b, factor);
  check(rows(b) == rows(factor), "[cholesky_solve] expected a right-hand side that fits {}, got {}", factor.shape(),
        b.shape());
  const Tensor x = [&] {
    NoGrad guard;
    const Tensor l = o.upper ? transposed(factor) : factor;
    return linalg::solve_triangular(transposed(l), linalg::solve_triangular(l, b, {.upper = false}), {.upper = true});
  }();
  // The gradient is that of A = L L^T with all of L, as PyTorch's.
  return record("cholesky_solve", x, {b, factor}, save(factor, x),
                [o](Needs needs, const Tensor& g, const Tensor& l, const Tensor& x) {
                  const Tensor gb = cholesky_solve(g, l, o);
                  if (!needs[1]) return Grads{gb, Tensor()};
                  const Tensor half = matmul(gb, transposed(x)), ga = neg(half + transposed(half));
                  return Grads{gb, o.upper ? matmul(l, ga) : matmul(ga, l)};
                });
}

Tensor cholesky_inverse(const Tensor& factor, const UpperOptions& o) try {
  TAPIR_AUTOCAST(cholesky_inverse, factor, o);
  check_square("cholesky_inverse", factor);
  return cholesky_solve(identity_like(factor), factor, o);
} catch (...) {
  fail_as("cholesky_inverse");
}

// ---- LU ----

namespace {
/// P A = L U as the kernel gives it; without history.
struct Factors {
  Tensor lu, order, sign;
  ErrorWord singular;
};
}  // namespace

/// Of matrices that must have an inverse without the sign: then the kernel tells which one has none, in a program too.
static Factors factorize(const Tensor& a, bool regular = false) {
  Factors f{empty_of(a, a.shape()),
            empty(shape_of(batch_of(a), {rows(a)}), {.dtype = kInt32, .device = a.device()}),
            regular ? Tensor() : empty_of(a, batch_of(a)),
            {}};
  f.singular = run_linalg(a, {f.lu, f.order, f.sign}, {a}, {.op = LinalgOp::Lu});
  return f;
}
static Factors factorize_regular(const char* op, const Tensor& a) {
  Factors f = factorize(a, true);
  check(!f.singular.set,
        "[{}] expected matrices that have an inverse, but in batch element {} pivot {} is 0 (input is {})", op,
        f.singular.position, f.singular.value, a);
  return f;
}

/// x of A x = b or A^T x = b, from the factors of A. Giles 2008, "An extended collection of matrix derivative results", 2.3.1.
static Tensor solve_factored(const char* name, const Tensor& a, const Tensor& lu, const Tensor& order, const Tensor& b,
                             bool transpose) {
  const Shape batch = broadcast_shapes(name, batch_of(a), batch_of(b));
  const Tensor x = empty_of(b, shape_of(batch, {rows(b), columns(b)}));
  run_linalg(a, {x},
             {TensorView(lu).expand(shape_of(batch, {rows(a), rows(a)})),
              TensorView(order).expand(shape_of(batch, {rows(a)})), TensorView(b).expand(x.shape())},
             {.op = LinalgOp::LuSolve, .transpose = transpose});
  return record(name, x, {a, b}, save(a, lu, order, x),
                [transpose](Needs needs, const Tensor& g, const Tensor& a, const Tensor& lu, const Tensor& order,
                            const Tensor& x) {
                  const Tensor gb = solve_factored("linalg.solve", a, lu, order, g, !transpose);
                  if (!needs[0]) return Grads{Tensor(), gb};
                  return Grads{neg(transpose ? matmul(x, transposed(gb)) : matmul(gb, transposed(x))), gb};
                });
}

namespace linalg {
Tensor solve(const Tensor& a, const Tensor& b, bool left) {
  TAPIR_AUTOCAST(solve, a, b, left);
  const char* name = "linalg.solve";
  check_square(name, a), check_pair(name, a, b);
  const bool vector = b.dim() == 1 || (b.dim() == a.dim() - 1 && b.shape() == shape_of(batch_of(a), {rows(a)}));
  check(b.dim() > 0 && (vector ? b.shape().back() == rows(a) && left : (left ? rows(b) : columns(b)) == rows(a)),
        "[{}] expected a right-hand side that fits {}, got {} (left = {})", name, a.shape(), b.shape(), left);
  const Factors f = factorize_regular(name, a);
  if (vector) return squeeze(solve_factored(name, a, f.lu, f.order, unsqueeze(b, -1), false), -1);
  if (left) return solve_factored(name, a, f.lu, f.order, b, false);
  return transposed(solve_factored(name, a, f.lu, f.order, transposed(b), true));
}

Tensor inv(const Tensor& a) {
  TAPIR_AUTOCAST(inv, a);
  check_square("linalg.inv", a);
  const Factors f = factorize_regular("linalg.inv", a);
  return solve_factored("linalg.inv", a, f.lu, f.order, identity_like(a), false);
}
}  // namespace linalg

// ---- the factors themselves ----

/// A = L U of square matrices, given what the kernel made of them; the order of rows is fixed.
static std::pair<Tensor, Tensor> split_factors(const Tensor& a, const Tensor& lu) {
  const Tensor l = tril(lu, -1) + identity_like(lu), u = triu(lu), outputs[] = {l, u};
  // dA = L^-T (the part of L^T dL below the diagonal, and of dU U^T from it on) U^-T
  record_outputs("linalg.lu", outputs, {a}, save(l, u), [](const Grads& g, const Tensor& l, const Tensor& u) {
    Tensor inner = zeros_like(l);
    if (g[0].defined()) inner = inner + tril(matmul(transposed(l), g[0]), -1);
    if (g[1].defined()) inner = inner + triu(matmul(g[1], transposed(u)));
    const Tensor left = linalg::solve_triangular(transposed(l), inner, {.upper = true, .unitriangular = true});
    return Grads{linalg::solve_triangular(transposed(u), left, {.upper = false, .left = false})};
  });
  return {l, u};
}
/// x with zeros below and to the right.
static Tensor filled_up(const Tensor& x, int64_t m, int64_t n) {
  const auto gap = [&](int64_t r, int64_t c) {
    return zeros(shape_of(batch_of(x), {r, c}), {.dtype = x.dtype(), .device = x.device()});
  };
  const Tensor wide = n > columns(x) ? cat({x, gap(rows(x), n - columns(x))}, -1) : x;
  return m > rows(x) ? cat({wide, gap(m - rows(x), n)}, -2) : wide;
}
/// P of A = P L U.
static Tensor permutation(const Tensor& order, const Tensor& like) {
  return to(eq(unsqueeze(order, -1), arange(order.shape().back(), {.device = like.device()})), like.dtype());
}
/// L, U and the order; tall matrices are factorised with columns of 0 beside, of wide ones the left block decides.
static std::tuple<Tensor, Tensor, Tensor> lu_of(const char* op, const Tensor& a) {
  check_matrices(op, a);
  const int64_t m = rows(a), n = columns(a), k = std::min(m, n);
  const Factors f = [&] {
    NoGrad guard;
    return factorize(narrow(filled_up(a, m, std::max(m, n)), -1, 0, m));
  }();
  const Tensor ordered = matmul(transposed(permutation(f.order, a)), a);
  const auto block = [&](const Tensor& x, int64_t row, int64_t height, int64_t column, int64_t width) {
    return narrow(narrow(x, -2, row, height), -1, column, width);
  };
  auto [l, u] = split_factors(block(ordered, 0, k, 0, k), block(f.lu, 0, k, 0, k));
  const Tensor corner = u;
  if (n > k)
    u = cat({u, linalg::solve_triangular(l, block(ordered, 0, k, k, n - k), {.upper = false, .unitriangular = true})},
            -1);
  if (m > k)
    l = cat({l, wants_grad({a})
                    ? linalg::solve_triangular(corner, block(ordered, k, m - k, 0, k), {.upper = true, .left = false})
                    : block(f.lu, k, m - k, 0, k)},
            -2);
  return {l, u, f.order};
}

namespace linalg {
std::tuple<Tensor, Tensor, Tensor> lu(const Tensor& a) {
  check_defined("linalg.lu", "a", a);
  const auto [l, u, order] = lu_of("linalg.lu", a);
  return {permutation(order, a), l, u};
}
std::pair<Tensor, Tensor> lu_factor(const Tensor& a) {
  check_defined("linalg.lu_factor", "a", a);
  const auto [l, u, order] = lu_of("linalg.lu_factor", a);
  return {filled_up(tril(l, -1), rows(a), columns(a)) + filled_up(u, rows(a), columns(a)), order};
}
/// ValueError unless every row of `order` has each number of [0, N) once. Of a tensor on the CPU alone: a device would have to be waited for, and
/// a program that is being recorded has other numbers next time. There a number that is outside takes no row.
static void check_order(const char* op, const Tensor& order) {
  if (!order.device().is_cpu() || modes.recorder) return;
  const int64_t n = order.shape().back();
  auto numbers = order.to_vector<int64_t>();
  for (auto row = numbers.begin(); n && row != numbers.end(); row += n) {
    std::sort(row, row + n);
    for (int64_t i = 0; i < n; ++i)
      check(row[i] == i, "[{}] expected an order with each number of [0, {}) once, got {} in its place {} when sorted",
            op, n, row[i], i);
  }
}
Tensor lu_solve(const Tensor& lu, const Tensor& order, const Tensor& b) {
  const char* name = "linalg.lu_solve";
  check_square(name, lu), check_matrices(name, b), check_pair(name, lu, b);
  check(order.dtype() == kInt32 && order.shape() == shape_of(batch_of(lu), {rows(lu)}) && rows(b) == rows(lu),
        "[{}] expected factors (..., N, N), their order (..., N) and a right-hand side (..., N, K), got {}, {} and {}",
        name, lu, order, b);
  check_order(name, order);
  const Tensor y =
      solve_triangular(lu, matmul(transposed(permutation(order, lu)), b), {.upper = false, .unitriangular = true});
  return solve_triangular(lu, y, {.upper = true});
}
}  // namespace linalg

// ---- determinants ----

// The gradient is det(A) A^-T. For a pivot of 0 stands a tiny one: the determinant, a polynomial, has a gradient there too.
static Tensor det_gradient(const Tensor& g, const Tensor& a, const Tensor& lu, const Tensor& order, const Tensor& sign,
                           const Tensor& y) {
  const Tensor pivots = diagonal(lu, 0, -2, -1), zero = eq(pivots, 0);
  check(!modes.grad || !any(zero).item<bool>(),
        "[linalg.det] the second derivative wants regular matrices, got a pivot that is 0");
  const double eps = a.dtype() == kFloat32 ? 1e-7 : 2e-16;
  const Tensor tiny = where(zero, clamp_min(amax(abs(lu), {-2, -1}, {.keepdim = true}), 1e-30).squeeze(-1) * eps, 0);
  const Tensor near = where(eq(y, 0), sign * prod(pivots + tiny, -1), y);
  const Tensor right = mul(identity_like(a), unsqueeze(unsqueeze(g * near, -1), -1));
  return solve_factored("linalg.det", a, lu + diag_embed(tiny), order, right, true);
}

namespace linalg {
Tensor det(const Tensor& a) {
  check_defined("linalg.det", "a", a);
  check_square("linalg.det", a);
  const Factors f = factorize(a);
  const Tensor y = f.sign * prod(diagonal(f.lu, 0, -2, -1), -1);
  return record(
      "linalg.det", y, {a}, save(a, f.lu, f.order, f.sign, y),
      [](const Tensor& g, const Tensor& a, const Tensor& lu, const Tensor& order, const Tensor& sign, const Tensor& y) {
        return Grads{a.numel() ? det_gradient(g, a, lu, order, sign, y) : zeros_like(a)};
      });
}

std::pair<Tensor, Tensor> slogdet(const Tensor& a) {
  check_square("linalg.slogdet", a);
  const Factors f = factorize(a);
  const Tensor pivots = diagonal(f.lu, 0, -2, -1), magnitude = sum(log(abs(pivots)), -1);
  return {f.sign * prod(sign(pivots), -1),
          record("linalg.slogdet", magnitude, {a}, save(a, f.lu, f.order),
                 [](const Tensor& g, const Tensor& a, const Tensor& lu, const Tensor& order) {
                   const Tensor right = mul(identity_like(a), unsqueeze(unsqueeze(g, -1), -1));
                   return Grads{solve_factored("linalg.slogdet", a, lu, order, right, true)};
                 })};
}

Tensor matrix_power(const Tensor& a, int64_t n) try {
  check(a.dim() >= 2 && rows(a) == columns(a), "[linalg.matrix_power] expected square matrices, got {}", a);
  if (n == 0) return identity_like(a).clone();
  Tensor base = n < 0 ? inv(a) : a, y;
  for (uint64_t left = n < 0 ? -uint64_t(n) : uint64_t(n);;) {
    if (left & 1) y = y.defined() ? matmul(y, base) : base;
    if ((left >>= 1) == 0) return y.is_same(a) ? clone(a) : y;
    base = matmul(base, base);
  }
} catch (...) {
  fail_as("linalg.matrix_power");
}
}  // namespace linalg

Tensor logdet(const Tensor& a) {
  check_defined("logdet", "a", a);
  check_square("logdet", a);
  const auto [sign, magnitude] = linalg::slogdet(a);
  return masked_fill(magnitude, lt(sign, 0), std::numeric_limits<double>::quiet_NaN());
}

// The derivative of exp at X in direction E is the upper right block of exp((X, E; 0, X)); Higham 2008, "Functions of Matrices", 3.16.
Tensor matrix_exp(const Tensor& a) {
  check_defined("linalg.matrix_exp", "a", a);
  if (a.dtype() == kFloat16 || a.dtype() == kBFloat16) return to(matrix_exp(to(a, kFloat32)), a.dtype());
  check_square("matrix_exp", a);
  const Tensor y = empty_of(a, a.shape());
  run_linalg(a, {y}, {a}, {.op = LinalgOp::MatrixExp});
  return record("matrix_exp", y, {a}, save(a), [](const Tensor& g, const Tensor& a) {
    const Tensor x = transposed(a);
    const int64_t n = rows(a);
    const Tensor blocks = matrix_exp(cat({cat({x, g}, -1), cat({zeros_like(x), x}, -1)}, -2));
    return Grads{narrow(narrow(blocks, -2, 0, n), -1, n, n)};
  });
}

}  // namespace tapir::inline v0
