// Linear algebra and distances. Inputs are moved to where the decomposition exists and is unique: the references take them from there.
#include <algorithm>
#include <cmath>

#include "case.h"

namespace op_cases {

namespace {

constexpr DTypes kMatrices = set_of({kFloat32, kFloat64});

/// x + n on the diagonal: regular, and its lower or upper triangle that of a positive-definite matrix.
Tensor regular(const Tensor& x) { return x + eye(x.size(-1), -1, like(x)) * 14; }
/// The same of a symmetric matrix: the gradients of what reads one triangle are those of symmetric changes.
Tensor definite(const Tensor& x) { return regular((x + transpose(x, -2, -1)) * 0.5); }
/// x with a diagonal that sets eigenvalues and singular values apart.
Tensor apart(const Tensor& x) {
  const int64_t m = x.size(-2), n = x.size(-1);
  return x * 0.5 + eye(m, n, like(x)) * (arange(n, like(x)) * 7 + 3);
}
Tensor symmetric(const Tensor& x) { return apart(x + transpose(x, -2, -1)); }
int64_t rows(const Array& a) { return a.shape[a.shape.size() - 2]; }
int64_t columns(const Array& a) { return a.shape.back(); }
Array from(const Array& a, const std::function<double(const Dims& i, int64_t row, int64_t column)>& f) {
  return make(a.shape, [&](const Dims& i) { return f(i, i[i.size() - 2], i[i.size() - 1]); });
}
Array regular(const Array& a) {
  return from(a, [&](const Dims& i, int64_t r, int64_t c) { return a.at(i) + (r == c ? 14 : 0); });
}
Array apart(const Array& a) {
  return from(a, [&](const Dims& i, int64_t r, int64_t c) { return a.at(i) * 0.5 + (r == c ? 7 * double(c) + 3 : 0); });
}
Array transposed(const Array& a) {
  Shape shape = a.shape;
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return make(shape, [&](Dims i) { return std::swap(i[i.size() - 1], i[i.size() - 2]), a.at(i); });
}
/// The symmetric matrix of which a has the lower triangle.
Array symmetric(const Array& a) {
  return from(a, [&](Dims i, int64_t r, int64_t c) { return i[i.size() - 2] = std::max(r, c), i[i.size() - 1] = std::min(r, c), a.at(i); });
}
Array definite(const Array& a) {
  return from(a, [&](Dims i, int64_t r, int64_t c) {
    const double here = a.at(i);
    return std::swap(i[i.size() - 1], i[i.size() - 2]), (here + a.at(i)) * 0.5 + (r == c ? 14 : 0);
  });
}
Array triangle(const Array& a, bool upper, bool unit = false) {
  return from(a, [&](const Dims& i, int64_t r, int64_t c) { return r == c && unit ? 1 : (upper ? r <= c : r >= c) ? a.at(i) : 0; });
}
Array identity(const Array& a) {
  return from(a, [](const Dims&, int64_t r, int64_t c) { return double(r == c); });
}
Array product(const Array& a, const Array& b) {
  Shape left = a.shape, right = b.shape;
  left[left.size() - 1] = 1, right[right.size() - 2] = 1;
  return make(broadcast(left, right), [&](const Dims& i) {
    double s = 0;
    Dims j = i, k = i;
    for (int64_t n = 0; n < columns(a); ++n) j[i.size() - 1] = k[i.size() - 2] = n, s += broadcast_at(a, j) * broadcast_at(b, k);
    return s;
  });
}
/// Elimination with row pivots: A becomes the identity, B the solution, and each matrix's determinant is given.
Array eliminate(Array a, Array& b) {
  const int64_t n = columns(a), k = columns(b);
  Array det(Shape(std::span(a.shape.data(), size_t(a.shape.size() - 2))), 1);
  for (size_t at = 0; at < det.v.size(); ++at) {
    double *x = a.v.data() + int64_t(at) * n * n, *y = b.v.data() + int64_t(at) * n * k;
    for (int64_t p = 0; p < n; ++p) {
      int64_t best = p;
      for (int64_t r = p; r < n; ++r)
        if (std::abs(x[r * n + p]) > std::abs(x[best * n + p])) best = r;
      if (best != p) det.v[at] *= -1;
      for (int64_t c = 0; c < n; ++c) std::swap(x[p * n + c], x[best * n + c]);
      for (int64_t c = 0; c < k; ++c) std::swap(y[p * k + c], y[best * k + c]);
      const double pivot = x[p * n + p];
      det.v[at] *= pivot;
      for (int64_t c = 0; c < n; ++c) x[p * n + c] /= pivot;
      for (int64_t c = 0; c < k; ++c) y[p * k + c] /= pivot;
      for (int64_t r = 0; r < n; ++r) {
        const double f = r == p ? 0 : x[r * n + p];
        for (int64_t c = 0; c < n && f != 0; ++c) x[r * n + c] -= f * x[p * n + c];
        for (int64_t c = 0; c < k && f != 0; ++c) y[r * k + c] -= f * y[p * k + c];
      }
    }
  }
  return det;
}
Array solved(const Array& a, Array b) { return eliminate(a, b), b; }
Array inverse_of(const Array& a) { return solved(a, identity(a)); }
Array det_of(const Array& a) {
  Array b = identity(a);
  return eliminate(a, b);
}
/// (B, n) as (B, n, 1)
Array column(Array b) { return b.shape.push_back(1), b; }
Array vector(Array b) { return b.shape.resize(b.shape.size() - 1), b; }
/// L of the symmetric matrices whose lower triangle is a's.
Array cholesky_of(const Array& a) {
  Array l(a.shape);
  const int64_t n = columns(a);
  for (size_t at = 0; at < a.v.size(); at += size_t(n * n))
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c <= r; ++c) {
        double s = a.v[at + size_t(r * n + c)];
        for (int64_t k = 0; k < c; ++k) s -= l.v[at + size_t(r * n + k)] * l.v[at + size_t(c * n + k)];
        l.v[at + size_t(r * n + c)] = r == c ? std::sqrt(s) : s / l.v[at + size_t(c * n + c)];
      }
  return l;
}

/// What svd and qr give is unique up to signs: the products are.
List products(const std::tuple<Tensor, Tensor, Tensor>& usv) {
  const auto& [u, s, vh] = usv;
  const Tensor un = narrow(u, -1, 0, s.size(-1)), vn = narrow(vh, -2, 0, s.size(-1));
  return {matmul(un * unsqueeze(s, -2), vn), matmul(transpose(u, -2, -1), u), matmul(vh, transpose(vh, -2, -1))};
}
List products(const std::pair<Tensor, Tensor>& qr) { return {matmul(qr.first, qr.second), matmul(transpose(qr.first, -2, -1), qr.first)}; }
List eigen_products(const std::pair<Tensor, Tensor>& lv) {
  const auto& [l, v] = lv;
  return {matmul(v * unsqueeze(l * l, -2), transpose(v, -2, -1)), matmul(transpose(v, -2, -1), v)};
}
Array squared(const Array& a) { return product(a, a); }

void systems(Table& table) {
  const char* squares = "(3,3) | (2,3,3) | (1,1) | (0,0) | (2,0,0) | (0,2,2) | (7,7)";
  const auto line = [&](Case& c) -> Case& { return c.of(kMatrices).within(200).finite_only(); };
  line(CASE(cholesky, linalg::cholesky(definite(x[0])))).on(squares).EXPECT(cholesky_of(definite(x[0])));
  line(CASE(cholesky, linalg::cholesky(definite(x[0]), {.upper = true}))).on(squares).EXPECT(transposed(cholesky_of(definite(x[0]))));
  for (bool upper : {false, true})
    line(CASE(cholesky, linalg::cholesky(regular(x[0]), {.upper = upper}))).no_gradient().on("(3,3) | (2,3,3)").expect([upper](const Arrays& x) {
      const Array a = regular(x[0]);
      return upper ? transposed(cholesky_of(transposed(a))) : cholesky_of(a);
    });
  line(CASE(cholesky_ex, linalg::cholesky_ex(definite(x[0])))).on(squares).expect([](const Arrays& x) {
    return Arrays{cholesky_of(definite(x[0])), Array(det_of(x[0]).shape)};
  });
  for (bool upper : {false, true})
    line(CASE(cholesky_solve, cholesky_solve(x[1], linalg::cholesky(definite(x[0]), {.upper = upper}), {.upper = upper})))
        .on("(3,3) (3,2) | (2,3,3) (2,3,1) | (0,0) (0,2)")
        .EXPECT(solved(definite(x[0]), x[1]));
  line(CASE(cholesky_inverse, cholesky_inverse(linalg::cholesky(definite(x[0]))))).on("(3,3) | (2,3,3) | (0,0)").EXPECT(inverse_of(definite(x[0])));
  line(CASE(det, linalg::det(x[0]))).no_expand().on(squares).EXPECT(det_of(x[0]));
  line(CASE(det, det(x[0]))).first_order_only().no_expand().on("(2,2)").EXPECT(det_of(x[0]));
  line(CASE(slogdet, linalg::slogdet(regular(x[0])))).on(squares).expect([](const Arrays& x) {
    const Array d = det_of(regular(x[0]));
    return Arrays{make(d.shape, [&](const Dims& i) { return d.at(i) < 0 ? -1 : 1; }),
                  make(d.shape, [&](const Dims& i) { return std::log(std::abs(d.at(i))); })};
  });
  line(CASE(logdet, logdet(regular(x[0])))).on(squares).expect([](const Arrays& x) {
    const Array d = det_of(regular(x[0]));
    return make(d.shape, [&](const Dims& i) { return std::log(d.at(i)); });
  });
  line(CASE(inv, linalg::inv(regular(x[0])))).on(squares).EXPECT(inverse_of(regular(x[0])));
  line(CASE(inverse, inverse(regular(x[0])))).on("(3,3)").EXPECT(inverse_of(regular(x[0])));
  line(CASE(solve, linalg::solve(regular(x[0]), x[1])))
      .on("(3,3) (3,2) | (2,3,3) (2,3,2) | (0,0) (0,2) | (3,3) (3,0) | (0,2,2) (0,2,1)")
      .EXPECT(solved(regular(x[0]), x[1]));
  line(CASE(solve, linalg::solve(regular(x[0]), x[1]))).on("(3,3) (3) | (2,3,3) (2,3)").EXPECT(vector(solved(regular(x[0]), column(x[1]))));
  line(CASE(solve, linalg::solve(regular(x[0]), x[1], false)))
      .on("(3,3) (2,3) | (2,3,3) (2,2,3)")
      .EXPECT(transposed(solved(transposed(regular(x[0])), transposed(x[1]))));
  line(CASE(solve, linalg::solve(regular(x[0]), x[1])))
      .on("(3,3) (2,1,3,2) | (2,1,3,3) (3,3,2)")
      .first_order_only()
      .EXPECT(product(inverse_of(regular(x[0])), x[1]));
  for (int k = 0; k < 8; ++k) {
    const TriangularOptions o{.upper = (k & 1) != 0, .left = (k & 2) == 0, .unitriangular = (k & 4) != 0};
    line(CASE(solve_triangular, linalg::solve_triangular(regular(x[0]), x[1], o)))
        .on("(3,3) (3,3) | (2,3,3) (2,3,3) | (0,0) (0,0)")
        .expect([o](const Arrays& x) {
          const Array a = triangle(regular(x[0]), o.upper, o.unitriangular);
          return o.left ? solved(a, x[1]) : transposed(solved(transposed(a), transposed(x[1])));
        });
  }
  line(CASE(matrix_power, linalg::matrix_power(x[0], 3))).of(kFloats).on("(3,3) | (2,3,3) | (0,0)").EXPECT(product(product(x[0], x[0]), x[0]));
  line(CASE(matrix_power, linalg::matrix_power(regular(x[0]), -2))).on("(3,3)").EXPECT(squared(inverse_of(regular(x[0]))));
  line(CASE(matrix_power, linalg::matrix_power(x[0], 0))).of(kNumbers).no_gradient().on("(2,3,3)").EXPECT(identity(x[0]));
  line(CASE(matrix_exp, matrix_exp(x[0]))).on(squares).within(2000).expect([](const Arrays& x) {
    Array term = identity(x[0]), y = term;
    for (int n = 1; n < 200; ++n) {
      term = product(term, x[0]);
      for (size_t i = 0; i < y.v.size(); ++i) y.v[i] += term.v[i] /= n;
    }
    return y;
  });
  line(CASE(lu, results([](auto y) {
              return List{matmul(matmul(std::get<0>(y), std::get<1>(y)), std::get<2>(y)), std::get<1>(y), std::get<2>(y)};
            }(linalg::lu(regular(narrow(x[0], -1, 0, 3)))))))
      .on("(3,3)")
      .within(1000);
  for (const char* shape : {"(3,3)", "(2,3,5) | (2,0)", "(5,3) | (0,2)"})
    line(CASE(lu, [](auto y) { return matmul(matmul(std::get<0>(y), std::get<1>(y)), std::get<2>(y)); }(linalg::lu(apart(x[0])))))
        .on(shape)
        .EXPECT(apart(x[0]));
  line(CASE(lu_factor, linalg::lu_factor(apart(x[0])).first)).on("(3,3) | (2,3,5) | (5,3)");
  line(CASE(lu_solve, [](auto f, const Tensor& b) { return linalg::lu_solve(f.first, f.second, b); }(linalg::lu_factor(regular(x[0])), x[1])))
      .on("(3,3) (3,2) | (2,3,3) (2,3,1)")
      .EXPECT(solved(regular(x[0]), x[1]));
  line(CASE(tensorinv, linalg::tensorinv(reshape(regular(x[0]), {2, 3, 6}), 2))).on("(6,6)").expect([](const Arrays& x) {
    Array y = inverse_of(regular(x[0]));
    return y.shape = {6, 2, 3}, y;
  });
  line(CASE(tensorsolve, linalg::tensorsolve(reshape(regular(x[0]), {2, 3, 6}), x[1]))).on("(6,6) (2,3)").expect([](const Arrays& x) {
    Array b = x[1];
    b.shape = {6, 1};
    b = solved(regular(x[0]), b);
    return b.shape = {6}, b;
  });
  CASE(vander, linalg::vander(x[0], 4)).of(kNumbers).within(16).finite_only().on("(3) | (2,3) | (0)").expect([](const Arrays& x) {
    Shape shape = x[0].shape;
    shape.push_back(4);
    return make(shape, [&](Dims i) {
      const int64_t n = i.back();
      return i.resize(i.size() - 1), std::pow(x[0].at(i), double(n));
    });
  });
}

void decompositions(Table& table) {
  const char *any = "(3,3) | (2,4,3) | (3,4) | (1,1)", *empty = "(0,3) | (3,0) | (0,2,3) | (0,0)";
  const auto line = [&](Case& c) -> Case& { return c.of(kMatrices).within(400).finite_only(); };
  const auto rebuilt = [](bool complete) {
    return [complete](const Arrays& x) {
      Shape shape = x[0].shape;
      shape[shape.size() - 2] = shape[shape.size() - 1] = complete ? rows(x[0]) : std::min(rows(x[0]), columns(x[0]));
      return Arrays{apart(x[0]), identity(Array(shape))};
    };
  };
  line(CASE(qr, products(linalg::qr(apart(x[0]))))).on(any).expect(rebuilt(false));
  line(CASE(qr, products(linalg::qr(apart(x[0]))))).on(empty).expect(rebuilt(false));
  line(CASE(qr, products(linalg::qr(apart(x[0]), "complete")))).on("(3,4) | (3,3)").expect(rebuilt(true));
  line(CASE(qr, products(linalg::qr(apart(x[0]), "complete")))).no_gradient().on("(4,2) | (2,0)").expect(rebuilt(true));
  line(CASE(qr, square(linalg::qr(apart(x[0]), "r").second))).on("(3,4) | (4,3)");
  line(CASE(eigh, eigen_products(linalg::eigh(symmetric(x[0]))))).on("(3,3) | (2,4,4) | (0,0) | (1,1)");
  line(CASE(eigh, eigen_products(linalg::eigh(apart(x[0]))))).no_gradient().on("(3,3) | (2,4,4)").expect([](const Arrays& x) {
    return Arrays{squared(symmetric(apart(x[0]))), identity(x[0])};
  });
  line(CASE(eigh, eigen_products(linalg::eigh(apart(x[0]), "U")))).no_gradient().on("(3,3)").expect([](const Arrays& x) {
    return Arrays{squared(symmetric(transposed(apart(x[0])))), identity(x[0])};
  });
  line(CASE(eigvalsh, linalg::eigvalsh(symmetric(x[0])))).on("(3,3) | (2,4,4) | (0,0)");
  line(CASE(svd, products(linalg::svd(apart(x[0]), false)))).on(any);
  line(CASE(svd, products(linalg::svd(apart(x[0]), false))[0])).on("(3,3) | (2,5,3) | (3,5) | (0,3) | (3,0)").EXPECT(apart(x[0]));
  line(CASE(svd, products(linalg::svd(apart(x[0])))[0])).on("(2,4,3) | (3,4) | (3,0)").EXPECT(apart(x[0]));
  line(CASE(svd, products(linalg::svd(apart(x[0])))[1])).no_gradient().on("(4,2) | (3,0)").expect([](const Arrays& x) {
    return identity(Array(Shape{rows(x[0]), rows(x[0])}));
  });
  line(CASE(svdvals, linalg::svdvals(apart(x[0])))).on("(3,3) | (2,4,3) | (3,4) | (0,3)");
  line(CASE(pinv, linalg::pinv(apart(x[0])))).on("(3,3) | (2,4,3)").expect([](const Arrays& x) {
    const Array a = apart(x[0]), at = transposed(a);
    return solved(product(at, a), at);
  });
  line(CASE(pinv, linalg::pinv(apart(x[0])))).on("(3,4) | (0,3) | (2,0)");
  line(CASE(pinv, linalg::pinv(x[0] + transpose(x[0], -2, -1), {.hermitian = true}))).on("(3,3)");
  line(CASE(matrix_rank, linalg::matrix_rank(apart(x[0])))).no_gradient().gives(Gives::Int64).on("(4,3) | (2,3,5)").expect([](const Arrays& x) {
    return Array(Shape(std::span(x[0].shape.data(), size_t(x[0].shape.size() - 2))), double(std::min(rows(x[0]), columns(x[0]))));
  });
  line(CASE(lstsq, [](const linalg::Lstsq& y) { return y.solution; }(linalg::lstsq(apart(x[0]), x[1]))))
      .on("(4,3) (4,2) | (3,3) (3,1) | (2,4,3) (2,4,2)")
      .expect([](const Arrays& x) {
        const Array a = apart(x[0]), at = transposed(a);
        return solved(product(at, a), product(at, x[1]));
      });
}

/// The sums of |x| over rows (columns) of (..., M, N), and the largest or smallest of them.
Array extreme_sum(const Array& a, bool rows_summed, bool largest) {
  const Array t = rows_summed ? transposed(a) : a;
  const Arrays sums = fold(t, {t.shape.size() - 1}, false, [](const auto& v) {
    double s = 0;
    for (double e : v) s += std::abs(e);
    return std::vector{s};
  });
  return fold(sums[0], {sums[0].shape.size() - 1}, false,
              [largest](const auto& v) { return std::vector{largest ? *std::max_element(v.begin(), v.end()) : *std::min_element(v.begin(), v.end())}; })[0];
}
Array frobenius(const Array& a) {
  return fold(a, {a.shape.size() - 2, a.shape.size() - 1}, false, [](const auto& v) {
    double s = 0;
    for (double e : v) s += e * e;
    return std::vector{std::sqrt(s)};
  })[0];
}
Array times(Array a, const Array& b) {
  for (size_t i = 0; i < a.v.size(); ++i) a.v[i] *= b.v[i];
  return a;
}

void norms(Table& table) {
  const auto line = [&](Case& c) -> Case& { return c.of(kMatrices).within(400).finite_only(); };
  for (double p : {1., -1., double(INFINITY), -double(INFINITY)})
    CASE(matrix_norm, linalg::matrix_norm(x[0], p)).within(16).no_expand().on("(3,4) | (2,3,3)").EXPECT(extreme_sum(x[0], std::abs(p) == 1, p > 0));
  CASE(matrix_norm, linalg::matrix_norm(x[0])).within(16).on("(3,4) | (2,3,3) | (0,3)").EXPECT(frobenius(x[0]));
  CASE(matrix_norm, linalg::matrix_norm(x[0], "fro", {0, -1})).within(16).on("(3,2,4)").expect([](const Arrays& x) {
    return fold(x[0], {0, 2}, false, [](const auto& v) {
      double s = 0;
      for (double e : v) s += e * e;
      return std::vector{std::sqrt(s)};
    })[0];
  });
  line(CASE(matrix_norm, linalg::matrix_norm(apart(x[0]), "nuc"))).on("(3,4) | (2,3,3) | (0,3)");
  for (double p : {2., -2.}) line(CASE(matrix_norm, linalg::matrix_norm(apart(x[0]), p, {-2, -1}, {.keepdim = true}))).on("(3,4) | (2,3,3)");
  CASE(norm, linalg::norm(x[0], "fro")).within(16).on("(3,4)").EXPECT(frobenius(x[0]));
  CASE(norm, linalg::norm(x[0], 1, {-2, -1})).within(16).no_expand().on("(2,3,4)").EXPECT(extreme_sum(x[0], true, true));
  CASE(norm, linalg::norm(x[0], 3, 1)).within(32).on("(2,3)").expect([](const Arrays& x) {
    return fold(x[0], {1}, false, [](const auto& v) {
      double s = 0;
      for (double e : v) s += std::pow(std::abs(e), 3);
      return std::vector{std::cbrt(s)};
    })[0];
  });
  line(CASE(cond, linalg::cond(regular(x[0]), "fro"))).on("(3,3) | (2,3,3)").EXPECT(times(frobenius(regular(x[0])), frobenius(inverse_of(regular(x[0])))));
  line(CASE(cond, linalg::cond(regular(x[0]), 1)))
      .on("(3,3)")
      .EXPECT(times(extreme_sum(regular(x[0]), true, true), extreme_sum(inverse_of(regular(x[0])), true, true)));
  for (double p : {2., -2.}) line(CASE(cond, linalg::cond(apart(x[0]), p))).on("(3,4) | (2,3,3)");
}

double p_norm(const std::vector<double>& v, double p) {
  double s = 0, largest = 0;
  for (double e : v) s += p == 0 ? e != 0 : std::pow(std::abs(e), p), largest = std::max(largest, std::abs(e));
  return std::isinf(p) ? largest : p == 0 ? s : std::pow(s, 1 / p);
}
/// f of the vectors along the last dimension of a and b, which broadcast.
Array along_both(const Array& a, const Array& b, bool keepdim, const std::function<double(const std::vector<double>&, const std::vector<double>&)>& f) {
  Shape shape = broadcast(a.shape, b.shape), out = shape;
  if (keepdim) out[out.size() - 1] = 1;
  else out.resize(out.size() - 1);
  return make(out, [&](Dims i) {
    i.resize(shape.size());
    std::vector<double> u, v;
    for (int64_t k = 0; k < shape.back(); ++k) i[shape.size() - 1] = k, u.push_back(broadcast_at(a, i)), v.push_back(broadcast_at(b, i));
    return f(u, v);
  });
}
double distance(std::vector<double> u, const std::vector<double>& v, double p, double eps = 0) {
  for (size_t i = 0; i < u.size(); ++i) u[i] += eps - v[i];
  return p_norm(u, p);
}

void distances(Table& table) {
  for (double p : {0., 0.5, 1., 1.5, 2., 3., double(INFINITY)}) {
    const auto by_hand = [p](const Arrays& x) {
      Array a = x[0], b = x[1];
      a.shape.insert(a.shape.size() - 1, 1), b.shape.insert(b.shape.size() - 2, 1);
      return along_both(a, b, false, [p](const auto& u, const auto& v) { return distance(u, v, p); });
    };
    Case& line = CASE(cdist, cdist(x[0], x[1], {.p = p})).of(kMatrices).within(64).no_expand().finite_only();
    line.on("(3,4) (2,4) | (2,3,4) (2,2,4) | (0,4) (2,4) | (3,0) (2,0)").expect(by_hand);
    if (p < 3) line.on("(2,1,3,4) (3,2,4)");
    if (p == 2)
      CASE(cdist, cdist(x[0], x[1], {.compute_mode = "use_mm_for_euclid_dist"}))
          .of(kMatrices)
          .within(4000)
          .no_expand()
          .finite_only()
          .on("(3,4) (2,4) | (2,3,4) (2,4)")
          .expect(by_hand);
  }
  CASE(pdist, pdist(x[0], 3)).of(kMatrices).within(64).no_expand().finite_only().on("(4,3) | (0,2)").expect([](const Arrays& x) {
    Array y;
    const int64_t n = rows(x[0]), m = columns(x[0]);
    const auto row = [&](int64_t i) { return std::vector<double>(x[0].v.begin() + i * m, x[0].v.begin() + (i + 1) * m); };
    y.v.clear();
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i + 1; j < n; ++j) y.v.push_back(distance(row(i), row(j), 3));
    return y.shape = int64_t(y.v.size()), y;
  });
  CASE(dist, dist(x[0], x[1])).within(32).no_expand().finite_only().on("(3,4) (4)").expect([](const Arrays& x) {
    Array a = x[0], b(x[0].shape);
    for (size_t i = 0; i < b.v.size(); ++i) b.v[i] = x[1].v[i % x[1].v.size()];
    return Array({}, distance(a.v, b.v, 2));
  });
  for (bool keep : {false, true})
    CASE(pairwise_distance, pairwise_distance(x[0], x[1], {.p = 3, .keepdim = keep}))
        .of(kMatrices)
        .within(64)
        .finite_only()
        .no_expand()
        .on("(3,4) (3,4) | (3,4) (4) | (0,4) (0,4)")
        .expect([keep](const Arrays& x) { return along_both(x[0], x[1], keep, [](const auto& u, const auto& v) { return distance(u, v, 3, 1e-6); }); });
  CASE(cosine_similarity, cosine_similarity(x[0], x[1], {.dim = -1}))
      .within(32)
      .finite_only()
      .on("(3,4) (3,4) | (2,3,4) (1,4) | (0,4) (0,4)")
      .expect([](const Arrays& x) {
        return along_both(x[0], x[1], false, [](const auto& u, const auto& v) {
          double dot = 0;
          for (size_t i = 0; i < u.size(); ++i) dot += u[i] * v[i];
          return dot / std::max(p_norm(u, 2), 1e-8) / std::max(p_norm(v, 2), 1e-8);
        });
      });
  CASE(renorm, renorm(x[0], 2, 1, 4)).within(32).finite_only().on("(3,4) | (2,3,2) | (2,0,3)").TWIN(renorm_, 2, 1, 4).expect([](const Arrays& x) {
    const Dims others = x[0].shape.size() == 2 ? Dims{0} : Dims{0, 2};
    const Array length = fold(x[0], others, true, [](const auto& v) { return std::vector{p_norm(v, 2)}; })[0];
    return make(x[0].shape, [&](const Dims& i) { return x[0].at(i) * std::min(1.0, 4 / (broadcast_at(length, i) + 1e-7)); });
  });
  for (double p : {1., 2., 3.})
    CASE(normalize, normalize(x[0], {.p = p, .dim = -1})).within(32).finite_only().on("(3,4) | (0,2)").expect([p](const Arrays& x) {
      return along(x[0], x[0].shape.size() - 1, [p](std::vector<double> v) {
        const double n = std::max(p_norm(v, p), 1e-12);
        for (double& e : v) e /= n;
        return v;
      });
    });
}

}  // namespace

void linalg_cases(Table& table) { systems(table), decompositions(table), norms(table), distances(table); }

}  // namespace op_cases
