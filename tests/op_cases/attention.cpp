// Attention, bags of embeddings.
#include <algorithm>
#include <cmath>

#include "case.h"

namespace op_cases {

/// q (B, H, S, D), k (B, G, T, D), v (B, G, T, E); `hidden` of (i, j) and mask broadcast to (B, H, S, T).
static Array attended(const Array& q, const Array& k, const Array& v, const Array* mask, double scale, bool causal, bool adds = true,
                      const Array* length = nullptr) {
  const int64_t repeats = q.shape[1] / k.shape[1], keys = length ? int64_t(length->v[0]) : k.shape[2], depth = q.shape[3];
  Shape shape = q.shape;
  shape[3] = v.shape[3];
  return make(shape, [&](const Dims& at) {
    const int64_t b = at[0], h = at[1], i = at[2], g = h / repeats, last = length ? i + keys - q.shape[2] : i;
    double top = -INFINITY, sum = 0, total = 0;
    std::vector<double> s;
    for (int64_t j = 0; j < keys; ++j) {
      double product = 0;
      for (int64_t d = 0; d < depth; ++d) product += q.at({b, h, i, d}) * k.at({b, g, j, d});
      const double m = mask ? broadcast_at(*mask, {b, h, i, j}) : 0;
      s.push_back((causal && j > last) || (mask && !adds && m == 0) ? -INFINITY : product * scale + (adds ? m : 0));
      top = std::max(top, s.back());
    }
    for (int64_t j = 0; j < keys && top > -INFINITY; ++j) {
      const double w = std::exp(s[size_t(j)] - top);
      sum += w, total += w * v.at({b, g, j, at[3]});
    }
    return sum == 0 ? 0 : total / sum;
  });
}

static void attention(Table& table) {
  const auto line = [](Case& c) -> Case& { return c.within(64).finite_only(); };
  line(CASE(scaled_dot_product_attention, scaled_dot_product_attention(x[0], x[1], x[2])))
      .on("(2,2,3,4) (2,2,5,4) (2,2,5,3) | (1,1,3,4) (1,1,0,4) (1,1,0,2) | (2,1,0,4) (2,1,3,4) (2,1,3,4) | (0,2,3,4) (0,2,5,4) (0,2,5,4) | (1,1,7,1) "
          "(1,1,301,1) "
          "(1,1,301,2) | (1,2,200,3) (1,2,4,3) (1,2,4,2)")
      .perf("(4,12,512,64) (4,12,512,64) (4,12,512,64)")
      .EXPECT(attended(x[0], x[1], x[2], nullptr, 1 / std::sqrt(double(x[0].shape[3])), false));
  line(CASE(scaled_dot_product_attention, scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true, .scale = 0.3})))
      .on("(2,2,5,4) (2,2,3,4) (2,2,3,4) | (1,1,3,2) (1,1,6,2) (1,1,6,2) | (1,1,300,2) (1,1,299,2) (1,1,299,1)")
      .perf("(4,12,1024,64) (4,12,1024,64) (4,12,1024,64)")
      .EXPECT(attended(x[0], x[1], x[2], nullptr, 0.3, true));
  line(CASE(scaled_dot_product_attention, scaled_dot_product_attention(x[0], x[1], x[2], {.enable_gqa = true})))
      .on("(2,4,3,4) (2,2,5,4) (2,2,5,3)")
      .EXPECT(attended(x[0], x[1], x[2], nullptr, 0.5, false));
  line(CASE(scaled_dot_product_attention, scaled_dot_product_attention(x[0], x[1], x[2], {.attn_mask = x[3]})))
      .in({kAny, kAny, kAny, kMask})
      .on("(2,2,3,4) (2,2,5,4) (2,2,5,3) (2,1,3,5) | (1,1,2,4) (1,1,3,4) (1,1,3,4) (3)")
      .EXPECT(attended(x[0], x[1], x[2], &x[3], 0.5, false, false));
  line(CASE(scaled_dot_product_attention, scaled_dot_product_attention(x[0], x[1], x[2], {.attn_mask = x[3]})))
      .in({kAny, kAny, kAny, kConstant})
      .on("(2,2,3,4) (2,2,5,4) (2,2,5,3) (2,1,3,5)")
      .EXPECT(attended(x[0], x[1], x[2], &x[3], 0.5, false));
  line(CASE(scaled_dot_product_attention, scaled_dot_product_attention(x[0], x[1], x[2], {.attn_mask = x[3]})))  // whose gradient is wanted
      .on("(1,2,3,4) (1,2,5,4) (1,2,5,3) (3,5)")
      .EXPECT(attended(x[0], x[1], x[2], &x[3], 0.5, false));
  line(CASE(scaled_dot_product_attention, scaled_dot_product_attention(x[0], x[1], x[2], {.length = x[3]})))
      .in({kAny, kAny, kAny, labels(4)})
      .on("(2,4,1,4) (2,4,5,4) (2,4,5,3) () | (1,1,70,2) (1,1,4,2) (1,1,4,1) () | (1,2,2,40) (1,2,3,40) (1,2,3,70) ()")
      .perf("(1,12,1,64) (1,12,1024,64) (1,12,1024,64) ()")
      .EXPECT(attended(x[0], x[1], x[2], nullptr, 1 / std::sqrt(double(x[0].shape[3])), false, true, &x[3]));
  line(CASE(scaled_dot_product_attention, scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true, .length = x[3]})))
      .in({kAny, kAny, kAny, labels(6)})
      .on("(2,2,3,4) (2,2,7,4) (2,2,7,3) () | (1,1,2,3) (1,1,5,3) (1,1,5,3) () | (1,1,5,2) (1,1,5,2) (1,1,5,2) () | (1,1,9,2) (1,1,6,2) (1,1,6,2) ()")
      .EXPECT(attended(x[0], x[1], x[2], nullptr, 1 / std::sqrt(double(x[0].shape[3])), true, true, &x[3]));
  line(CASE(scaled_dot_product_attention, scaled_dot_product_attention(x[0], x[1], x[2]))).on("(3,4) (2,5,4) (5,3) | (2,1,2,3,4) (1,2,1,5,4) (5,4)");
}

