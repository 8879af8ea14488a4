// Products of matrices.
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
    double s = 0;
    Dims at_a = i, at_b = i;
    for (int64_t k = 0; k < inner; ++k) {
      at_a[i.size() - 1] = at_b[i.size() - 2] = k;
      s += broadcast_at(a, at_a) * broadcast_at(b, at_b);
    }
    return s;
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

void matmul_cases(Table& table) {
  constexpr double kUlps = 32;
  CASE(matmul, matmul(x[0], x[1]))
      .of(kNumbers)
      .within(kUlps)
      .expect(times)
      .perf("(512,512) (512,512)")
      .on("(3,4) (4,2) | (4) (4) | (4) (4,2) | (3,4) (4) | (2,3,4) (4,2) | (3,4) (2,4,2) | (2,1,3,4) (3,4,2) | (2,3,4) (4) | (3,0) (0,2) | (0,3,4) (4,2) | "
          "(2,1,2,1,3,1,3,4) (3,1,4,2) | (17,33) (33,19)");
  CASE(mm, mm(x[0], x[1])).of(kNumbers).within(kUlps).on("(3,4) (4,2) | (3,0) (0,2) | (0,4) (4,2) | (17,33) (33,19)").expect(times);
  CASE(bmm, bmm(x[0], x[1]))
      .of(kNumbers)
      .within(kUlps)
      .on("(2,3,4) (2,4,2) | (0,3,4) (0,4,2) | (2,3,0) (2,0,2)")
      .expect(times)
      .perf("(16,256,256) (16,256,256)");
  CASE(mv, mv(x[0], x[1])).of(kNumbers).within(kUlps).on("(3,4) (4) | (3,0) (0)").expect(times).perf("(1024,1024) (1024)");
  CASE(dot, dot(x[0], x[1])).of(kNumbers).within(kUlps).on("(5) (5) | (0) (0) | (431) (431)").expect(times);
  CASE(outer, outer(x[0], x[1])).of(kAll).on("(3) (4) | (0) (4)").expect([](const Arrays& x) {
    return make({x[0].shape[0], x[1].shape[0]}, [&](const Dims& i) { return x[0].at(i[0]) * x[1].at(i[1]); });
  });
  CASE(addmm, addmm(x[0], x[1], x[2]))
      .of(kNumbers)
      .within(kUlps)
      .on("(3,2) (3,4) (4,2) | (2) (3,4) (4,2) | (3,2) (3,0) (0,2)")
      .expect(sum_of(1, 1))
      .TWIN(addmm_, x[1], x[2]);
  CASE(addmm, addmm(x[0], x[1], x[2], {.beta = 0.5, .alpha = 2.0}))
      .within(kUlps)
      .on("(3,2) (3,4) (4,2) | () (3,4) (4,2)")
      .expect(sum_of(0.5, 2))
      .TWIN(addmm_, x[1], x[2], {.beta = 0.5, .alpha = 2.0});
  CASE(addmm, addmm(x[0], x[1], x[2], {.beta = 0, .alpha = 3}))
      .of(kNumbers)
      .within(kUlps)
      .on("(3,2) (3,4) (4,2)")
      .expect(sum_of(0, 3))
      .TWIN(addmm_, x[1], x[2], {.beta = 0, .alpha = 3});
  CASE(baddbmm, baddbmm(x[0], x[1], x[2], {.beta = 2, .alpha = 3}))
      .of(kNumbers)
      .within(kUlps)
      .on("(2,3,2) (2,3,4) (2,4,2) | (2) (2,3,4) (2,4,2) | (0,3,2) (0,3,4) (0,4,2)")
      .expect(sum_of(2, 3))
      .TWIN(baddbmm_, x[1], x[2], {.beta = 2, .alpha = 3});
  CASE(addmv, addmv(x[0], x[1], x[2], {.beta = 2, .alpha = 3}))
      .of(kNumbers)
      .within(kUlps)
      .on("(3) (3,4) (4) | () (3,4) (4) | (3) (3,0) (0)")
      .expect(sum_of(2, 3))
      .TWIN(addmv_, x[1], x[2], {.beta = 2, .alpha = 3});
  CASE(linear, linear(x[0], x[1], x[2]))
      .of(kNumbers)
      .within(kUlps)
      .on("(5,4) (3,4) (3) | (2,5,4) (3,4) (3) | (4) (3,4) (3) | (0,4) (3,4) (3)")
      .perf("(256,512) (512,512) (512)")
      .expect([](const Arrays& x) {
        const Array y = product(x[0], transposed(x[1]));
        return make(y.shape, [&](const Dims& i) { return y.at(i) + x[2].v[size_t(i.back())]; });
      });
  CASE(linear, linear(x[0], x[1])).of(kNumbers).within(kUlps).on("(5,4) (3,4) | (2,5,4) (4) | (5,0) (3,0)").EXPECT(product(x[0], transposed(x[1])));
}

}  // namespace op_cases
