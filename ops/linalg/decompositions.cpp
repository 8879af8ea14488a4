// QR, eigenvalues, singular values, and what is made of them: pseudo-inverse, rank, least squares.
#include <limits>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../diagonal.h"
#include "../extremum.h"
#include "../linalg.h"
#include "../matmul.h"
#include "../pointwise.h"
#include "../reduce.h"
#include "../slicing.h"
#include "../ternary.h"
#include "../unary.h"
#include "linalg_front.h"

namespace tapir::inline v0 {

static void check_iteration(const char* op, const ErrorWord& e, const Tensor& a) {
  check(!e.set || e.value, "[{}] expected finite numbers, got an infinity or NaN in batch element {} (input is {})", op,
        e.position, a);
  check_runtime(!e.set, "[{}] the iteration did not converge for batch element {} (input is {})", op, e.position, a);
}

// ---- QR ----

// Seeger et al. 2017, arXiv 1710.08717 (tall); for wide matrices R's left block is the R of A's, Walter and Lehmann 2010,
// "Algorithmic differentiation of linear algebra functions".
static Tensor qr_gradient(const Tensor& gq, const Tensor& gr, const Tensor& q, const Tensor& r) {
  const int64_t m = rows(q), n = columns(r), k = rows(r);
  check(k == std::min(m, n),
        "[linalg.qr] the gradient of mode \"complete\" is not defined for more rows than columns, got {} rows and {} "
        "columns",
        m, n);
  Tensor inner = gr.defined() ? matmul(gr, transposed(r)) : Tensor();
  if (gq.defined()) inner = inner.defined() ? inner - matmul(transposed(q), gq) : neg(matmul(transposed(q), gq));
  if (m >= n) {
    const Tensor upper = triu(inner);
    Tensor left = matmul(q, upper + transposed(triu(upper, 1)));
    if (gq.defined()) left = left + gq;
    return linalg::solve_triangular(transposed(r), left, {.upper = false, .left = false});
  }
  const Tensor skew = tril(transposed(inner) - inner),
               left = linalg::solve_triangular(transposed(narrow(r, -1, 0, m)), matmul(q, skew),
                                               {.upper = false, .left = false}),
               ga = cat({left, zeros(shape_of(batch_of(r), {m, n - m}), {.dtype = r.dtype(), .device = r.device()})},
                        -1);
  return gr.defined() ? ga + matmul(q, gr) : ga;
}

namespace linalg {
std::pair<Tensor, Tensor> qr(const Tensor& a, std::string_view mode) try {
  TAPIR_AUTOCAST(qr, a, mode);
  check_matrices("linalg.qr", a);
  check(mode == "reduced" || mode == "complete" || mode == "r",
        "[linalg.qr] expected mode \"reduced\", \"complete\" or \"r\", got \"{}\"", mode);
  const int64_t m = rows(a), k = mode == "complete" ? m : std::min(m, columns(a));
  const bool with_q = mode != "r" || wants_grad({a});
  const Tensor q = with_q ? empty_of(a, shape_of(batch_of(a), {m, k})) : Tensor(),
               r = empty_of(a, shape_of(batch_of(a), {k, columns(a)}));
  run_linalg(a, {q, r}, {a}, {.op = LinalgOp::Qr});
  if (with_q) {
    const Tensor outputs[] = {q, r};
    record_outputs("linalg.qr", outputs, {a}, save(q, r), [](const Grads& g, const Tensor& q, const Tensor& r) {
      return Grads{qr_gradient(g[0], g[1], q, r)};
    });
  }
  return {mode == "r" ? empty_of(a, {0}) : q, r};
} catch (...) {
  fail_as("linalg.qr");
}
}  // namespace linalg

// ---- eigenvalues ----

static bool upper_of(const char* op, std::string_view uplo) {
  check(uplo == "L" || uplo == "U" || uplo == "l" || uplo == "u", "[{}] expected UPLO \"L\" or \"U\", got \"{}\"", op,
        uplo);
  return uplo == "U" || uplo == "u";
}

/// x_j - x_i at (i, j), and 1 on the diagonal.
static Tensor differences(const Tensor& x) {
  return unsqueeze(x, -2) - unsqueeze(x, -1) +
         identity_like(expand(unsqueeze(x, -2), shape_of(x.shape(), {x.shape().back()})));
}

namespace linalg {
std::pair<Tensor, Tensor> eigh(const Tensor& a, std::string_view uplo) {
  check_defined("linalg.eigh", "a", a);
  TAPIR_AUTOCAST(eigh, a, uplo);
  check_square("linalg.eigh", a);
  const bool upper = upper_of("linalg.eigh", uplo);
  const Tensor values = empty_of(a, shape_of(batch_of(a), {rows(a)})), vectors = empty_of(a, a.shape());
  check_iteration("linalg.eigh", run_linalg(a, {values, vectors}, {a}, {.op = LinalgOp::Eigh, .upper = upper}), a);
  const Tensor outputs[] = {values, vectors};
  // Giles 2008, 3.1: dA = V (diag(dL) + V^T dV / (L_j - L_i)) V^T.
  record_outputs("linalg.eigh", outputs, {a}, save(values, vectors),
                 [](const Grads& g, const Tensor& l, const Tensor& v) {
                   Tensor inner;
                   if (g[1].defined()) {
                     const Tensor vg = matmul(transposed(v), g[1]);
                     inner = (vg - transposed(vg)) * 0.5 / differences(l);
                   }
                   if (g[0].defined()) inner = inner.defined() ? inner + diag_embed(g[0]) : diag_embed(g[0]);
                   return Grads{matmul(matmul(v, inner), transposed(v))};
                 });
  return {values, vectors};
}

Tensor eigvalsh(const Tensor& a, std::string_view uplo) try {
  TAPIR_AUTOCAST(eigvalsh, a, uplo);
  check_square("linalg.eigvalsh", a);
  if (wants_grad({a})) return eigh(a, uplo).first;
  const Tensor values = empty_of(a, shape_of(batch_of(a), {rows(a)}));
  const bool upper = upper_of("linalg.eigvalsh", uplo);
  check_iteration("linalg.eigvalsh", run_linalg(a, {values}, {a}, {.op = LinalgOp::Eigh, .upper = upper}), a);
  return values;
} catch (...) {
  fail_as("linalg.eigvalsh");
}
}  // namespace linalg

// ---- singular values ----

// Townsend 2016, "Differentiating the singular value decomposition": dA = U [skew(U^T dU) / E S + S skew(V^T dV) / E + diag(dS)] V^T
// with E_ij = S_j^2 - S_i^2, and what of dU and dV lies outside the spaces of U and V.
static Tensor svd_gradient(const Grads& g, const Tensor& u, const Tensor& s, const Tensor& vh) {
  const Tensor &gu = g[0], &gs = g[1], &gvh = g[2], row = unsqueeze(s, -2), column = unsqueeze(s, -1);
  if (!gu.defined() && !gvh.defined()) return matmul(mul(u, unsqueeze(gs, -2)), vh);
  const Tensor e = differences(square(s));
  const auto skew = [](const Tensor& x) { return x - transposed(x); };
  Tensor inner = gs.defined() ? diag_embed(gs) : Tensor();
  const auto add_inner = [&](const Tensor& x) { inner = inner.defined() ? inner + x : x; };
  if (gu.defined()) add_inner(skew(matmul(transposed(u), gu)) / e * row);
  if (gvh.defined()) add_inner(column * (skew(matmul(vh, transposed(gvh))) / e));
  Tensor ga = matmul(inner, vh);
  if (gu.defined() && rows(u) > columns(u)) {
    const Tensor outside = gu / row;
    ga = matmul(u, ga) + matmul(outside - matmul(u, matmul(transposed(u), outside)), vh);
  } else {
    ga = matmul(u, ga);
  }
  if (!gvh.defined() || columns(vh) == rows(vh)) return ga;
  const Tensor outside = gvh / column;
  return ga + matmul(u, outside - matmul(matmul(outside, transposed(vh)), vh));
}

/// The kernel's results, without history.
static std::tuple<Tensor, Tensor, Tensor> run_svd(const char* op, const Tensor& a, bool full) {
  check_matrices(op, a);
  const int64_t m = rows(a), n = columns(a), k = std::min(m, n);
  const Tensor u = empty_of(a, shape_of(batch_of(a), {m, full ? m : k})), s = empty_of(a, shape_of(batch_of(a), {k})),
               vh = empty_of(a, shape_of(batch_of(a), {full ? n : k, n}));
  check_iteration(op, run_linalg(a, {s, u, vh}, {a}, {.op = LinalgOp::Svd}), a);
  return {u, s, vh};
}

namespace linalg {
std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& a, bool full_matrices) {
  check_defined("linalg.svd", "a", a);
  TAPIR_AUTOCAST(svd, a, full_matrices);
  const auto [u, s, vh] = run_svd("linalg.svd", a, full_matrices);
  const Tensor outputs[] = {u, s, vh};
  record_outputs("linalg.svd", outputs, {a}, save(u, s, vh),
                 [](const Grads& g, const Tensor& u, const Tensor& s, const Tensor& vh) {
                   const int64_t k = s.shape().back();  // what completes U and Vh is not unique: it has no gradient
                   const auto part = [k](const Tensor& x, int64_t dim) {
                     return x.defined() ? narrow(x, dim, 0, k) : x;
                   };
                   return Grads{svd_gradient({part(g[0], -1), g[1], part(g[2], -2)}, part(u, -1), s, part(vh, -2))};
                 });
  return {u, s, vh};
}

Tensor svdvals(const Tensor& a) {
  check_defined("linalg.svdvals", "a", a);
  TAPIR_AUTOCAST(svdvals, a);
  check_matrices("linalg.svdvals", a);
  if (wants_grad({a})) return std::get<1>(svd(a, false));
  const Tensor s = empty_of(a, shape_of(batch_of(a), {std::min(rows(a), columns(a))}));
  check_iteration("linalg.svdvals", run_linalg(a, {s}, {a}, {.op = LinalgOp::Svd}), a);
  return s;
}
}  // namespace linalg

