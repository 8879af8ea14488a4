#include <limits>

#include "both.h"
#include "cuda.h"

using namespace tapir_tests;

namespace {
struct Case {
  int64_t batch, heads, groups, queries, keys, depth, width;
  bool causal;
  int mask;             // 0: none, 1: bool, 2: added; repeated over heads
  int64_t length = -1;  // of the keys; -1: none
  double dropout = 0;
};
const Case cases[] = {
    {1, 1, 1, 5, 7, 4, 3, false, 0},           {2, 4, 2, 70, 65, 40, 24, false, 0},
    {1, 2, 2, 130, 130, 64, 64, true, 0},      {1, 2, 1, 33, 90, 72, 136, false, 1},
    {2, 2, 2, 20, 33, 16, 16, true, 2},        {1, 1, 1, 9, 70, 0, 5, false, 0},
    {1, 1, 1, 3, 0, 4, 4, false, 0},           {2, 4, 2, 1, 90, 40, 24, true, 0, 71},
    {1, 2, 2, 20, 70, 16, 16, true, 0, 70},    {1, 1, 1, 130, 150, 16, 8, true, 0, 140},
    {1, 2, 1, 3, 40, 8, 8, false, 0, 33},      {1, 1, 1, 3, 40, 8, 8, true, 0, 2},
    {1, 1, 1, 2, 40, 8, 8, false, 0, 0},       {2, 4, 2, 1, 2100, 64, 64, false, 0},
    {1, 2, 1, 1, 1300, 64, 64, true, 0, 1290}, {2, 4, 1, 1, 300, 72, 136, false, 2},
    {1, 3, 3, 1, 50, 6, 5, false, 1},          {1, 2, 2, 1, 20, 8, 8, true, 0},
    {1, 2, 2, 1, 40, 300, 8, false, 0},        {1, 2, 2, 1, 0, 8, 8, false, 0},
    {1, 1, 1, 1, 40, 8, 8, true, 0, 0},        {1, 1, 1, 1, 70, 0, 5, false, 0},
    {2, 4, 2, 260, 200, 64, 64, false, 2},     {1, 8, 4, 200, 136, 56, 64, true, 1},
    {1, 2, 2, 70, 100, 128, 96, false, 2},     {1, 2, 1, 100, 70, 96, 128, true, 0},
    {1, 4, 4, 300, 70, 64, 40, true, 0, 65},   {1, 2, 1, 1, 9000, 64, 64, true, 0, 8190},
    {1, 1, 1, 1, 9000, 64, 64, false, 0, 3},   {1, 2, 2, 1, 4500, 64, 128, false, 1},
    {1, 1, 1, 1, 9000, 64, 64, true, 0, 0},
};
const Case dropped[] = {
    {2, 4, 2, 70, 65, 40, 24, false, 2, -1, 0.3},   {1, 2, 2, 130, 131, 64, 64, true, 0, -1, 0.1},
    {1, 8, 4, 200, 136, 64, 64, true, 0, -1, 0.25}, {1, 2, 1, 70, 132, 128, 96, false, 1, -1, 0.2},
    {1, 2, 1, 1, 1301, 64, 64, false, 1, -1, 0.5},  {1, 1, 1, 5, 7, 4, 3, false, 0, -1, 1},
};
const Case wide[] = {
    {1, 2, 1, 70, 90, 256, 256, true, 0},           {1, 2, 2, 40, 66, 160, 200, false, 2},
    {1, 2, 2, 130, 70, 136, 250, true, 1},          {1, 1, 1, 20, 35, 129, 7, false, 0},
    {1, 1, 1, 20, 60, 192, 128, true, 0, 37},       {1, 2, 1, 66, 68, 256, 144, false, 1, -1, 0.2},
    {1, 1, 1, 20, 35, 130, 256, true, 0, -1, 0.25},
};
const Case few_queries[] = {
    // of many keys
    {1, 2, 1, 3, 1100, 64, 64, true, 0, 1090}, {1, 1, 1, 20, 700, 40, 56, false, 2},
    {1, 1, 1, 63, 1300, 72, 128, false, 1},    {1, 2, 2, 2, 5000, 16, 16, false, 0, 3},
    {1, 1, 1, 5, 2000, 64, 64, true, 0, 0},    {2, 1, 1, 7, 600, 100, 136, true, 0, 590},
    {1, 1, 1, 66, 2100, 64, 64, true, 2},      {1, 1, 1, 9, 1302, 64, 40, false, 0, -1, 0.3},
};
/// plain: rows of v and dout lie in whole packs where their sizes are.
std::string differ_in(const Case& c, DType t, double tolerance, bool plain = false) {
  const DType wide = compute_type(t);
  const std::vector<int> swapped = {0, 2, 1, 3};  // (B, S, H, D) in memory
  Array q(t, {c.batch, c.heads, c.queries, c.depth}, swapped), k(t, {c.batch, c.groups, c.keys, c.depth}),
      v(t, {c.batch, c.groups, c.keys, c.width}, swapped, {}, plain ? 0 : 1),
      out(t, {c.batch, c.heads, c.queries, c.width}), lse(wide, {c.batch, c.heads, c.queries}),
      mask(c.mask == 1 ? kBool : t, {c.batch, c.heads, c.queries, c.keys}, {}, {1});
  uint32_t seed = 1;
  for (Array* a : {&q, &k, &v}) {
    a->random(++seed, -8, 8);
    for (int64_t i = 0; i < a->count; ++i) write(t, a->view.data, i, read(t, a->view.data, i) / 8);
  }
  mask.random(9, 0, 3);
  if (c.mask == 1)  // a query that sees nothing
    for (int64_t j = 0; j < c.keys; ++j) mask.set(0, 0, 0, c.queries > 2 ? 2 : 0, j);
  const AttentionParams p{.scale = 0.3, .causal = c.causal, .dropout_p = c.dropout, .seed = 5, .offset = 1};
  Array* const m = c.mask ? &mask : nullptr;
  Array length(kInt64, {});
  length.set(double(c.length));
  std::string found = differ({&out, &lse, &q, &k, &v, c.length < 0 ? m : &length}, tolerance,
                             [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& a) {
                               table.attention(ctx, {a[0], a[1], a[2], a[3], a[4], a[5], {}, p});
                             });
  if (!found.empty()) return "forward: " + found;
  if (c.length >= 0) return "";
  Array dq(t, {c.batch, c.heads, c.queries, c.depth}), dk(t, {c.batch, c.groups, c.keys, c.depth}),
      dv(t, {c.batch, c.groups, c.keys, c.width}),
      dout(t, {c.batch, c.heads, c.queries, c.width}, plain ? swapped : std::vector<int>{0, 1, 3, 2});
  dout.random(4, -2, 2);
  found = differ({&dq, &dk, &dv, &dout, &out, &lse, &q, &k, &v, m}, 3 * tolerance,
                 [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& a) {
                   table.attention_backward(ctx, {a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], {}, p});
                 });
  return found.empty() ? "" : "backward: " + found;
}
}  // namespace

