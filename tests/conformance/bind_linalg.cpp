#include "ops.h"

namespace conformance {

#define MATRIX(name, f) table[name] = {[](Args& a) -> Results { return {f(a.tensor("input"))}; }, {}}

static Results both(std::pair<Tensor, Tensor> y) { return {y.first, y.second}; }

/// atol, rtol and hermitian; or the older tol (absolute) and rcond (relative).
static ToleranceOptions tolerance(Args& a) {
  const auto one = [&](const char* name) {
    const Value* v = a.find(name);
    return !v                               ? Tolerance()
           : v->kind == Value::Kind::Tensor ? Tolerance(v->tensor)
                                            : Tolerance(scalar_of(*v).to_double());
  };
  ToleranceOptions o{.atol = one("atol"), .rtol = one("rtol"), .hermitian = a.boolean("hermitian", false)};
  if (a.has("tol")) o.atol = one("tol"), o.rtol = Tolerance(0.0);
  if (a.has("rcond")) o.rtol = one("rcond");
  return o;
}

/// f(x, ord, dims, options) with a name or a number as ord.
template <class F> static Results norm_by(Args& a, const Dims& dims, const F& f) {
  const ReduceOptions o{.keepdim = a.boolean("keepdim", false), .dtype = a.dtype()};
  const Tensor x = a.tensor("input");
  const Value* ord = a.find("ord");
  return {ord && ord->is_number() ? f(x, scalar_of(*ord), a.dims("dim", dims), o)
                                  : f(x, std::string_view(ord ? ord->text : "fro"), a.dims("dim", dims), o)};
}

static void bind_systems() {
  auto& table = bindings();
  table["linalg.cholesky"] = {
      [](Args& a) -> Results { return {linalg::cholesky(a.tensor("input"), {a.boolean("upper", false)})}; }, {}};
  table["linalg.cholesky_ex"] = {
      [](Args& a) { return both(linalg::cholesky_ex(a.tensor("input"), {a.boolean("upper", false)})); }, {}};
  table["cholesky_solve"] = {
      [](Args& a) -> Results {
        return {cholesky_solve(a.tensor("input"), a.tensor("input2"), {a.boolean("upper", false)})};
      },
      {}};
  MATRIX("linalg.det", linalg::det);
  MATRIX("linalg.inv", linalg::inv);
  MATRIX("logdet", logdet);
  MATRIX("matrix_exp", matrix_exp);
  table["linalg.slogdet"] = {[](Args& a) { return both(linalg::slogdet(a.tensor("input"))); }, {}};
  table["linalg.solve"] = {
      [](Args& a) -> Results { return {linalg::solve(a.tensor("input"), a.tensor("B"), a.boolean("left", true))}; },
      {}};
  table["linalg.solve_triangular"] = {[](Args& a) -> Results {
                                        const TriangularOptions o{a.boolean("upper", false), a.boolean("left", true),
                                                                  a.boolean("unitriangular", false)};
                                        return {linalg::solve_triangular(a.tensor("input"), a.tensor("B"), o)};
                                      },
                                      {}};
  table["linalg.matrix_power"] = {
      [](Args& a) -> Results { return {linalg::matrix_power(a.tensor("input"), a.integer("n"))}; }, {}};
}

void bind_linalg() {
  auto& table = bindings();
  bind_systems();
  table["linalg.qr"] = {[](Args& a) { return both(linalg::qr(a.tensor("input"), a.text("mode", "reduced"))); }, {}};
  table["linalg.eigh"] = {[](Args& a) { return both(linalg::eigh(a.tensor("input"), a.text("UPLO", "L"))); }, {}};
  table["linalg.eigvalsh"] = {
      [](Args& a) -> Results { return {linalg::eigvalsh(a.tensor("input"), a.text("UPLO", "L"))}; }, {}};
  table["linalg.svd"] = {[](Args& a) -> Results {
                           auto [u, s, vh] = linalg::svd(a.tensor("input"), a.boolean("full_matrices", true));
                           return {u, s, vh};
                         },
                         {}};
  MATRIX("linalg.svdvals", linalg::svdvals);
  table["linalg.pinv"] = {[](Args& a) -> Results { return {linalg::pinv(a.tensor("input"), tolerance(a))}; }, {}};
  table["linalg.matrix_rank"] = {
      [](Args& a) -> Results { return {linalg::matrix_rank(a.tensor("input"), tolerance(a))}; }, {}};
  table["linalg.lstsq"] = {[](Args& a) -> Results {
                             const Value* rcond = a.find("rcond");
                             const auto y =
                                 linalg::lstsq(a.tensor("input"), a.tensor("b"),
                                               rcond ? std::optional(scalar_of(*rcond).to_double()) : std::nullopt,
                                               a.text("driver", "gelsy"));
                             return {y.solution, y.residuals, y.rank, y.singular_values};
                           },
                           {}};
  table["linalg.matrix_norm"] = {
      [](Args& a) {
        return norm_by(a, {-2, -1}, [](const auto&... v) { return linalg::matrix_norm(v...); });
      },
      {}};
}

}  // namespace conformance