// ---- what singular values tell ----

Tensor Tolerance::like(const Tensor& x) const {
  return tensor_.defined() ? to(tensor_, x.dtype())
                           : full({}, number_.value_or(0), {.dtype = x.dtype(), .device = x.device()});
}

/// What s (..., K) must exceed not to count as 0: (..., 1).
static Tensor threshold(const Tensor& a, const Tensor& s, const ToleranceOptions& o) {
  const double eps =
      a.dtype() == kFloat32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  const Tensor otherwise =
      full({}, double(std::max(rows(a), columns(a))) * eps, {.dtype = a.dtype(), .device = a.device()});
  const Tensor atol = o.atol.like(a);
  const Tensor rtol = o.rtol.defined()   ? o.rtol.like(a)
                      : o.atol.defined() ? where(gt(atol, 0), 0, otherwise)
                                         : otherwise;
  const Tensor largest = s.shape().back() ? amax(abs(s), -1) : sum(s, -1);
  return unsqueeze(maximum(atol, rtol * largest), -1);
}

namespace linalg {
Tensor matrix_rank(const Tensor& a, const ToleranceOptions& o) {
  check_defined("linalg.matrix_rank", "a", a);
  TAPIR_AUTOCAST(matrix_rank, a, o);
  check_matrices("linalg.matrix_rank", a);
  NoGrad guard;
  const Tensor s = o.hermitian ? abs(eigvalsh(a)) : svdvals(a);
  return sum(gt(s, threshold(a, s, o)), -1);
}

/// Eigenvectors or singular vectors with the inverse values that are not taken for 0; without history.
static Tensor pinv_value(const Tensor& a, const ToleranceOptions& o) {
  if (a.numel() == 0) return empty_of(a, transposed(a).shape());
  NoGrad guard;
  const auto inverse = [&](const Tensor& s) {
    return unsqueeze(masked_fill(reciprocal(s), le(abs(s), threshold(a, s, o)), 0), -2);
  };
  if (o.hermitian) {
    const auto [l, v] = eigh(a);
    return matmul(mul(v, inverse(l)), transposed(v));
  }
  const auto [u, s, vh] = run_svd("linalg.pinv", a, false);
  return matmul(mul(transposed(vh), inverse(s)), transposed(u));
}
// Golub and Pereyra 1973, "The differentiation of pseudo-inverses and nonlinear least squares problems".
Tensor pinv(const Tensor& a, const ToleranceOptions& o) {
  check_defined("linalg.pinv", "a", a);
  o.hermitian ? check_square("linalg.pinv", a) : check_matrices("linalg.pinv", a);
  const Tensor p = pinv_value(a, o);
  return record("linalg.pinv", p, {a}, save(a, p), [](const Tensor& g, const Tensor& a, const Tensor& p) {
    const Tensor pt = transposed(p), gt = transposed(g), left = matmul(gt, matmul(p, pt)),
                 right = matmul(matmul(pt, p), gt);
    return Grads{left - matmul(a, matmul(p, left)) + right - matmul(matmul(right, p), a) - matmul(pt, matmul(g, pt))};
  });
}

Lstsq lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond, std::string_view driver) try {
  TAPIR_AUTOCAST(lstsq, a, b, rcond, driver);
  const char* name = "linalg.lstsq";
  check_matrices(name, a), check_pair(name, a, b);
  check(driver == "gels" || driver == "gelsy" || driver == "gelsd" || driver == "gelss",
        "[{}] expected driver \"gels\", \"gelsy\", \"gelsd\" or \"gelss\", got \"{}\"", name, driver);
  const bool vector = b.dim() == a.dim() - 1 && b.shape() == shape_of(batch_of(a), {rows(a)});
  check(vector || (b.dim() >= 2 && rows(b) == rows(a)), "[{}] expected a right-hand side that fits {}, got {}", name,
        a.shape(), b.shape());
  const ToleranceOptions tolerance{.rtol = rcond ? Tolerance(*rcond) : Tolerance()};
  const Tensor right = vector ? unsqueeze(b, -1) : b, x = matmul(pinv(a, tolerance), right);
  Lstsq out{vector ? squeeze(x, -1) : x, empty_of(a, {0}), empty({0}, {.dtype = kInt64, .device = a.device()}),
            empty_of(a, {0})};
  bool full_rank = true;
  if (driver != "gels") {
    NoGrad guard;
    const Tensor s = svdvals(a);
    out.rank = sum(gt(s, threshold(a, s, tolerance)), -1);
    full_rank = driver != "gelsy" && eq(out.rank, columns(a)).all().item<bool>();
    if (driver != "gelsy") out.singular_values = s;
  }
  if (full_rank && rows(a) > columns(a)) out.residuals = sum(square(matmul(a, x) - right), -2);
  return out;
} catch (...) {
  fail_as("linalg.lstsq");
}
}  // namespace linalg

}  // namespace tapir::inline v0
