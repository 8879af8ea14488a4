#include "../distance.h"

#include <algorithm>
#include <vector>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../diagonal.h"
#include "../front.h"
#include "../indexing.h"
#include "../matmul.h"
#include "../reduce.h"
#include "../reduce/reduce_front.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"
#include "../unary.h"
#include "../vector_norm.h"
#include "linalg_front.h"

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

/// f(first, rows) for blocks of a's rows, such that their differences to all of b's stay small.
template <class F> static void for_blocks(const Tensor& a, const Tensor& b, int64_t batch, const F& f) {
  const int64_t rows = a.size(-2),
                each = std::max<int64_t>(1, (1 << 17) / std::max<int64_t>(1, batch * b.size(-2) * b.size(-1)));
  for (int64_t i = 0; i == 0 || i < rows; i += each) f(i, std::min(each, rows - i));
}
/// Block by block, and again for the gradient: all differences at once would be P R M numbers.
static Tensor by_differences(const Tensor& a, const Tensor& b, double p) {
  const auto between = [](const Tensor& a, const Tensor& b, int64_t first, int64_t rows) {
    return unsqueeze(narrow(a, -2, first, rows), -2) - unsqueeze(b, -3);
  };
  if (a.shape().back() == 0) return sum(between(a, b, 0, a.size(-2)), -1);
  std::vector<Tensor> parts;
  const int64_t batch = numel_of(broadcast_shapes("cdist", batch_of(a), batch_of(b)));
  {
    NoGrad guard;
    for_blocks(a, b, batch,
               [&](int64_t first, int64_t rows) { parts.push_back(norm(between(a, b, first, rows), p, -1)); });
  }
  const Tensor y = parts.size() == 1 ? parts[0] : cat(parts, -2);
  return record("cdist", y, {a, b}, save(a, b, y),
                [p, batch, between](Needs needs, const Tensor& g, const Tensor& a, const Tensor& b, const Tensor& y) {
                  std::vector<Tensor> parts;
                  Tensor gb;
                  for_blocks(a, b, batch, [&](int64_t first, int64_t rows) {
                    const auto part = [&](const Tensor& t) { return narrow(t, -2, first, rows); };
                    const Tensor d = between(a, b, first, rows),
                                 gd = norm_gradient(part(g), d, part(y), p, 1u << (d.dim() - 1), false);
                    parts.push_back(sum(gd, -2));
                    if (needs[1]) gb = gb.defined() ? gb - sum(gd, -3) : neg(sum(gd, -3));
                  });
                  return Grads{parts.size() == 1 ? parts[0] : cat(parts, -2), gb};
                });
}

Tensor cdist(const Tensor& x1, const Tensor& x2, const CdistOptions& o) try {
  check_defined("cdist", "x1", x1, "x2", x2);
  TAPIR_AUTOCAST(cdist, x1, x2, o);
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
  return by_differences(x1, x2, o.p);
} catch (...) {
  fail_as("cdist");
}

Tensor pdist(const Tensor& x, double p) try {
  check_defined("pdist", "x", x);
  TAPIR_AUTOCAST(pdist, x, p);
  check(x.dim() == 2 && is_floating(x.dtype()) && p >= 0,
        "[pdist] expected points (P, M) of floats and p of at least 0, got {} and {}", x, p);
  const Tensor pairs = triu_indices(x.size(0), x.size(0), 1, {.device = x.device()}),
               difference = index_select(x, 0, select(pairs, 0, 0)) - index_select(x, 0, select(pairs, 0, 1));
  return x.shape()[1] == 0 ? sum(difference, -1) : norm(difference, p, -1);
} catch (...) {
  fail_as("pdist");
}

Tensor dist(const Tensor& a, const Tensor& b, Scalar p) try {
  TAPIR_AUTOCAST(dist, a, b, p);
  return norm(a - b, p);
} catch (...) {
  fail_as("dist");
}

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, const DistanceOptions& o) try {
  return norm(x1 - x2 + o.eps, o.p, -1, {.keepdim = o.keepdim});
} catch (...) {
  fail_as("pairwise_distance");
}

/// max(|x|, eps), whose gradient is that of |x| everywhere.
static Tensor length_at_least(const Tensor& x, int64_t dim, double eps) {
  const Tensor length = norm(x, 2, dim, {.keepdim = true});
  return record("cosine_similarity", clamp_min(length.detach(), eps), {length},
                [](const Tensor& g) { return Grads{g}; });
}
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, const CosineOptions& o) try {
  check_defined("cosine_similarity", "x1", x1, "x2", x2);
  TAPIR_AUTOCAST(cosine_similarity, x1, x2, o);
  const Operand a = x1, b = x2;
  const DType dtype = result_type({&a, &b});
  check(is_floating(dtype), "[cosine_similarity] expected a floating point dtype, got {} and {}", x1, x2);
  const Shape shape = broadcast_shapes("cosine_similarity", x1.shape(), x2.shape());
  const int64_t dim = wrap_dim("cosine_similarity", o.dim, shape.size());
  const Tensor u = expand(to(x1, dtype), shape), v = expand(to(x2, dtype), shape);
  return sum(u / length_at_least(u, dim, o.eps) * (v / length_at_least(v, dim, o.eps)), dim);
} catch (...) {
  fail_as("cosine_similarity");
}

Tensor normalize(const Tensor& x, const NormalizeOptions& o) try {
  return x / clamp_min(norm(x, o.p, o.dim, {.keepdim = true}), o.eps);
} catch (...) {
  fail_as("normalize");
}

Tensor renorm(const Tensor& x, Scalar p, int64_t dim, Scalar maxnorm) try {
  check_defined("renorm", "x", x);
  TAPIR_AUTOCAST(renorm, x, p, dim, maxnorm);
  check(x.dim() >= 2, "[renorm] expected a tensor with at least 2 dimensions, got {}", x);
  check(p.to_double() > 0 && maxnorm.to_double() >= 0,
        "[renorm] expected p above 0 and maxnorm of at least 0, got {} and {}", p, maxnorm);
  dim = wrap_dim("renorm", dim, x.dim());
  const Tensor length = norm(x, p, mask_dims(((1u << x.dim()) - 1) & ~(1u << dim)), {.keepdim = true});
  return x * where(gt(length, maxnorm), maxnorm / (length + 1e-7), 1);
} catch (...) {
  fail_as("renorm");
}
Tensor& renorm_(Tensor& self, Scalar p, int64_t dim, Scalar maxnorm) {
  check_defined("renorm_", "self", self);
  return copy_(self, renorm(clone(self), p, dim, maxnorm));  // of a copy: the gradient needs what is overwritten
}

}  // namespace tapir::inline v0