/// On the emulated device a test case runs without cuDNN too, in a process of its own, by kernels of our own alone. cuDNN takes nothing but 16
/// bits, so that float32 and float64 are tested there. True: they are to be tested here.
static bool tests_wide_floats(const char* name) {
  if (!is_emulated() || std::getenv("TAPIR_EMULATED_WITHOUT")) return true;
  CHECK(run_alone("TAPIR_EMULATED_WITHOUT=cudnn", name) == 0);
  return false;
}

TEST_CASE("CUDA attention: forward and backward") {
  NEEDS_DEVICE();
  const bool floats = tests_wide_floats("CUDA attention: forward and backward");
  const auto check = [floats](const Case& c) {
    CAPTURE(c.queries, c.keys, c.depth, c.width, c.mask, c.dropout);
    if (floats) CHECK(differ_in(c, kFloat32, 1e-5) == "");
    if (floats) CHECK(differ_in(c, kFloat64, 1e-12) == "");
    CHECK(differ_in(c, kFloat16, 4e-3) == "");
  };
  for (const Case& c : cases) check(c);
  for (const Case& c : dropped) check(c);
  for (const Case& c : dropped) CHECK(differ_in(c, kBFloat16, 3e-2) == "");
  CHECK(differ_in(cases[1], kBFloat16, 3e-2) == "");
}

