#include "attention.h"

#include <cmath>
#include <limits>
#include <tuple>

#include "../core/fail_as.h"
#include "../ops/arithmetic.h"
#include "../ops/attention.h"
#include "../ops/cast.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/diagonal.h"
#include "../ops/dropout.h"
#include "../ops/matmul.h"
#include "../ops/pad.h"
#include "../ops/pointwise.h"
#include "../ops/reduce.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "../ops/softmax.h"
#include "../ops/ternary.h"
#include "init.h"

namespace tapir::inline v0::nn {
namespace {

constexpr const char* kName = "MultiheadAttention";
constexpr double kHidden = -std::numeric_limits<double>::infinity();

Parameter xavier(const Shape& shape) {
  Parameter w(empty(shape));
  init::xavier_uniform_(w);
  return w;
}
/// Columns for keys that every query sees, at the end.
Tensor with_columns(const Tensor& mask, int64_t columns) {
  if (!mask.defined() || columns == 0) return mask;
  Shape shape = mask.shape();
  shape[shape.size() - 1] = columns;
  return cat({mask, zeros(shape, {.dtype = mask.dtype(), .device = mask.device()})}, -1);
}
/// A mask as numbers that are added.
Tensor additive(const Tensor& mask, DType dtype) {
  if (mask.dtype() != kBool) return to(mask, dtype);
  return masked_fill(zeros(mask.shape(), {.dtype = dtype, .device = mask.device()}), mask, kHidden);
}
void check_mask(const char* what, const Tensor& mask) {
  check(mask.dtype() == kBool || is_floating(mask.dtype()), "[{}] expected {} of dtype bool or float, got {}", kName,
        what, mask);
}

/// One mask for the scores (N, H, L, S): bool where true shows, or numbers; undefined where there is none.
struct Mask {
  Tensor both;
  bool causal = false;
  Mask(const AttentionMasks& m, const Tensor& q, const Tensor& k, bool batched, int64_t more_keys) {
    const int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2), keys = k.size(2) - more_keys;
    Tensor padding = m.key_padding_mask, mask = m.attn_mask;
    if (padding.defined()) {
      check_mask("key_padding_mask", padding);
      const Shape want = batched ? Shape{batch, keys} : Shape{keys};
      check(padding.shape() == want, "[{}] expected key_padding_mask of shape {}, got {}", kName, want, padding);
      padding = with_columns(view(padding.contiguous(), {batch, 1, 1, keys}), more_keys);
    }
    if (m.is_causal && more_keys == 0 && !padding.defined() && !m.need_weights) {
      causal = true;
      return;
    }
    if (m.is_causal && !mask.defined())
      mask = logical_not(tril(ones({queries, keys}, {.dtype = kBool, .device = q.device()})));
    if (mask.defined()) {
      check_mask("attn_mask", mask);
      const Shape flat = {queries, keys}, full = {batch * heads, queries, keys};
      check(mask.shape() == flat || mask.shape() == full, "[{}] expected attn_mask of shape {} or {}, got {}", kName,
            flat, full, mask);
      mask = with_columns(mask.dim() == 2 ? mask : reshape(mask, {batch, heads, queries, keys}), more_keys);
    }
    if (!mask.defined() || !padding.defined()) both = mask.defined() ? mask : padding;
    else if (mask.dtype() == kBool && padding.dtype() == kBool) both = logical_or(mask, padding);
    else both = add(additive(mask, q.dtype()), additive(padding, q.dtype()));
    if (both.defined()) both = both.dtype() == kBool ? logical_not(both) : to(both, q.dtype());
  }
};

/// Attention with its weights (N, H, L, S); rows that see nothing are zeros.
std::pair<Tensor, Tensor> attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, double p) {
  Tensor scores = matmul(mul(q, 1 / std::sqrt(double(q.size(-1)))), transpose(k, -2, -1)), blank;
  if (mask.defined()) {
    scores = mask.dtype() == kBool ? where(mask, scores, kHidden) : add(scores, mask);
    NoGrad guard;
    blank = all(eq(scores, kHidden), -1, {.keepdim = true});
  }
  if (blank.defined()) scores = masked_fill(scores, blank, 0);
  Tensor weights = softmax(scores, -1);
  if (blank.defined()) weights = masked_fill(weights, blank, 0);
  weights = dropout(weights, p);
  return {matmul(weights, v), weights};
}

