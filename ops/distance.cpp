#include "distance.h"

#include "arithmetic.h"
#include "cast.h"
#include "compare.h"
#include "create.h"
#include "front.h"
#include "indexing.h"
#include "matmul.h"
#include "reduce.h"
#include "shape.h"
#include "slicing.h"
#include "ternary.h"
#include "unary.h"
#include "vector_norm.h"

namespace tapir::inline v0 {

/// |a - b|^2 = |a|^2 - 2 a b + |b|^2. The gradient is that of the distance itself, 0 where it is 0.
static Tensor euclidean_by_product(const Tensor& a, const Tensor& b) {
  const auto squares = [](const Tensor& x) { return sum(square(x), -1); };
  const Tensor y = [&] {
    NoGrad guard;
    const Tensor products = matmul(a, transpose(b, -2, -1));
    return sqrt(clamp_min(unsqueeze(squares(a), -1) + unsqueeze(squares(b), -2) - products * 2, 0));
  }();
  return record("cdist", y, {a, b}, save(a, b, y),
                [](Needs needs, const Tensor& g, const Tensor& a, const Tensor& b, const Tensor& y) {
                  const Tensor same = eq(y, 0), ratio = masked_fill(g / masked_fill(y, same, 1), same, 0);
                  const auto pull = [](const Tensor& x, const Tensor& ratio, const Tensor& other) {
                    return x * sum(ratio, -1, {.keepdim = true}) - matmul(ratio, other);
                  };
                  return Grads{needs[0] ? pull(a, ratio, b) : Tensor(),
                               needs[1] ? pull(b, transpose(ratio, -2, -1), a) : Tensor()};
                });
}

Tensor cdist(const Tensor& x1, const Tensor& x2, const CdistOptions& o) {
  common_device("cdist", {&x1, &x2});
  check(x1.dim() >= 2 && x2.dim() >= 2 && x1.shape().back() == x2.shape().back(),
        "[cdist] expected points (..., P, M) and (..., R, M), got {} and {}", x1, x2);
  check(is_floating(x1.dtype()) && x1.dtype() == x2.dtype(), "[cdist] expected one floating point dtype, got {} and {}",
        x1, x2);
  check(o.p >= 0, "[cdist] expected p of at least 0, got {}", o.p);
  const std::string_view mode = o.compute_mode;
  const bool if_necessary = mode == "use_mm_for_euclid_dist_if_necessary", always = mode == "use_mm_for_euclid_dist";
  check(if_necessary || always || mode == "donot_use_mm_for_euclid_dist",
        "[cdist] expected compute_mode \"use_mm_for_euclid_dist_if_necessary\", \"use_mm_for_euclid_dist\" or "
        "\"donot_use_mm_for_euclid_dist\", got \"{}\"",
        mode);
  const bool many = x1.size(-2) > 25 || x2.size(-2) > 25;
  if (o.p == 2 && (always || (if_necessary && many))) return euclidean_by_product(x1, x2);
  const Tensor difference = unsqueeze(x1, -2) - unsqueeze(x2, -3);
  if (x1.shape().back() == 0) return sum(difference, -1);
  return norm(difference, o.p, -1);
}

Tensor pdist(const Tensor& x, double p) {
  check(x.dim() == 2, "[pdist] expected points (P, M), got {}", x);
  const Tensor row = arange(x.shape()[0], {.device = x.device()}), pairs = nonzero(gt(row, unsqueeze(row, 1))),
               difference = index_select(x, 0, select(pairs, 1, 0)) - index_select(x, 0, select(pairs, 1, 1));
  return x.shape()[1] == 0 ? sum(difference, -1) : norm(difference, p, -1);
}

Tensor dist(const Tensor& a, const Tensor& b, Scalar p) { return norm(a - b, p); }

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, const DistanceOptions& o) {
  return norm(x1 - x2 + o.eps, o.p, -1, {.keepdim = o.keepdim});
}

/// max(|x|, eps), whose gradient is that of |x| everywhere.
static Tensor length_at_least(const Tensor& x, int64_t dim, double eps) {
  const Tensor length = norm(x, 2, dim, {.keepdim = true});
  return record("cosine_similarity", clamp_min(length.detach(), eps), {length},
                [](const Tensor& g) { return Grads{g}; });
}
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, const CosineOptions& o) {
  const Operand a = x1, b = x2;
  const DType dtype = result_type({&a, &b});
  check(is_floating(dtype), "[cosine_similarity] expected a floating point dtype, got {} and {}", x1, x2);
  const Shape shape = broadcast_shapes("cosine_similarity", x1.shape(), x2.shape());
  const int64_t dim = wrap_dim("cosine_similarity", o.dim, shape.size());
  const Tensor u = expand(to(x1, dtype), shape), v = expand(to(x2, dtype), shape);
  return sum(u / length_at_least(u, dim, o.eps) * (v / length_at_least(v, dim, o.eps)), dim);
}

Tensor normalize(const Tensor& x, const NormalizeOptions& o) {
  return x / clamp_min(norm(x, o.p, o.dim, {.keepdim = true}), o.eps);
}

}  // namespace tapir::inline v0
