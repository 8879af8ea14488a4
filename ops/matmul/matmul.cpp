#include "../matmul.h"

#include <cmath>

#include "../aligned_rows.h"
#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../front.h"
#include "../pointwise/unary_front.h"
#include "../reduce.h"
#include "../shape.h"

namespace tapir::inline v0 {

static void check_operands(const char* op, const Tensor& a, const Tensor& b) {
  common_device(op, {&a, &b});
  check(a.dtype() == b.dtype(), "[{}] expected mat1 and mat2 to have the same dtype, but got: {} and {}", op, a, b);
  check(a.dtype() != kBool, "[{}] expected a numeric dtype, got {}", op, a);
}

/// A view of the last two dimensions, swapped where the product takes the transpose.
static entry::In matrix(const Tensor& x, bool transposed) {
  entry::In v(x);
  if (transposed)
    std::swap(v.sizes[v.rank - 1], v.sizes[v.rank - 2]), std::swap(v.strides[v.rank - 1], v.strides[v.rank - 2]);
  return v;
}

/// alpha op(a) op(b) for operands of rank 2, or of rank 3 with batches that are equal or 1; op transposes where the flag is set,
/// so that gradients need no views.
static Tensor product(const char* name, const Tensor& a, const Tensor& b, bool ta, bool tb, double alpha = 1) {
  entry::In va = matrix(a, ta), vb = matrix(b, tb);
  const int64_t rank = va.rank;
  Shape shape = va.shape();
  shape[rank - 1] = vb.sizes[rank - 1];
  if (rank == 3) shape[0] = va.sizes[0] == 1 ? vb.sizes[0] : va.sizes[0];
  Tensor y = empty(shape, {.dtype = a.dtype(), .device = a.device()});
  if (rank == 3) {
    va = va.expand({shape[0], va.sizes[1], va.sizes[2]});
    vb = vb.expand({shape[0], vb.sizes[1], vb.sizes[2]});
  }
  backend(a).matmul(context(a), {.out = y, .a = va, .b = vb, .params = {.alpha = alpha}});
  return record(name, y, {a, b}, save(needed_by(1, a), needed_by(0, b)),
                [ta, tb, alpha](Needs needs, const Tensor& g, const Tensor& a, const Tensor& b) {
                  Grads out(2);
                  if (needs[0])
                    out[0] = ta ? product("matmul", b, g, tb, true, alpha) : product("matmul", g, b, false, !tb, alpha);
                  if (needs[1])
                    out[1] = tb ? product("matmul", g, a, true, ta, alpha) : product("matmul", a, g, !ta, false, alpha);
                  return out;
                });
}

static void check_inner(const char* op, const Tensor& a, const Tensor& b, int64_t ka, int64_t kb) {
  check(ka == kb, "[{}] mat1 and mat2 shapes cannot be multiplied: {} and {}, inner sizes {} and {}", op, a.shape(),
        b.shape(), ka, kb);
}

Tensor mm(const Tensor& a, const Tensor& b) {
  check_defined("mm", "a", a, "b", b);
  TAPIR_AUTOCAST(mm, a, b);
  check(a.dim() == 2 && b.dim() == 2, "[mm] expected two matrices, got {} and {}", a, b);
  check_operands("mm", a, b), check_inner("mm", a, b, a.shape()[1], b.shape()[0]);
  return product("mm", a, b, false, false);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  check_defined("bmm", "a", a, "b", b);
  TAPIR_AUTOCAST(bmm, a, b);
  check(a.dim() == 3 && b.dim() == 3 && a.shape()[0] == b.shape()[0],
        "[bmm] expected two batches of matrices, (B, M, K) and (B, K, N), got {} and {}", a, b);
  check_operands("bmm", a, b), check_inner("bmm", a, b, a.shape()[2], b.shape()[1]);
  return product("bmm", a, b, false, false);
}

Tensor mv(const Tensor& a, const Tensor& x) try {
  check_defined("mv", "a", a, "x", x);
  TAPIR_AUTOCAST(mv, a, x);
  check(a.dim() == 2 && x.dim() == 1, "[mv] expected a matrix and a vector, got {} and {}", a, x);
  return matmul(a, x);
} catch (...) {
  fail_as("mv");
}

Tensor dot(const Tensor& a, const Tensor& b) try {
  TAPIR_AUTOCAST(dot, a, b);
  check(a.dim() == 1 && b.dim() == 1, "[dot] expected two vectors, got {} and {}", a, b);
  return matmul(a, b);
} catch (...) {
  fail_as("dot");
}

Tensor outer(const Tensor& a, const Tensor& b) try {
  check_defined("outer", "a", a, "b", b);
  check(a.dim() == 1 && b.dim() == 1, "[outer] expected two vectors, got {} and {}", a, b);
  return mul(unsqueeze(a, 1), b);
} catch (...) {
  fail_as("outer");
}

/// The first `count` sizes of a shape.
static Shape head(const Shape& shape, int64_t count) { return std::span(shape.data(), size_t(count)); }

/// One matrix on the right serves every row of a: the leading dimensions of a are rows, where they lie so.
static bool rows_in_line(const Tensor& a) {
  for (int64_t d = 0; d + 2 < a.dim(); ++d)
    if (a.shape()[d] != 1 && a.strides()[d] != a.strides()[d + 1] * a.shape()[d + 1]) return false;
  return true;
}

/// (..., R, C) as (B, R, C), where the leading dimensions are `batch`, or one matrix that repeats as (1, R, C).
static Tensor as_batch(const Tensor& x, const Shape& batch) {
  const int64_t lead = x.dim() - 2, rows = x.shape()[lead], columns = x.shape()[lead + 1];
  const Shape own = head(x.shape(), lead);
  if (lead == 1 && (own == batch || own[0] == 1)) return x;
  if (numel_of(own) == 1) return view(x, {1, rows, columns});
  if (own == batch) return reshape(x, {numel_of(batch), rows, columns});
  Shape wide = batch;
  wide.push_back(rows), wide.push_back(columns);
  return reshape(expand(x, wide), {numel_of(batch), rows, columns});
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  TAPIR_AUTOCAST(matmul, a, b);
  check_defined("matmul", "the first operand", a, "the second operand", b);
  check(a.dim() > 0 && b.dim() > 0,
        "[matmul] both arguments to matmul need to be at least 1-dimensional, but they are {} and {}", a, b);
  check_operands("matmul", a, b);
  check_inner("matmul", a, b, a.shape().back(), b.shape()[b.dim() == 1 ? 0 : b.dim() - 2]);
  if (a.dim() == 2 && b.dim() == 2) return product("matmul", a, b, false, false);
  if (a.dim() == 1) {
    const Tensor y = matmul(unsqueeze(a, 0), b.dim() == 1 ? unsqueeze(b, 1) : b);
    return b.dim() == 1 ? view(y, {}) : squeeze(y, -2);
  }
  if (b.dim() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);

  const int64_t m = a.shape()[a.dim() - 2], n = b.shape().back();
  if (b.dim() == 2 && rows_in_line(a)) {
    Shape shape = a.shape();
    shape[a.dim() - 1] = n;
    return view(
        product("matmul", reshape(a, {numel_of(head(a.shape(), a.dim() - 1)), a.shape().back()}), b, false, false),
        shape);
  }
  Shape shape = broadcast_shapes("matmul", head(a.shape(), a.dim() - 2), head(b.shape(), b.dim() - 2));
  const Tensor y = product("matmul", as_batch(a, shape), as_batch(b, shape), false, false);
  shape.push_back(m), shape.push_back(n);
  return shape.size() == 3 ? y : view(y, shape);
}

/// beta input + alpha a b for operands of rank 2 or 3 that fit; into self, which is then input.
static Tensor add_product(const char* name, const Tensor& input, const Tensor& a, const Tensor& b,
                          const AddmmOptions& o, const Tensor* self = nullptr) {
  check_operands(name, a, b), common_device(name, {&input, &a});
  check(input.dtype() == a.dtype(), "[{}] expected input and mat1 to have the same dtype, but got: {} and {}", name,
        input, a);
  const int64_t rank = a.dim();
  check_inner(name, a, b, a.shape()[rank - 1], b.shape()[rank - 2]);
  Shape shape = a.shape();
  shape[rank - 1] = b.shape()[rank - 1];
  check(broadcasts_to(input.shape(), shape), "[{}] expected an input that broadcasts to {}, got {}", name, shape,
        input);
  const auto factor_of = [&](Scalar s) { return is_floating(a.dtype()) ? s.to_double() : std::trunc(s.to_double()); };
  const double beta = factor_of(o.beta), alpha = factor_of(o.alpha);
  Tensor y, held_a, held_b;
  const bool overwrites = self && wants_grad({input, a, b});
  const Tensor& old_a = overwrites ? old_value(*self, a, held_a).tensor() : a;
  const Tensor& old_b = overwrites ? old_value(*self, b, held_b).tensor() : b;
  if (self) {
    check(self->shape() == shape, "[{}] expected a tensor of the product's shape {}, got {}", name, shape, *self);
    check_inplace(name, *self, wants_grad({input, a, b}));
    y = *self;
    const Tensor va = apart_from(*self, old_a), vb = apart_from(*self, old_b);
    backend(a).matmul(context(a), {.out = y, .a = va, .b = vb, .params = {.alpha = alpha, .beta = beta}});
  } else {
    y = empty(shape, {.dtype = a.dtype(), .device = a.device()});
    const TensorView start = TensorView(input).expand(shape);
    if (beta != 0 && beta != 1) backend(a).copy(context(a), {y, start});
    backend(a).matmul(
        context(a),
        {.out = y, .a = a, .b = b, .bias = beta == 1 ? start : TensorView(), .params = {alpha, beta == 1 ? 0 : beta}});
  }
  return record(name, y, {input, a, b}, save(needed_by(2, old_a), needed_by(1, old_b)),
                [beta, alpha](Needs needs, const Tensor& g, const Tensor& a, const Tensor& b) {
                  Grads out(3);
                  if (needs[0]) out[0] = beta == 1 ? g : mul(g, beta);
                  if (needs[1]) out[1] = product("matmul", g, b, false, true, alpha);
                  if (needs[2]) out[2] = product("matmul", a, g, true, false, alpha);
                  return out;
                });
}

static void check_ranks(const char* op, const Tensor& input, const Tensor& a, const Tensor& b, int64_t rank) {
  check_defined(op, "input", input, "a", a, "b", b);
  check(a.dim() == rank && b.dim() == rank, "[{}] expected mat1 and mat2 to be {}, got {} and {}", op,
        rank == 2 ? "matrices" : "batches of matrices", a, b);
  check(rank == 2 || a.shape()[0] == b.shape()[0], "[{}] expected batches of one size, got {} and {}", op, a, b);
}
#define TAPIR_ADD_PRODUCT(name, rank)                                                         \
  Tensor name(const Tensor& input, const Tensor& a, const Tensor& b, const AddmmOptions& o) { \
    check_ranks(#name, input, a, b, rank);                                                    \
    TAPIR_AUTOCAST(name, input, a, b, o);                                                     \
    return add_product(#name, input, a, b, o);                                                \
  }                                                                                           \
  Tensor& name##_(Tensor& self, const Tensor& a, const Tensor& b, const AddmmOptions& o) {    \
    check_ranks(#name "_", self, a, b, rank);                                                 \
    return add_product(#name "_", self, a, b, o, &self), self;                                \
  }
TAPIR_ADD_PRODUCT(addmm, 2)
TAPIR_ADD_PRODUCT(baddbmm, 3)
#undef TAPIR_ADD_PRODUCT

static void check_addmv(const char* op, const Tensor& input, const Tensor& a, const Tensor& x) {
  check(a.dim() == 2 && x.dim() == 1, "[{}] expected a matrix and a vector, got {} and {}", op, a, x);
  check(input.dim() < 2, "[{}] expected an input that broadcasts to ({},), got {}", op, a.shape()[0], input);
}
Tensor addmv(const Tensor& input, const Tensor& a, const Tensor& x, const AddmmOptions& o) {
  check_defined("addmv", "input", input, "a", a, "x", x);
  TAPIR_AUTOCAST(addmv, input, a, x, o);
  check_addmv("addmv", input, a, x);
  return squeeze(add_product("addmv", unsqueeze(input, -1), a, unsqueeze(x, 1), o), 1);
}
Tensor& addmv_(Tensor& self, const Tensor& a, const Tensor& x, const AddmmOptions& o) {
  check_defined("addmv_", "self", self, "a", a, "x", x);
  check_addmv("addmv_", self, a, x);
  Tensor column = unsqueeze(self, -1);
  return add_product("addmv_", column, a, unsqueeze(x, 1), o, &column), self;
}

/// The gradients of y = x w^T + bias, of dy = g. Where they are not recorded dw and dbias are one pass over g.
static Grads linear_gradients(Needs needs, const Tensor& g, const Tensor& x, const Tensor& w) {
  Grads out(3);
  if (needs[0]) out[0] = product("linear", g, w, false, false);
  if (needs[1] && needs[2] && !grad_enabled()) {
    out[1] = empty({g.shape()[1], x.shape()[1]}, {.dtype = g.dtype(), .device = g.device()});
    out[2] = empty({g.shape()[1]}, {.dtype = g.dtype(), .device = g.device()});
    backend(g).matmul(context(g), {.out = out[1], .a = matrix(g, true), .b = x, .aux = out[2], .params = {}});
    return out;
  }
  if (needs[1]) out[1] = product("linear", g, x, true, false);
  if (needs[2]) out[2] = sum(g, 0);
  return out;
}

static void check_linear(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias) {
  check(x.dim() > 0, "[{}] expected an input of shape (..., in), got {}", op, x);
  check(w.dim() == 2 || w.dim() == 1, "[{}] expected a weight of shape (out, in) or (in), got {}", op, w);
  check_operands(op, x, w);
  check_inner(op, x, w, x.shape().back(), w.shape().back());
  if (!bias.defined()) return;
  common_device(op, {&x, &bias});
  check(bias.dtype() == x.dtype(), "[{}] expected input and bias to have the same dtype, but got: {} and {}", op, x,
        bias);
  const bool fits =
      w.dim() == 1 ? bias.numel() == 1 && bias.dim() <= 1 : bias.dim() == 1 && bias.shape()[0] == w.shape()[0];
  check(fits, "[{}] expected a bias of shape ({},), got {} (weight is {})", op, w.dim() == 1 ? 1 : w.shape()[0], bias,
        w.shape());
}

/// f on matrices x (rows, in) and w (out, in), for any shapes that linear takes.
template <class F> static Tensor by_rows(const Tensor& x, const Tensor& w, const Tensor& bias, const F& f) {
  if (w.dim() == 1) return squeeze(by_rows(x, unsqueeze(w, 0), bias.defined() ? view(bias, {1}) : bias, f), -1);
  if (x.dim() == 2) return f(x, w, bias);
  Shape shape = x.shape();  // leading dimensions are rows
  shape[x.dim() - 1] = w.shape()[0];
  return view(f(reshape(x, {numel_of(head(x.shape(), x.dim() - 1)), x.shape().back()}), w, bias), shape);
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
  check_defined("linear", "x", x, "w", w);
  TAPIR_AUTOCAST(linear, x, w, bias);
  check_linear("linear", x, w, bias);
  return by_rows(x, w, bias, [](const Tensor& x, const Tensor& w, const Tensor& bias) {
    constexpr int64_t kVocabulary = 4096;  // as many columns are logits of words
    Tensor y;
    if (wants_grad({x, w, bias}) && w.shape()[0] >= kVocabulary) y = aligned_rows(x.shape()[0], w.shape()[0], x);
    if (!y.defined()) y = empty({x.shape()[0], w.shape()[0]}, {.dtype = x.dtype(), .device = x.device()});
    backend(x).matmul(context(x), {.out = y, .a = x, .b = matrix(w, true), .bias = bias, .params = {}});
    return record("linear", y, {x, w, bias}, save(needed_by(1, x), needed_by(0, w)), &linear_gradients);
  });
}

Tensor linear_gelu(const Tensor& x, const Tensor& w, const Tensor& bias) try {
  check_defined("linear_gelu", "x", x, "w", w);
  TAPIR_AUTOCAST(linear_gelu, x, w, bias);
  check_linear("linear_gelu", x, w, bias);
  check(is_floating(x.dtype()), "[linear_gelu] expected tensors of floating point dtype, got {}", x);
  return by_rows(x, w, bias, [](const Tensor& x, const Tensor& w, const Tensor& bias) {
    Tensor y = empty({x.shape()[0], w.shape()[0]}, {.dtype = x.dtype(), .device = x.device()}), z;
    if (wants_grad({x, w, bias})) z = empty_like(y);
    backend(x).matmul(
        context(x),
        {.out = y, .a = x, .b = matrix(w, true), .bias = bias, .aux = z, .params = {.finish = MatmulFinish::GeluTanh}});
    if (!z.defined()) return y;
    const Tensor outputs[] = {y, z};  // z too, so that what is saved of it keeps its history
    record_outputs("linear_gelu", outputs, {x, w, bias}, save(needed_by(1, x), needed_by(0, w), outputs[1]),
                   [](Needs needs, const Grads& g, const Tensor& x, const Tensor& w, const Tensor& z) {
                     Tensor dz = g[0].defined() ? gelu_gradient(g[0], z, true) : Tensor();
                     if (g[1].defined()) dz = dz.defined() ? add(dz, g[1]) : g[1];
                     return linear_gradients(needs, dz, x, w);
                   });
    return y;
  });
} catch (...) {
  fail_as("linear_gelu");
}

}  // namespace tapir::inline v0