/// embed_dim, once all options are checked: no weight is drawn before.
int64_t checked_dim(int64_t embed, int64_t heads, const MultiheadAttentionOptions& o) {
  check(embed > 0 && heads > 0, "[{}] expected embed_dim and num_heads above 0, got {} and {}", kName, embed, heads);
  check(embed % heads == 0, "[{}] embed_dim must be divisible by num_heads, got {} and {}", kName, embed, heads);
  check(o.dropout >= 0 && o.dropout <= 1, "[{}] expected dropout in [0, 1], got {}", kName, o.dropout);
  const int64_t kdim = o.kdim.value_or(embed), vdim = o.vdim.value_or(embed);
  check(kdim >= 0 && vdim >= 0, "[{}] expected kdim and vdim of at least 0, got {} and {}", kName, kdim, vdim);
  return embed;
}

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t embed, int64_t heads, const MultiheadAttentionOptions& o) try
    : embed_dim(checked_dim(embed, heads, o)), num_heads(heads), dropout(o.dropout), batch_first(o.batch_first),
      add_zero_attn(o.add_zero_attn), out_proj(embed, embed, {.bias = o.bias}) {
  const int64_t kdim = o.kdim.value_or(embed), vdim = o.vdim.value_or(embed);
  if (kdim == embed && vdim == embed) in_proj_weight = xavier({3 * embed, embed});
  else
    q_proj_weight = xavier({embed, embed}), k_proj_weight = xavier({embed, kdim}),
    v_proj_weight = xavier({embed, vdim});
  if (o.bias) {
    in_proj_bias = Parameter(zeros(3 * embed));
    init::zeros_(out_proj.bias);
  }
  if (!o.add_bias_kv) return;
  for (Parameter* p : {&bias_k, &bias_v}) *p = Parameter(empty({1, 1, embed})), init::xavier_normal_(*p);
} catch (...) {
  fail_as(kName);
}

void MultiheadAttention::check_inputs(const Tensor& q, const Tensor& k, const Tensor& v) const {
  check(num_heads > 0 && embed_dim % num_heads == 0, "[{}] embed_dim must be divisible by num_heads, got {} and {}",
        kName, embed_dim, num_heads);
  check(q.defined() && k.defined() && v.defined(), "[{}] expected query, key and value, got {}, {} and {}", kName, q, k,
        v);
  check(q.dim() == 2 || q.dim() == 3, "[{}] expected query to be unbatched but 2-D or batched but 3-D, got {}", kName,
        q);
  check(k.dim() == q.dim() && v.dim() == q.dim(), "[{}] expected key and value of rank {} as query, got {} and {}",
        kName, q.dim(), k, v);
  const int64_t kdim = in_proj_weight.defined() ? embed_dim : k_proj_weight.size(1),
                vdim = in_proj_weight.defined() ? embed_dim : v_proj_weight.size(1);
  check(q.size(-1) == embed_dim && k.size(-1) == kdim && v.size(-1) == vdim,
        "[{}] expected query, key and value with {}, {} and {} features, got {}, {} and {}", kName, embed_dim, kdim,
        vdim, q, k, v);
  const bool first = batch_first && q.dim() == 3;
  check(k.size(first) == v.size(first), "[{}] expected as many keys as values, got {} and {}", kName, k, v);
  check(q.dim() == 2 || (q.size(!first) == k.size(!first) && q.size(!first) == v.size(!first)),
        "[{}] expected query, key and value of one batch size, got {}, {} and {}", kName, q, k, v);
}

