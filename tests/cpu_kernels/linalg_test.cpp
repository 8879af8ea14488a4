// The kernel entry itself: views of any strides, batches that repeat, what is reported of bad matrices.
#include <tapir/core/backend.h>

#include "../ops/helpers.h"

namespace {

ErrorWord run(std::initializer_list<TensorView> outs, std::initializer_list<TensorView> ins,
              const LinalgParams& params) {
  Context& ctx = context(kCPU);
  backend(kCPU).linalg(ctx, {.outs = outs, .ins = ins, .params = params});
  return ctx.error;
}
/// NaN everywhere, columns first and with gaps.
Tensor odd(const Shape& shape) {
  Shape wide = shape;
  std::swap(wide[shape.size() - 1], wide[shape.size() - 2]);
  wide[shape.size() - 1] *= 2;
  return transpose(slice(full(wide, kNan, {.dtype = kFloat64}), -1, {}, {}, 2), -2, -1);
}
Tensor random(const Shape& shape) { return randn(shape, {.dtype = kFloat64}); }

}  // namespace

TEST_CASE("linalg: results into views of any strides") {
  manual_seed(1);
  const Tensor a = random({2, 4, 3}), q = odd({2, 4, 3}), r = odd({2, 3, 3}), u = odd({2, 4, 4}), vh = odd({2, 3, 3}),
               s = odd({2, 2, 3});
  CHECK(!run({q, r}, {a}, {.op = LinalgOp::Qr}).set);
  CHECK(close(values(matmul(q, r)), values(a)));
  const Tensor row = select(s, 1, 0);
  CHECK(!run({row, u, vh}, {a}, {.op = LinalgOp::Svd}).set);
  CHECK(close(values(matmul(narrow(u, -1, 0, 3) * unsqueeze(row, -2), vh)), values(a)));
  const Tensor spd = matmul(transpose(a, -2, -1), a), l = odd({2, 3, 3});
  for (bool upper : {false, true}) {
    CHECK(!run({l}, {spd}, {.op = LinalgOp::Cholesky, .upper = upper}).set);
    const Tensor lower = upper ? transpose(l, -2, -1) : l;
    CHECK(close(values(matmul(lower, transpose(lower, -2, -1))), values(spd)));
  }
}

TEST_CASE("linalg: factors and systems of a repeated matrix") {
  const Tensor a = random({3, 3}), lu = odd({3, 3}), order = empty({3}, {.dtype = kInt32}),
               sign = empty({}, {.dtype = kFloat64});
  CHECK(!run({lu, order, sign}, {a}, {.op = LinalgOp::Lu}).set);
  const Tensor b = random({4, 3, 2}), x = odd({4, 3, 2});
  for (bool transposed : {false, true}) {
    run({x}, {TensorView(lu).expand({4, 3, 3}), TensorView(order).expand({4, 3}), b},
        {.op = LinalgOp::LuSolve, .transpose = transposed});
    CHECK(close(values(matmul(transposed ? transpose(a, 0, 1) : a, x)), values(b)));
  }
}

TEST_CASE("linalg: the first bad matrix is reported") {
  const Tensor good = eye(2, 2, {.dtype = kFloat64}), a = stack({good, good * 0, neg(good)}), out = empty_like(a),
               order = empty({3, 2}, {.dtype = kInt32}), sign = empty({3}, {.dtype = kFloat64});
  CHECK(!run({out, order, sign}, {a}, {.op = LinalgOp::Lu}).set);  // all of them have a determinant
  ErrorWord e = run({out, order}, {a}, {.op = LinalgOp::Lu});
  CHECK((e.set && e.position == 1 && e.value == 1));
  e = run({out}, {a}, {.op = LinalgOp::Cholesky});
  CHECK((e.set && e.position == 1 && e.value == 1));
  e = run({empty({2, 2}, {.dtype = kFloat64}), narrow(out, 0, 0, 2)}, {stack({good, good * kNan})},
          {.op = LinalgOp::Eigh});
  CHECK((e.set && e.position == 1 && e.value == 0));
}