TEST_CASE("CUDA attention: wide heads, few queries of many keys, rows in whole packs") {
  NEEDS_DEVICE();
  const bool floats = tests_wide_floats("CUDA attention: wide heads*");
  const auto check = [floats](const Case& c) {
    CAPTURE(c.queries, c.keys, c.depth, c.width, c.mask, c.dropout);
    for (const bool plain : {false, true}) {
      if (floats) CHECK(differ_in(c, kFloat32, 1e-5, plain) == "");
      CHECK(differ_in(c, kFloat16, 4e-3, plain) == "");
      CHECK(differ_in(c, kBFloat16, 3e-2, plain) == "");
    }
  };
  for (const Case& c : wide) check(c);
  for (const Case& c : few_queries) check(c);
}

TEST_CASE("CUDA attention: float32 in TF32 only where it is asked for") {
  NEEDS_DEVICE();
  const Case some[] = {
      {1, 2, 1, 70, 90, 64, 64, true, 2},           {1, 2, 2, 130, 67, 40, 52, false, 1},
      {1, 1, 1, 70, 132, 128, 96, false, 0},        {1, 1, 1, 33, 131, 70, 120, true, 0, -1, 0.25},
      {1, 2, 2, 66, 60, 64, 64, true, 0, -1, 0.25}, {1, 1, 1, 5, 1100, 64, 64, true, 0, 1090},
      {2, 4, 4, 260, 70, 64, 64, false, 0},
  };
  for (const Case& c : some)
    for (const bool plain : {false, true}) {
      CAPTURE(c.queries, c.keys, c.depth, c.width, c.mask, c.dropout);
      CHECK(differ_in(c, kFloat32, 1e-5, plain) == "");
      backends::cuda::set_matmul_allow_tf32(true);
      const std::string near = differ_in(c, kFloat32, 4e-3, plain), exact = differ_in(c, kFloat32, 1e-6, plain);
      backends::cuda::set_matmul_allow_tf32(false);
      CHECK(near == "");
      CHECK(exact != "");
    }
}

TEST_CASE("CUDA attention: weights of the backward pass are at most 1, what dropout drops is 0, whatever it was") {
  NEEDS_DEVICE();
  manual_seed(2);
  for (const DType dtype : {kFloat16, kBFloat16})
    for (const double size :
         {1., 100., 10000.}) {  // each query sees its own key alone, by scores of up to 10^8 times the scale
      const Tensor x = (randn({1, 1, 64, 128}) * std::min(size, dtype == kFloat16 ? 100. : size)).to(dtype).to(kCUDA);
      const Tensor v = randn({1, 1, 64, 128}).to(dtype).to(kCUDA).requires_grad_();
      const Tensor mask = (1 - eye(64)).mul(-1e4).to(dtype).to(kCUDA);
      for (const Tensor& hidden : {Tensor(), mask}) {
        if (size == 1 && !hidden.defined()) continue;  // there other keys count too
        scaled_dot_product_attention(x, x, v, {.attn_mask = hidden, .scale = 0.3}).sum().backward();
        CHECK(max(abs(v.grad().to(kFloat32) - 1)).item() < 0.01);
        v.set_grad({});
      }
    }
  const Tensor q = randn({1, 2, 40, 64}).to(kFloat16).to(kCUDA).requires_grad_();
  manual_seed(3);
  const Tensor y = scaled_dot_product_attention(q, q, q * 1e-3, {.dropout_p = 0.99999});
  y.sum().backward();
  CHECK(all(isfinite(y)).item() == 1);
  CHECK(all(isfinite(q.grad())).item() == 1);
  Tensor mask = zeros({40, 40}).to(kFloat16);
  select(mask, 0, 3).fill_(std::numeric_limits<double>::quiet_NaN());
  const Tensor v = randn({1, 2, 40, 64}).to(kFloat16).to(kCUDA).requires_grad_();
  scaled_dot_product_attention(q, q, v, {.attn_mask = mask.to(kCUDA), .dropout_p = 1}).sum().backward();
  CHECK(max(abs(v.grad())).item() == 0);
}
