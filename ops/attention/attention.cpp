#include "../attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../../core/generator.h"
#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../checked.h"
#include "../compare.h"
#include "../create.h"
#include "../dropout.h"
#include "../front.h"
#include "../gather.h"
#include "../matmul.h"
#include "../reduce.h"
#include "../shape.h"
#include "../slicing.h"
#include "../softmax.h"
#include "../ternary.h"

namespace tapir::inline v0 {
namespace {

constexpr const char* kName = "scaled_dot_product_attention";

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// What follows takes q (B, H, S, D), k (B, G, T, D), v (B, G, T, E), mask (B, H, S, T); R = H / G heads of q share one of k and v.

/// (B, H, ...) as (B, G, R, ...)
Tensor grouped(const Tensor& x, int64_t groups) {
  Shape shape = x.shape();
  shape.insert(1, groups), shape[2] /= std::max<int64_t>(1, groups);
  return reshape(x, shape);
}
/// (B, G, ...) as (B, G, 1, ...), in the type that is computed in.
Tensor shared(const Tensor& x) { return unsqueeze(to(x, compute_type(x.dtype())), 2); }

/// The softmax of the scores: (B, G, R, S, T), zeros in rows that are hidden.
Tensor attention_weights(const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& length,
                         const AttentionParams& p) {
  const int64_t groups = k.shape()[1], queries = q.shape()[2], keys = k.shape()[2];
  const Tensor wide = shared(k);
  Tensor scores = mul(matmul(grouped(to(q, wide.dtype()), groups), transpose(wide, -2, -1)), p.scale), blank;
  if (mask.defined() && mask.dtype() == kBool) scores = where(grouped(mask, groups), scores, kHidden);
  else if (mask.defined()) scores = add(scores, to(grouped(mask, groups), wide.dtype()));
  const TensorOptions options{.device = q.device()};
  if (p.causal) {
    Tensor last = view(arange(queries, options), {queries, 1});  // that each query sees
    if (length.defined()) last = add(last, sub(length, queries));
    scores = where(le(arange(keys, options), last), scores, kHidden);
  }
  if (length.defined()) scores = where(lt(arange(keys, options), length), scores, kHidden);
  {
    NoGrad guard;
    blank = all(eq(scores, kHidden), -1, {.keepdim = true});
  }
  return masked_fill(softmax(masked_fill(scores, blank, 0), -1), blank, 0);
}
/// Weights (B, G, R, S, T) as the kernel drops them.
Tensor thinned(const Tensor& weights, const AttentionParams& p) {
  return p.dropout_p == 0 ? weights : detail::dropout(weights, {p.dropout_p, p.seed, p.offset});
}
Tensor attention_composite(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& length,
                           const AttentionParams& p) {
  Shape shape = q.shape();
  shape[3] = v.shape()[3];
  Tensor known = length, seen_k = k, seen_v = v;
  if (length.defined()) {
    const int64_t keys = k.shape()[2];
    const Tensor places = arange(keys + 1, {.device = k.device()});
    known = view(gather(places, 0, view(length, {1})), {});  // which refuses what is no length
    const Tensor seen = lt(view(narrow(places, 0, 0, keys), {keys, 1}), known);
    seen_k = where(seen, k, 0), seen_v = where(seen, v, 0);  // the others may be anything, NaN too
  }
  const Tensor weights = thinned(attention_weights(q, seen_k, mask, known, p), p);
  return to(reshape(matmul(weights, shared(seen_v)), shape), q.dtype());
}

/// With weights P, and D that drops some of them: dv = D(P)^T g, dP = D(g v^T), dS = P (dP - sum(P dP)), dq = scale dS k,
/// dk = scale dS^T q; in differentiable operations.
Grads attention_gradient(const Tensor& g_of, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                         const AttentionParams& p, Needs needs) {
  const int64_t groups = k.shape()[1];
  const Tensor weights = attention_weights(q, k, mask, {}, p), g = grouped(to(g_of, weights.dtype()), groups);
  const auto summed = [](const Tensor& x, DType dtype) { return to(sum(x, 2), dtype); };  // over the heads that share
  Grads out(3);
  if (needs[2]) out[2] = summed(matmul(transpose(thinned(weights, p), -2, -1), g), v.dtype());
  if (!needs[0] && !needs[1]) return out;
  const Tensor dweights = thinned(matmul(g, transpose(shared(v), -2, -1)), p);
  const Tensor dscores = mul(mul(weights, sub(dweights, sum(mul(weights, dweights), -1, {.keepdim = true}))), p.scale);
  if (needs[0]) out[0] = to(reshape(matmul(dscores, shared(k)), q.shape()), q.dtype());
  if (needs[1]) out[1] = summed(matmul(transpose(dscores, -2, -1), grouped(to(q, weights.dtype()), groups)), k.dtype());
  return out;
}

Grads attention_backward(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                         const Tensor& out, const Tensor& lse, const AttentionParams& p) {
  Grads d = {empty_like(q), empty_like(k), empty_like(v)};
  backend(q).attention_backward(context(q), {.dq = d[0],
                                             .dk = d[1],
                                             .dv = d[2],
                                             .dout = g,
                                             .out = out,
                                             .lse = lse,
                                             .q = q,
                                             .k = k,
                                             .v = v,
                                             .mask = mask,
                                             .params = p});
  return d;
}

/// Room for the result, where heads lie as those of the queries do: what parted them by views joins them by views.
Tensor result_for(const Tensor& q, int64_t width) {
  const int64_t heads = q.size(1), queries = q.size(2);
  const Shape shape{q.size(0), heads, queries, width};
  const TensorOptions options{.dtype = q.dtype(), .device = q.device()};
  const bool side_by_side = heads > 1 && queries > 1 && q.stride(1) > 0 && q.stride(1) < q.stride(2);
  if (!side_by_side) return empty(shape, options);
  return empty_strided(shape, Strides{queries * heads * width, width, heads * width, 1}, options);
}

/// By the kernel, in blocks.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& length,
                 const AttentionParams& p) {
  Shape shape = q.shape();
  shape.resize(3);
  Tensor out = result_for(q, v.shape()[3]), lse;
  if (wants_grad({q, k, v})) lse = empty(shape, {.dtype = compute_type(q.dtype()), .device = q.device()});
  Context& ctx = context(q);
  backend(q).attention(
      ctx, {.out = out, .lse = lse, .q = q, .k = k, .v = v, .mask = length.defined() ? length : mask, .params = p});
  if (length.defined())
    check_values(ctx, "[scaled_dot_product_attention] expected a length of at most {bound} keys, got {value}");
  if (length.defined()) return out;  // nobody wants a gradient
  return record(kName, out, {q, k, v}, save(q, k, v, mask, out, lse),
                [p](Needs needs, const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                    const Tensor& out, const Tensor& lse) {
                  return gradient_by_kernel(
                      "attention_backward", g, [&] { return attention_backward(g, q, k, v, mask, out, lse, p); },
                      [&] { return attention_gradient(g, q, k, v, mask, p, needs); });
                });
}

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  common_device(kName, {&q, &k, &v, &o.attn_mask, &o.length});
  check(is_floating(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(),
        "[{}] expected query, key, and value to have the same floating-point dtype, but got {}, {} and {}", kName, q, k,
        v);
  check(q.dim() >= 2 && k.dim() >= 2 && v.dim() >= 2,
        "[{}] expected query, key, and value to all be at least 2 dimensional, but got {}, {} and {}", kName, q, k, v);
  check(q.size(-1) == k.size(-1) && k.size(-2) == v.size(-2),
        "[{}] expected query (..., S, D), key (..., T, D) and value (..., T, E), but got {}, {} and {}", kName, q, k,
        v);
  check(o.dropout_p >= 0 && o.dropout_p <= 1, "[{}] dropout probability has to be between 0 and 1, but got {}", kName,
        o.dropout_p);
  check(!o.scale || !std::isnan(*o.scale), "[{}] expected a number for scale, got {}", kName, o.scale.value_or(0));
  check(!o.length.defined() || (o.length.dim() == 0 && o.length.dtype() == kInt64),
        "[{}] expected a 0-dim tensor of dtype int64 for length, but got {}", kName, o.length);
  if (!o.attn_mask.defined()) return;
  check(!o.is_causal, "[{}] explicit attn_mask should not be set when is_causal=True, got {}", kName, o.attn_mask);
  check(o.attn_mask.dtype() == kBool || is_floating(o.attn_mask.dtype()),
        "[{}] expected attn_mask dtype to be bool or float, but got {}", kName, o.attn_mask);
}

Shape leading(const Tensor& x) { return std::span(x.shape().data(), size_t(x.dim() - 2)); }

/// The heads of k or v repeat, in turn or by sharing, until there are those of the queries: what stands before the matrices, for both.
struct Leading {
  Shape queries, keys;
  Leading(const Tensor& q, const Tensor& k, const Tensor& v, bool gqa) : queries(leading(q)), keys(leading(k)) {
    keys = broadcast_shapes(kName, keys, leading(v));
    const int64_t rank = keys.size(), heads = queries.empty() ? 1 : queries.back();
    if (gqa) {
      check(rank > 0 && !queries.empty(), "[{}] expected operands with heads for enable_gqa, but got {}, {} and {}",
            kName, q, k, v);
      const int64_t groups = keys.back();
      check(groups > 0 && heads % groups == 0,
            "[{}] number of heads in key and value must divide the number of heads in query, but got {}, {} and {}",
            kName, q, k, v);
      Shape lead = queries;
      lead[lead.size() - 1] = groups;
      keys = broadcast_shapes(kName, lead, keys);
      queries = keys;
      queries[queries.size() - 1] = heads;
    } else {
      keys = queries = broadcast_shapes(kName, queries, keys);
    }
  }
};
/// x broadcast to `lead` before its last two dimensions, which then become two.
Tensor folded(const Tensor& x, const Shape& lead) {
  Shape full = lead;
  full.push_back(x.size(-2)), full.push_back(x.size(-1));
  const Tensor y = x.shape() == full ? x : expand(x, full);
  if (lead.size() == 2) return y;
  const int64_t heads = lead.empty() ? 1 : lead.back();
  return reshape(y, {heads ? numel_of(lead) / heads : 0, heads, x.size(-2), x.size(-1)});
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& o) try {
  check_defined("scaled_dot_product_attention", "query", query, "key", key, "value", value);
  TAPIR_AUTOCAST(scaled_dot_product_attention, query, key, value, o);
  check_operands(query, key, value, o);
  const Leading lead(query, key, value, o.enable_gqa);
  const int64_t queries = query.size(-2), keys = key.size(-2), depth = query.size(-1);
  const Tensor q = folded(query, lead.queries), k = folded(key, lead.keys), v = folded(value, lead.keys);
  Tensor mask = o.attn_mask;
  if (mask.defined()) {
    Shape scores = lead.queries;
    scores.push_back(queries), scores.push_back(keys);
    check(broadcasts_to(mask.shape(), scores), "[{}] expected an attn_mask that broadcasts to {}, but got {}", kName,
          scores, mask);
    mask = folded(expand(mask.dtype() == kBool ? mask : to(mask, q.dtype()), scores), lead.queries);
  }
  AttentionParams p{.scale = o.scale.value_or(depth ? 1 / std::sqrt(double(depth)) : 1),
                    .causal = o.is_causal,
                    .dropout_p = o.dropout_p};
  if (o.dropout_p > 0) {
    const auto [seed, offset] = default_generator().take(numel_of(lead.queries) * queries * keys);
    p.seed = seed, p.offset = offset;
  }
  const bool suits = backend(q).attention && !wants_grad({mask}) &&
                     !(o.length.defined() && (mask.defined() || o.dropout_p > 0 || wants_grad({q, k, v})));
  const Tensor y = kernel_or_composite(
      kName, suits, [&] { return attention(q, k, v, mask, o.length, p); },
      [&] { return attention_composite(q, k, v, mask, o.length, p); });
  Shape shape = lead.queries;
  shape.push_back(queries), shape.push_back(value.size(-1));
  return y.shape() == shape ? y : reshape(y, shape);
} catch (...) {
  fail_as("scaled_dot_product_attention");
}

}  // namespace tapir::inline v0
