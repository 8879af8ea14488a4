// Products of matrices.
#include <cctype>
#include <cmath>
#include <map>

#include "case.h"

namespace op_cases {

/// (..., M, K) x (..., K, N); a vector is a row on the left, a column on the right.
static Array product(Array a, Array b) {
  const bool row = a.shape.size() == 1, column = b.shape.size() == 1;
  if (row) a.shape.insert(0, 1);
  if (column) b.shape.insert(1, 1);
  const int64_t inner = a.shape.back();
  Shape shape_a = a.shape, shape_b = b.shape;
  const int64_t m = shape_a[shape_a.size() - 2], n = shape_b.back();
  shape_a.resize(shape_a.size() - 2), shape_b.resize(shape_b.size() - 2);
  Shape shape = broadcast(shape_a, shape_b);
  shape.push_back(m), shape.push_back(n);
  Array y = make(shape, [&](const Dims& i) {
    long double s = 0;  // one by one, 2500 equal terms in double are off by 100 ulp
    Dims at_a = i, at_b = i;
    for (int64_t k = 0; k < inner; ++k) {
      at_a[i.size() - 1] = at_b[i.size() - 2] = k;
      s += static_cast<long double>(broadcast_at(a, at_a)) * broadcast_at(b, at_b);
    }
    return double(s);
  });
  if (column) y.shape.erase(y.shape.size() - 1);
  if (row) y.shape.erase(y.shape.size() - 1 - !column);
  return y;
}
static Array times(const Arrays& x) { return product(x[0], x[1]); }
/// beta x + alpha a b
static std::function<Array(const Arrays&)> sum_of(double beta, double alpha) {
  return [=](const Arrays& x) {
    const Array ab = product(x[1], x[2]);
    return make(ab.shape, [&](const Dims& i) { return (beta ? beta * broadcast_at(x[0], i) : 0) + alpha * ab.at(i); });
  };
}
static Array transposed(const Array& w) {
  return w.shape.size() < 2 ? w : make({w.shape[1], w.shape[0]}, [&](const Dims& i) { return w.at({i[1], i[0]}); });
}

/// The sum of products that an equation of letters names, element by element.
static Array summed(std::string_view equation, const Arrays& x) {
  std::map<char, int64_t> size, at;
  std::vector<std::string> terms(1);
  for (char c : equation)
    if (std::isalpha(c)) terms.back() += c;
    else if (c != '-') terms.emplace_back();
  const auto indices = [](const std::string& letters, const std::map<char, int64_t>& of) {
    Dims d;
    for (char c : letters) d.push_back(of.at(c));
    return d;
  };
  for (size_t k = 0; k < x.size(); ++k)
    for (size_t d = 0; d < terms[k].size(); ++d) size[terms[k][d]] = x[k].shape[int64_t(d)];
  std::string gone;
  for (auto& [c, n] : size)
    if (terms.back().find(c) == std::string::npos) gone += c;
  return make(indices(terms.back(), size), [&](const Dims& i) {
    for (size_t d = 0; d < terms.back().size(); ++d) at[terms.back()[d]] = i[int64_t(d)];
    const Shape inner = indices(gone, size);
    Dims j = Dims::filled(inner.size(), 0);
    long double sum = 0;
    if (numel_of(inner)) do {
        for (size_t d = 0; d < gone.size(); ++d) at[gone[d]] = j[int64_t(d)];
        long double p = 1;
        for (size_t k = 0; k < x.size(); ++k) p *= x[k].at(indices(terms[k], at));
        sum += p;
      } while (next(j, inner));
    return double(sum);
  });
}

static void product_cases(Table& table) {
  const auto contraction = [&](const char* equation, const char* shapes, const auto& f) -> Case& {
    Case& line = table.add("einsum", std::string("einsum(\"") + equation + "\")", [f](const List& x) { return results(f(x)); });
    return line.of(kNumbers).within(64).on(shapes).gives(Gives::Other);
  };
  for (auto [equation, shapes] : {std::pair{"ij,jk->ik", "(3,4) (4,2) | (3,0) (0,2) | (1,70) (70,48)"},
                                  {"bhqd,bhkd->bhqk", "(2,2,3,2) (2,2,4,2) | (1,2,1,70) (1,2,24,70)"},
                                  {"i,j->ij", "(3) (4)"},
                                  {"ii->i", "(3,3)"},
                                  {"iji->j", "(2,3,2)"},
                                  {"ijk->ki", "(2,3,4) | (2,0,4)"},
                                  {"ij,ij->", "(2,3) (2,3)"},
                                  {"abc,cd,de->abe", "(2,3,2) (2,4) (4,3)"},
                                  {"abi,bcj,ijk->ack", "(2,3,2) (3,2,3) (2,3,2)"},
                                  {"ij,jk,kl,li->", "(2,3) (3,4) (4,2) (2,2)"},
                                  {"ab,ab,b->a", "(3,4) (3,4) (4)"}})
    contraction(equation, shapes, [equation = equation](const List& x) {
      return einsum(equation, x);
    }).expect([equation = equation](const Arrays& x) {
        return summed(equation, x);
      }).views(Shares::Maybe);
  CASE(einsum, einsum("...ij, ...jk", x)).of(kFloats).within(64).on("(2,3,2,4) (3,4,2) | (1,2,4) (3,4,2)").EXPECT(product(x[0], x[1]));
  CASE(einsum, einsum("...i,j...", x)).of(kFloats).within(64).on("(2,3) (4,2)").EXPECT(summed("bi,jb->bij", x));
  CASE(einsum, einsum("b...c->c...", x)).of(kFloats).within(64).on("(2,3,4)").EXPECT(summed("bac->ca", x));
  CASE(tensordot, tensordot(x[0], x[1]))
      .of(kNumbers)
      .within(64)
      .on("(2,3,4) (3,4,5) | (3,0) (3,0) | (1,5,70) (5,70,8)")
      .gives(Gives::Same)
      .expect([](const Arrays& x) { return x[0].shape.size() == 2 ? summed("ij,ij->", x) : summed("ijk,jkl->il", x); });
  CASE(tensordot, tensordot(x[0], x[1], {0, -1}, {2, 0})).of(kNumbers).within(64).on("(2,3,4) (4,5,2) | (2,1,1) (4,1,2)").expect([](const Arrays& x) {
    return summed(x[0].shape[2] == 1 ? "ijm,kli->jl" : "ijk,kli->jl", x);
  });
  CASE(tensordot, tensordot(x[0], x[1], 0)).of(kNumbers).on("(2) (3,2) | () (2)").expect([](const Arrays& x) {
    return x[0].shape.empty() ? summed(",i->i", x) : summed("i,jk->ijk", x);
  });
  CASE(inner, inner(x[0], x[1])).of(kNumbers).within(32).on("(2,3) (4,3) | (3) (2,3) | (0) (0) | (1,70) (48,70)").expect([](const Arrays& x) {
    return x[0].shape.size() == 2 ? summed("ik,jk->ij", x) : x[1].shape.size() == 2 ? summed("k,jk->j", x) : summed("k,k->", x);
  });
  CASE(inner, inner(x[0], x[1])).of(kAll).on("() (3)").EXPECT(summed(",i->i", x));
  CASE(vdot, vdot(x[0], x[1])).of(kNumbers).within(32).on("(5) (5) | (2500) (2500)").EXPECT(summed("i,i->", x));
  CASE(vecdot, linalg::vecdot(x[0], x[1])).of(kNumbers).within(32).on("(2,5) (2,5) | (2,0) (2,0)").EXPECT(summed("bi,bi->b", x));
  CASE(ger, ger(x[0], x[1])).of(kAll).on("(3) (4)").EXPECT(summed("i,j->ij", x));
  CASE(bilinear, bilinear(x[0], x[1], x[2], x[3]))
      .of(kFloats)
      .finite_only()
      .within(64)
      .on("(3,2) (3,4) (5,2,4) (5) | (0,2) (0,4) (5,2,4) (5) | (1,9) (1,17) (16,9,17) (16)")
      .expect([](const Arrays& x) {
        const Array y = summed("bi,bj,oij->bo", {x[0], x[1], x[2]});
        return make(y.shape, [&](const Dims& i) { return y.at(i) + x[3].v[size_t(i[1])]; });
      });
  CASE(bilinear, bilinear(x[0], x[1], x[2])).of(kNumbers).finite_only().within(64).on("(2) (4) (5,2,4)").EXPECT(summed("i,j,oij->o", x));
  CASE(chain_matmul, chain_matmul(x))
      .of(kNumbers)
      .within(64)
      .on("(2,3) (3,4) (4,2) | (2,3) (3,0) (0,2) | (1,70) (70,48) (48,1)")
      .EXPECT(summed("ab,bc,cd->ad", x));
  CASE(chain_matmul, chain_matmul(x)).on("(2,3)").views().EXPECT(summed("ij->ij", x));
  CASE(multi_dot, linalg::multi_dot(x)).of(kNumbers).within(128).on("(4) (4,2) (2,5) (5)").EXPECT(summed("a,ab,bc,c->", x));
  CASE(multi_dot, linalg::multi_dot(x)).of(kNumbers).within(128).on("(5,4) (4,3) (3,6) (6,2) | (1,0) (0,3) (3,6) (6,2)").EXPECT(summed("ab,bc,cd,de->ae", x));
  const auto crossed = [](const Arrays& x) {
    return make(broadcast(x[0].shape, x[1].shape), [&](Dims i) {
      const int64_t k = i[1];
      const auto factor = [&](const Array& a, int64_t by) { return i[1] = (k + by) % 3, broadcast_at(a, i); };
      return factor(x[0], 1) * factor(x[1], 2) - factor(x[0], 2) * factor(x[1], 1);
    });
  };
  CASE(cross, cross(x[0], x[1])).of(kNumbers).on("(2,3,4) (2,3,4) | (2,3,4) (1,3,1)").expect(crossed);
  CASE(cross, linalg::cross(x[0], x[1], 1)).of(kNumbers).on("(3,3) (3,3) | (0,3) (0,3)").expect(crossed);
  CASE(kron, kron(x[0], x[1])).of(kNumbers).on("(2,3) (3,2) | (3) (2,2) | (0,2) (2,3)").expect([](const Arrays& x) {
    Array a = x[0];
    if (a.shape.size() == 1) a.shape.insert(0, 1);
    const Shape& b = x[1].shape;
    return make({a.shape[0] * b[0], a.shape[1] * b[1]}, [&](const Dims& i) { return a.at({i[0] / b[0], i[1] / b[1]}) * x[1].at({i[0] % b[0], i[1] % b[1]}); });
  });
}

void matmul_cases(Table& table) {
  constexpr double kUlps = 32;
  product_cases(table);
  CASE(matmul, matmul(x[0], x[1]))
      .of(kNumbers)
      .within(kUlps)
      .expect(times)
      .perf("(512,512) (512,512)")
      .on("(3,4) (4,2) | (4) (4) | (4) (4,2) | (3,4) (4) | (2,3,4) (4,2) | (3,4) (2,4,2) | (2,1,3,4) (3,4,2) | (2,3,4) (4) | (3,0) (0,2) | (0,3,4) (4,2) | "
          "(2,1,2,1,3,1,3,4) (3,1,4,2) | (17,33) (33,19) | (1,70) (70,48) | (48,70) (70,1) | (310,1) (1,8) | (70) (70,48) | (48,70) (70) | (2,1,70) (2,70,24) "
          "| "
          "(2,24,70) (2,70,1)");
  CASE(mm, mm(x[0], x[1]))
      .of(kNumbers)
      .within(kUlps)
      .on("(3,4) (4,2) | (3,0) (0,2) | (0,4) (4,2) | (17,33) (33,19) | (1,70) (70,48) | (48,70) (70,1) | (310,1) (1,8)")
      .expect(times);
  CASE(bmm, bmm(x[0], x[1]))
      .of(kNumbers)
      .within(kUlps)
      .on("(2,3,4) (2,4,2) | (0,3,4) (0,4,2) | (2,3,0) (2,0,2) | (2,1,70) (2,70,24) | (2,24,70) (2,70,1) | (2,310,1) (2,1,4)")
      .expect(times)
      .perf("(16,256,256) (16,256,256)");
  CASE(mv, mv(x[0], x[1])).of(kNumbers).within(kUlps).on("(3,4) (4) | (3,0) (0) | (48,70) (70)").expect(times).perf("(1024,1024) (1024)");
  CASE(dot, dot(x[0], x[1])).of(kNumbers).within(kUlps).on("(5) (5) | (0) (0) | (431) (431) | (2500) (2500)").expect(times);
  CASE(outer, outer(x[0], x[1])).of(kAll).on("(3) (4) | (0) (4) | (310) (8)").expect([](const Arrays& x) {
    return make({x[0].shape[0], x[1].shape[0]}, [&](const Dims& i) { return x[0].at(i[0]) * x[1].at(i[1]); });
  });
  CASE(addmm, addmm(x[0], x[1], x[2]))
      .of(kNumbers)
      .within(kUlps)
      .on("(3,2) (3,4) (4,2) | (2) (3,4) (4,2) | (3,2) (3,0) (0,2) | (1,48) (1,70) (70,48) | (48,1) (48,70) (70,1) | (310,8) (310,1) (1,8) | (3,3) (3,3) (3,3)")
      .expect(sum_of(1, 1))
      .TWIN(addmm_, x[1], x[2])
      .twin_adds_elsewhere();
  CASE(addmm, addmm(x[0], x[1], x[2], {.beta = 0.5, .alpha = 2.0}))
      .within(kUlps)
      .on("(3,2) (3,4) (4,2) | () (3,4) (4,2) | (1,48) (1,72) (72,48) | (48,1) (48,70) (70,1)")
      .expect(sum_of(0.5, 2))
      .TWIN(addmm_, x[1], x[2], {.beta = 0.5, .alpha = 2.0})
      .twin_adds_elsewhere();
  CASE(addmm, addmm(x[0], x[1], x[2], {.beta = 0, .alpha = 3}))
      .of(kNumbers)
      .within(kUlps)
      .on("(3,2) (3,4) (4,2)")
      .expect(sum_of(0, 3))
      .TWIN(addmm_, x[1], x[2], {.beta = 0, .alpha = 3})
      .twin_adds_elsewhere();
  CASE(baddbmm, baddbmm(x[0], x[1], x[2], {.beta = 2, .alpha = 3}))
      .of(kNumbers)
      .within(kUlps)
      .on("(2,3,2) (2,3,4) (2,4,2) | (2) (2,3,4) (2,4,2) | (0,3,2) (0,3,4) (0,4,2) | (2,1,24) (2,1,70) (2,70,24) | (2,24,1) (2,24,70) (2,70,1) | (2,3,3) "
          "(2,3,3) (2,3,3)")
      .expect(sum_of(2, 3))
      .TWIN(baddbmm_, x[1], x[2], {.beta = 2, .alpha = 3})
      .twin_adds_elsewhere();
  CASE(addmv, addmv(x[0], x[1], x[2], {.beta = 2, .alpha = 3}))
      .of(kNumbers)
      .within(kUlps)
      .on("(3) (3,4) (4) | () (3,4) (4) | (3) (3,0) (0) | (48) (48,70) (70)")
      .expect(sum_of(2, 3))
      .TWIN(addmv_, x[1], x[2], {.beta = 2, .alpha = 3})
      .twin_adds_elsewhere();
  CASE(addr, addr(x[0], x[1], x[2], {.beta = 2, .alpha = 3}))
      .of(kNumbers)
      .on("(3,2) (3) (2) | (2) (3) (2) | (0,2) (0) (2) | (310,8) (310) (8)")
      .TWIN(addr_, x[1], x[2], {.beta = 2, .alpha = 3})
      .expect([](const Arrays& x) {
        return make({x[1].shape[0], x[2].shape[0]}, [&](const Dims& i) { return 2 * broadcast_at(x[0], i) + 3 * x[1].at(i[0]) * x[2].at(i[1]); });
      });
  CASE(addr, addr(x[0], x[1], x[2], {.beta = 0})).of(kFloats).on("() (3) (2)").EXPECT(summed("i,j->ij", {x[1], x[2]}));
  CASE(addbmm, addbmm(x[0], x[1], x[2], {.beta = 2}))
      .of(kNumbers)
      .within(kUlps)
      .on("(3,2) (4,3,2) (4,2,2) | () (4,3,2) (4,2,2) | (3,2) (0,3,2) (0,2,2) | (1,24) (3,1,70) (3,70,24)")
      .TWIN(addbmm_, x[1], x[2], {.beta = 2})
      .twin_adds_elsewhere()
      .expect([](const Arrays& x) {
        const Array y = summed("bij,bjk->ik", {x[1], x[2]});
        return make(y.shape, [&](const Dims& i) { return 2 * broadcast_at(x[0], i) + y.at(i); });
      });
  CASE(linear, linear(x[0], x[1], x[2]))
      .of(kNumbers)
      .within(kUlps)
      .on("(5,4) (3,4) (3) | (2,5,4) (3,4) (3) | (4) (3,4) (3) | (0,4) (3,4) (3) | (1,70) (48,70) (48) | (48,70) (1,70) (1) | (310,1) (8,1) (8)")
      .perf("(256,512) (512,512) (512)")
      .expect([](const Arrays& x) {
        const Array y = product(x[0], transposed(x[1]));
        return make(y.shape, [&](const Dims& i) { return y.at(i) + x[2].v[size_t(i.back())]; });
      });
  CASE(linear, linear(x[0], x[1]))
      .of(kNumbers)
      .within(kUlps)
      .on("(5,4) (3,4) | (2,5,4) (4) | (5,0) (3,0) | (1,70) (48,70)")
      .EXPECT(product(x[0], transposed(x[1])));
  const auto gelu_of_sum = [](const Arrays& x) {
    const Array y = product(x[0], transposed(x[1]));
    return make(y.shape, [&](const Dims& i) {
      const double a = y.at(i) + (x.size() > 2 ? x[2].v[size_t(i.back())] : 0);
      return a / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0)) * (a + 0.044715 * a * a * a)));  // tanh would cancel
    });
  };
  CASE(linear_gelu, linear_gelu(x[0], x[1], x[2]))
      .of(kFloats)
      .within(4 * kUlps)
      .on("(5,4) (8,4) (8) | (2,5,4) (3,4) (3) | (4) (3,4) (3) | (0,4) (3,4) (3) | (1,70) (48,70) (48)")
      .perf("(256,512) (512,512) (512)")
      .expect(gelu_of_sum);
  CASE(linear_gelu, linear_gelu(x[0], x[1])).of(kFloats).within(4 * kUlps).on("(5,4) (8,4) | (2,5,4) (4) | (5,0) (3,0)").expect(gelu_of_sum);
}

}  // namespace op_cases