MultiheadAttention::Heads MultiheadAttention::project(const Tensor& query, const Tensor& key,
                                                      const Tensor& value) const {
  const auto part = [&](const Tensor& x, int64_t i, int64_t n) {
    return x.defined() ? narrow(x, 0, i * embed_dim, n * embed_dim) : x;
  };
  Tensor q, k, v;
  if (!in_proj_weight.defined()) {
    q = linear(query, q_proj_weight, part(in_proj_bias, 0, 1));
    k = linear(key, k_proj_weight, part(in_proj_bias, 1, 1)),
    v = linear(value, v_proj_weight, part(in_proj_bias, 2, 1));
  } else if (query.is_same(key) && key.is_same(value)) {
    const std::vector<Tensor> all = chunk(linear(query, in_proj_weight, in_proj_bias), 3, -1);
    q = all[0], k = all[1], v = all[2];
  } else {
    q = linear(query, part(in_proj_weight, 0, 1), part(in_proj_bias, 0, 1));
    if (key.is_same(value)) {
      const std::vector<Tensor> both = chunk(linear(key, part(in_proj_weight, 1, 2), part(in_proj_bias, 1, 2)), 2, -1);
      k = both[0], v = both[1];
    } else {
      k = linear(key, part(in_proj_weight, 1, 1), part(in_proj_bias, 1, 1));
      v = linear(value, part(in_proj_weight, 2, 1), part(in_proj_bias, 2, 1));
    }
  }
  const auto heads = [&](const Tensor& x) {  // (N, H, L, D)
    const Tensor split = reshape(x, {x.size(0), x.size(1), num_heads, embed_dim / num_heads});
    return permute(split, batch_first ? Dims{0, 2, 1, 3} : Dims{1, 2, 0, 3});
  };
  Heads h{heads(q), heads(k), heads(v)};
  const int64_t batch = h.k.size(0), depth = embed_dim / num_heads;
  const auto more = [&](const Tensor& x, const Tensor& last) {
    return cat({x, expand(last, {batch, num_heads, 1, depth})}, 2);
  };
  if (bias_k.defined())
    h.k = more(h.k, view(bias_k, {1, num_heads, 1, depth})), h.v = more(h.v, view(bias_v, {1, num_heads, 1, depth}));
  if (add_zero_attn) {
    const Tensor zero = zeros({1, 1, 1, 1}, {.dtype = h.k.dtype(), .device = h.k.device()});
    h.k = more(h.k, zero), h.v = more(h.v, zero);
  }
  return h;
}

MultiheadAttention::Output MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                       const AttentionMasks& m) {
  check_inputs(query, key, value);
  const bool batched = query.dim() == 3;
  const auto with_batch = [&](const Tensor& x) { return batched ? x : unsqueeze(x, batch_first ? 0 : 1); };
  const Tensor wide_query = with_batch(query), wide_key = key.is_same(query) ? wide_query : with_batch(key),
               wide_value = value.is_same(key) ? wide_key : with_batch(value);
  const auto [q, k, v] = project(wide_query, wide_key, wide_value);
  const Mask mask(m, q, k, batched, bias_k.defined() + add_zero_attn);
  const double p = training ? dropout : 0;
  Tensor output, weights;
  if (m.need_weights) std::tie(output, weights) = attend(q, k, v, mask.both, p);
  else
    output = scaled_dot_product_attention(q, k, v, {.attn_mask = mask.both, .dropout_p = p, .is_causal = mask.causal});
  output = permute(output, batch_first ? Dims{0, 2, 1, 3} : Dims{2, 0, 1, 3});  // (N, L, H, D) or (L, N, H, D)
  output = out_proj(reshape(output, {output.size(0), output.size(1), embed_dim}));
  if (weights.defined() && m.average_attn_weights) weights = mean(weights, 1);
  if (batched) return {output, weights};
  return {squeeze(output, batch_first ? 0 : 1), weights.defined() ? squeeze(weights, 0) : weights};
}

TAPIR_DEFINE_FIELDS(MultiheadAttention)

MultiheadAttention::Output MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                                          const AttentionMasks& masks) {
  return detail::call(*this, query, key, value, masks);
}

}  // namespace tapir::inline v0::nn
