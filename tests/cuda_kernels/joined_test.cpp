// What compile() alone asks for: products that do more than multiply (cuda_kernels/matmul/matmul.cpp, few_rows.cu, quant/quant_few.cu), attention that
// puts a row (attention/one_query.cu), many copies at once (pointwise/copies.cu).
#include "../same_bits.h"
#include "kernels.h"

using namespace tapir;
using List = std::vector<Tensor>;

namespace {
/// f(operands) is the same on both devices.
template <class F> void same(F&& f, const List& operands) {
  List there;
  for (const Tensor& t : operands) there.push_back(t.to(kCUDA));
  const Tensor host = f(operands), device = f(there);
  CHECK(difference(device, host) < rounding(host.dtype()));
}
}  // namespace

namespace {
/// y = (a b) of 16 bits in float32 with the sums of a's rows, by one call on a device, by float64 on the CPU.
void check_widened(const Tensor& a, const Tensor& b, bool turned, bool sums, int64_t at) {
  const int64_t m = a.size(0), n = b.size(1);
  const Tensor there = a.to(kCUDA), room = zeros({turned ? n : m, (turned ? m : n) + at}, {.device = kCUDA}),
               flat = zeros({m + at}, {.device = kCUDA}), none;
  const Tensor y = turned ? room.narrow(1, at, m).t() : room.narrow(1, at, n), s = flat.narrow(0, at, m);
  backend(y).matmul(context(y), {.out = y, .a = there, .b = b.to(kCUDA), .aux = sums ? s : none, .params = {}});
  const double tolerance = size_of(a.dtype()) == 2 && (m * n == 0 || at) ? rounding(a.dtype()) : 2e-5;
  CHECK(difference(y, matmul(a.to(kFloat64), b.to(kFloat64)).to(kFloat32)) < tolerance);
  if (sums) CHECK(difference(s, sum(a.to(kFloat64), 1).to(kFloat32)) < rounding(a.dtype()));
  CHECK((at == 0 || difference(room.narrow(1, 0, at), zeros({room.size(0), at})) == 0));
}
}  // namespace

TEST_CASE("cuda matmul: 16 bits to float32, and gelu's gradient") {
  NEEDS_CUDA
  NoGrad guard;
  for (const DType t : {kFloat16, kBFloat16}) {
    for (const auto& [m, k, n] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {16, 24, 40}, {5, 7, 9}, {64, 1, 8}, {1, 300, 48}, {8, 0, 4}})
      for (int form = 0; form < 16; ++form) {
        CAPTURE(std::string(name_of(t)), m, k, n, form);
        Tensor a = numbers({m, k}, t, 2), b = numbers({k, n}, t, 3);
        if (form & 8) a = a.t().contiguous().t();
        check_widened(a, b, form & 1, form & 2, form & 4 ? 1 : 0);
      }
    for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{16, 24}, {5, 7}, {3, 40}, {1, 64}, {0, 8}}) {
      CAPTURE(std::string(name_of(t)), m, n);
      const List x = {numbers({m, 12}, t, 2), numbers({12, n}, t, 3), numbers({m, n}, t, 4)};
      same(
          [&, rows = m, columns = n](const List& x) {
            const Tensor y = empty({rows, columns}, {.dtype = t, .device = x[0].device()});
            backend(y).matmul(
                context(y),
                {.out = y, .a = x[0], .b = x[1], .before = x[2], .params = {.finish = MatmulFinish::GeluTanhGrad}});
            return y;
          },
          x);
    }
  }
}

TEST_CASE("cuda norm_matmul: a sum, a norm and a product of few rows in one call") {
  NEEDS_CUDA
  NoGrad guard;
  for (const DType t : {kFloat32, kFloat16, kBFloat16})
    for (const auto& [m, k, n] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 64, 96},
                                                                                    {1, 768, 48},
                                                                                    {3, 37, 33},
                                                                                    {8, 40, 64},
                                                                                    {2, 1, 40},
                                                                                    {1, 4000, 32},
                                                                                    {4, 6000, 40},
                                                                                    {9, 16, 64},
                                                                                    {1, 16, 5}})
      for (int form = 0; form < 64; ++form) {
        if (form >= 16 && k > 1000) continue;
        CAPTURE(std::string(name_of(t)), m, k, n, form);
        const bool adds = form & 1, weighs = form & 2, across = form & 4, odd = form & 16, keeps = form & 32;
        const NormOp op = form & 8 ? NormOp::Rms : NormOp::Layer;
        const Tensor scale = full({}, 0.2, {.dtype = t}), none;
        const List x = {numbers({m, k}, t, 2), numbers({m, k + 1}, t, 3),         numbers({k}, t, 4),
                        numbers({k}, t, 5),    mul(numbers({n, k}, t, 6), scale), mul(numbers({k, n}, t, 7), scale),
                        numbers({n}, t, 8)};
        same(
            [&, m = m, k = k, n = n](const List& x) {
              const TensorOptions there = {.dtype = t, .device = x[0].device()};
              const Tensor out = odd ? empty({m, n + 3}, there).narrow(1, 1, n) : empty({m, n}, there),
                           sum = empty({m, k}, there);
              backend(out).norm_matmul(context(out),
                                       {.out = out,
                                        .sum = adds && keeps ? sum : none,
                                        .x = x[0],
                                        .add = adds ? x[1].narrow(1, odd, k) : none,
                                        .weight = weighs ? x[2] : none,
                                        .norm_bias = weighs && op == NormOp::Layer ? x[3] : none,
                                        .b = across ? x[4].t() : x[5],
                                        .bias = weighs ? x[6] : none,
                                        .params = {op, 1e-5, form & 2 ? MatmulFinish::GeluTanh : MatmulFinish::None}});
              return adds && keeps ? cat({out.flatten(), sum.flatten()}, 0) : out.contiguous();
            },
            x);
      }
}