/// Rows of weight joined bag by bag: bag i holds the indices from begin[i] on.
static Array bagged(const Arrays& x, const std::vector<int64_t>& begin, std::string_view mode, int64_t padding, const Array* factors = nullptr) {
  return make({int64_t(begin.size()), x[1].shape[1]}, [&](const Dims& at) {
    const int64_t first = begin[size_t(at[0])], last = at[0] + 1 < int64_t(begin.size()) ? begin[size_t(at[0]) + 1] : int64_t(x[0].v.size());
    double sum = 0, most = -INFINITY, count = 0;
    for (int64_t i = first; i < last; ++i) {
      if (int64_t(x[0].v[size_t(i)]) == padding) continue;
      const double v = x[1].at({int64_t(x[0].v[size_t(i)]), at[1]}) * (factors ? factors->v[size_t(i)] : 1);
      sum += v, most = std::max(most, v), ++count;
    }
    return count == 0 ? 0 : mode == "sum" ? sum : mode == "mean" ? sum / count : most;
  });
}

static void bags(Table& table) {
  for (const char* mode : {"sum", "mean", "max"}) {
    const auto line = [](Case& c) -> Case& { return c.in({labels(5), kAny}).within(8).finite_only(); };
    line(CASE(embedding_bag, embedding_bag(x[0], x[1], {}, {.mode = mode, .padding_idx = 2}))).on("(3,4) (5,2)").EXPECT(bagged(x, {0, 4, 8}, mode, 2));
    line(CASE(embedding_bag, embedding_bag(x[0], x[1], tensor({0, 2, 2, 5}, {.device = x[0].device()}), {.mode = mode})))
        .on("(7) (5,2)")
        .EXPECT(bagged(x, {0, 2, 2, 5}, mode, -1));
    line(CASE(embedding_bag, embedding_bag(x[0], x[1], tensor({0, 0}, {.device = x[0].device()}), {.mode = mode})))
        .on("(0) (5,2)")
        .EXPECT(bagged(x, {0, 0}, mode, -1));
  }
  CASE(embedding_bag,
       embedding_bag(x[0], x[1], tensor({0, 3, 7}, {.device = x[0].device()}), {.mode = "sum", .per_sample_weights = x[2], .include_last_offset = true}))
      .in({labels(5), kAny, kAny})
      .within(8)
      .finite_only()
      .on("(7) (5,2) (7)")
      .EXPECT(bagged(x, {0, 3}, "sum", -1, &x[2]));
}

void attention_cases(Table& table) { attention(table), bags(table), recurrent_cases(table); }

}  // namespace op_cases