TEST_CASE("cuda norm_matmul: quantized weights") {
  NEEDS_CUDA
  NoGrad guard;
  for (const DType t : {kFloat32, kFloat16, kBFloat16})
    for (const auto& [m, k, n, group] : std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{{1, 64, 96, 32},
                                                                                                    {1, 768, 48, 768},
                                                                                                    {3, 96, 33, 48},
                                                                                                    {8, 160, 2100, 32},
                                                                                                    {2, 30, 40, 30},
                                                                                                    {1, 4096, 5, 64},
                                                                                                    {4, 6016, 40, 64},
                                                                                                    {9, 32, 64, 32},
                                                                                                    {25, 32, 9, 32}})
      for (const int64_t bits : {8, 4})
        for (int form = 0; form < 16; ++form) {
          if ((form >= 4 && k * n > 10000) || (bits == 4 && group % 32)) continue;
          CAPTURE(std::string(name_of(t)), m, k, n, group, bits, form);
          const bool adds = form & 1, weighs = form & 2, odd = form & 4, keeps = form & 8;
          const Tensor none, place = numbers({n, k * bits / 8 + odd}, kFloat32, 6);
          const List x = {numbers({m, k}, t, 2),
                          numbers({m, k + 1}, t, 3),
                          numbers({k}, t, 4),
                          numbers({k}, t, 5),
                          mul(place, 100).to(bits == 8 ? kInt8 : kUInt8),
                          add(abs(numbers({n, k / group}, kFloat32, 7)), 0.5).mul(0.003),
                          numbers({n}, kFloat32, 8)};
          same(
              [&, m = m, k = k, n = n, group = group](const List& x) {
                const TensorOptions there = {.dtype = t, .device = x[0].device()};
                const Tensor out = odd ? empty({m, n + 3}, there).narrow(1, 1, n) : empty({m, n}, there),
                             sum = empty({m, k}, there);
                backend(out).norm_matmul(
                    context(out), {.out = out,
                                   .sum = adds && keeps ? sum : none,
                                   .x = x[0],
                                   .add = adds ? x[1].narrow(1, odd, k) : none,
                                   .weight = weighs ? x[2] : none,
                                   .norm_bias = weighs ? x[3] : none,
                                   .b = x[4].narrow(1, odd, k * bits / 8),
                                   .b_scale = x[5],
                                   .bias = weighs ? x[6] : none,
                                   .params = {keeps ? NormOp::Rms : NormOp::Layer, 1e-5,
                                              weighs ? MatmulFinish::GeluTanh : MatmulFinish::None, bits, group}});
                return adds && keeps ? cat({out.flatten(), sum.flatten()}, 0) : out.contiguous();
              },
              x);
        }
}

namespace {
/// Keys and values of one tensor or of two, and what is put there. Latent: to the keys, whose first columns are the values.
enum class Table { Pair, Keys, Values, Other, Latent };
struct Put {
  int64_t batch, heads, groups, keys, depth, index, length;
  bool causal = false, odd = false;
};
void check_put(const Put& p, Table kind, DType t) {
  CAPTURE(std::string(name_of(t)), p.batch, p.heads, p.groups, p.keys, p.depth, p.index, p.length, p.odd, int(kind));
  const List x = {numbers({2, p.batch, p.groups, p.keys, p.depth + 3 * p.odd}, t, 2),
                  numbers({2, p.batch, p.groups, 1, p.depth + p.odd}, t, 3),
                  numbers({p.batch, 1, p.heads, p.depth}, t, 4), full({1}, p.index, {.dtype = kInt64}),
                  full({}, p.length, {.dtype = kInt64})};
  same(
      [&](const List& x) {
        const Tensor all = x[0].clone(), both = all.narrow(4, p.odd, p.depth), row = x[1].narrow(4, p.odd, p.depth);
        const Tensor other = kind == Table::Other ? both.clone() : both;
        const int64_t part = kind == Table::Values;
        const bool pair = kind == Table::Pair || kind == Table::Other;
        const Tensor table = pair ? transpose(other, 0, 3) : transpose(both.select(0, part), 0, 2),
                     source = pair ? transpose(row, 0, 3) : transpose(row.select(0, part), 0, 2);
        const bool latent = kind == Table::Latent;
        const Tensor values = latent ? both.select(0, 0).narrow(3, 0, (p.depth + 1) / 2) : both.select(0, 1);
        const Tensor out = empty({p.batch, p.heads, 1, values.size(3)}, {.dtype = t, .device = all.device()});
        backend(all).put_attention(context(all), {.out = out,
                                                  .table = table,
                                                  .source = source,
                                                  .index = x[3],
                                                  .q = transpose(x[2], 1, 2),
                                                  .k = both.select(0, 0),
                                                  .v = values,
                                                  .keys = x[4],
                                                  .params = {.scale = 0.3, .causal = p.causal}});
        return cat({out.flatten(), all.flatten(), other.flatten()}, 0);
      },
      x);
}
}  // namespace

TEST_CASE("cuda put_attention: a row of keys and values, and the attention of its query") {
  NEEDS_CUDA
  NoGrad guard;
  const Put puts[] = {
      {1, 2, 2, 144, 64, 128, 129}, {2, 4, 2, 40, 16, 39, 40, true},        {1, 1, 1, 90, 64, -90, 1},
      {1, 3, 1, 33, 72, 7, 30},     {1, 2, 2, 300, 64, 299, 300, true},     {1, 2, 1, 2100, 64, 2000, 2001},
      {1, 4, 2, 70, 6, 3, 4},       {1, 2, 2, 50, 64, 20, 20, false, true}, {1, 1, 1, 9, 256, 4, 9},
      {1, 2, 2, 40, 260, 4, 9},     {3, 1, 1, 17, 32, 0, 1, true},          {1, 6, 6, 20, 8, 19, 0}};
  for (const DType t : {kFloat32, kFloat16, kBFloat16, kFloat64})
    for (const Table kind : {Table::Pair, Table::Keys, Table::Values, Table::Other, Table::Latent})
      for (const Put& p : puts) check_put(p, kind, t);
}

TEST_CASE("cuda put_attention: a place out of range is told, and nothing is put", "[border]") {
  NEEDS_CUDA
  NoGrad guard;
  const auto there = [](DType t = kFloat32) { return TensorOptions{.dtype = t, .device = kCUDA}; };
  const Tensor both = ones({2, 1, 2, 8, 16}, there()), row = full({2, 1, 2, 1, 16}, 5, there()),
               q = ones({1, 2, 1, 16}, there()), out = zeros({1, 2, 1, 16}, there());
  for (const int64_t bad : {8, -9}) {
    backend(out).put_attention(context(out), {.out = out,
                                              .table = transpose(both, 0, 3),
                                              .source = transpose(row, 0, 3),
                                              .index = full({1}, bad, there(kInt64)),
                                              .q = q,
                                              .k = both.select(0, 0),
                                              .v = both.select(0, 1),
                                              .keys = full({}, 9, there(kInt64)),
                                              .params = {}});
    const std::string text = error_of([] { cuda::synchronize(); });
    CHECK(contains(text, std::to_string(bad)));
    CHECK(contains(text, "8"));
    CHECK(error_of([] { cuda::synchronize(); }).empty());
    CHECK(difference(both, ones({2, 1, 2, 8, 16})) == 0);
  }
}

TEST_CASE("cuda copies: many tensors of all kinds in few launches") {
  NEEDS_CUDA
  NoGrad guard;
  const DType dtypes[] = {kFloat32, kBFloat16, kFloat16, kFloat64, kInt32};
  std::vector<Tensor> from, to;
  manual_seed(3);
  for (int i = 0; i < 150; ++i)
    for (const DType x : {kFloat32, kBFloat16, kFloat16}) {
      const DType y = dtypes[(i + int(x)) % 5];
      const Shape shape = i % 7 == 0 ? Shape{0, 4} : i % 7 == 1 ? Shape{} : Shape{i % 13 + 1, i % 9 * 5 + 1};
      Tensor t = (randn(shape) * 9).to(x).to(kCUDA), out = empty(shape, {.dtype = y, .device = kCUDA});
      if (shape.size() == 2 && i % 3 == 0) t = t.t(), out = out.t();  // another order, the same
      if (shape.size() == 2 && i % 5 == 0) t = t.contiguous();        // not the same
      if (shape.size() == 2 && i % 11 == 2)
        out = empty({t.size(0), t.size(1) + 3}, {.dtype = y, .device = kCUDA}).narrow(1, 2, t.size(1));  // gaps
      from.push_back(t), to.push_back(out);
    }
  from.push_back(randn({300, 301}).to(kCUDA)), to.push_back(empty({300, 301}, {.dtype = kBFloat16, .device = kCUDA}));
  std::vector<TensorView> outs, xs;
  for (const Tensor& t : to) outs.emplace_back(t);
  for (const Tensor& t : from) xs.emplace_back(t);
  backend(kCUDA).copies(context(kCUDA), {.outs = outs, .xs = xs});
  for (size_t i = 0; i < from.size(); ++i) {
    CAPTURE(i, tapir::format("{}", from[i]), tapir::format("{}", to[i]));
    CHECK(tapir_tests::same_bits(to[i].cpu(), from[i].cpu().to(to[i].dtype())));
  }
}
