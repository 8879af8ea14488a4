#include <tapir/core/work.h>

#include <tapir/core/fused.h>
#include <tapir/ops/create.h>
#include <tapir/ops/ops.h>

#include "../catch.h"

using namespace tapir;

namespace {
Tensor floats(const Shape& shape) { return zeros(shape); }
void check_work(const entry::Work& work, double flops, double bytes) {
  CHECK(work.flops == flops);
  CHECK(work.bytes == bytes);
}
}  // namespace

TEST_CASE("work of an addition with a broadcast operand") {
  const Tensor row = expand(floats({1, 5}), {3, 5});  // five elements, whatever it is repeated to
  check_work(entry::work_of(entry::Binary{floats({3, 5}), floats({3, 5}), row, {BinaryOp::Add}}), 0, 4 * (15 + 15 + 5));
  check_work(entry::work_of(entry::Binary{floats({3, 5}), floats({3, 5}), TensorView(2, kFloat32), {BinaryOp::Add}}), 0,
             4 * (15 + 15));
  check_work(entry::work_of(entry::Binary{floats({3, 0}), floats({3, 0}), expand(floats({1, 1}), {3, 0}), {}}), 0, 0);
}

TEST_CASE("work of a batched product whose second factor repeats") {
  const Tensor b = expand(floats({1, 4, 5}), {2, 4, 5});
  entry::Matmul product{.out = floats({2, 3, 5}), .a = floats({2, 3, 4}), .b = b, .params = {}};
  check_work(entry::work_of(product), 2. * 2 * 3 * 5 * 4, 4 * (30 + 24 + 20));
  product.params.beta = 1;  // out is read too
  check_work(entry::work_of(product), 2. * 2 * 3 * 5 * 4, 4 * (30 + 30 + 24 + 20));
  product.b = b.to(kBFloat16).transpose(1, 2).contiguous().transpose(1, 2);  // (2, 4, 5), 2 bytes each
  check_work(entry::work_of(product), 2. * 2 * 3 * 5 * 4, 4 * (30 + 30 + 24) + 2 * 40);
}

TEST_CASE("work of a convolution with groups and stride, and of its gradients") {
  // x (2, 6, 9, 9), w (4, 3, 3, 3) in 2 groups, stride 2: y (2, 4, 4, 4), each of 3 * 3 * 3 products
  const Tensor x = floats({2, 6, 9, 9}), w = floats({4, 3, 3, 3}), y = floats({2, 4, 4, 4}), bias = floats({4});
  const ConvParams params{.groups = 2, .stride = {2, 2, 1}};
  const double flops = 2. * (2 * 4 * 4 * 4) * 27, numbers = 2 * 6 * 81 + 4 * 27 + 2 * 4 * 16;
  check_work(entry::work_of(entry::Conv{.y = y, .x = x, .w = w, .bias = bias, .params = params}), flops,
             4 * (numbers + 4));
  check_work(entry::work_of(entry::ConvBackwardData{.dx = x, .dy = y, .w = w, .params = params}), flops, 4 * numbers);
  check_work(entry::work_of(entry::ConvBackwardWeight{.dw = w, .dy = y, .x = x, .params = params}), flops, 4 * numbers);
  check_work(
      entry::work_of(entry::Conv{.y = floats({2, 0, 4, 4}), .x = x, .w = floats({0, 3, 3, 3}), .params = params}), 0,
      4. * 2 * 6 * 81);
}

TEST_CASE("work of attention: causal has the pairs that see each other") {
  const int64_t B = 2, H = 4, G = 2, S = 3, T = 5, D = 8, E = 6;
  entry::Attention a{.out = floats({B, H, S, E}),
                     .lse = floats({B, H, S}),
                     .q = floats({B, H, S, D}),
                     .k = floats({B, G, T, D}),
                     .v = floats({B, G, T, E}),
                     .params = {}};
  const double bytes = 4. * (B * H * S * (E + 1 + D) + B * G * T * (D + E));
  check_work(entry::work_of(a), 2. * B * H * (S * T) * (D + E), bytes);
  a.params.causal = true;  // 1, 2 and 3 keys
  check_work(entry::work_of(a), 2. * B * H * (1 + 2 + 3) * (D + E), bytes);
  a.mask = zeros({}, {.dtype = kInt64});  // of five keys 3, 4 and 5
  check_work(entry::work_of(a), 2. * B * H * (3 + 4 + 5) * (D + E), bytes + 8);
  a.mask = {}, a.q = floats({B, H, 7, D}), a.out = floats({B, H, 7, E}), a.lse = {};  // 1 to 5, then 5 and 5
  CHECK(entry::work_of(a).flops == 2. * B * H * (1 + 2 + 3 + 4 + 5 + 5 + 5) * (D + E));
  a.mask = zeros({}, {.dtype = kInt64});  // the first two queries see none
  CHECK(entry::work_of(a).flops == 2. * B * H * (1 + 2 + 3 + 4 + 5) * (D + E));

  const entry::AttentionBackward back{.dq = floats({B, H, S, D}),
                                      .dk = floats({B, G, T, D}),
                                      .dv = floats({B, G, T, E}),
                                      .dout = floats({B, H, S, E}),
                                      .out = floats({B, H, S, E}),
                                      .lse = floats({B, H, S}),
                                      .q = floats({B, H, S, D}),
                                      .k = floats({B, G, T, D}),
                                      .v = floats({B, G, T, E}),
                                      .params = {.causal = true}};
  check_work(entry::work_of(back), 2. * B * H * (1 + 2 + 3) * (3 * D + 2 * E),
             4. * (B * H * S * (2 * D + 2 * E + 1) + 2 * B * G * T * (D + E)));
}

TEST_CASE("work of an LSTM, whose state is projected, and of its gradient") {
  const int64_t N = 12, B = 3, H = 5, P = 2;  // four steps
  const entry::Rnn run{.y = floats({N, P}),
                       .h = floats({B, P}),
                       .c = floats({B, H}),
                       .reserve = floats({N, 5 * H}),
                       .x = floats({N, 4 * H}),
                       .w = floats({4 * H, P}),
                       .bias = floats({4 * H}),
                       .projection = floats({P, H}),
                       .h0 = floats({B, P}),
                       .c0 = floats({B, H}),
                       .params = {.op = RnnOp::Lstm, .steps = 4}};
  const double weights = 4 * H * P + P * H, states = 2 * B * (P + H);
  check_work(entry::work_of(run), 2. * N * weights, 4. * (N * (P + 9 * H) + 4 * H + weights + states));
  entry::RnnBackward back{.dx = floats({N, 4 * H}),
                          .dh0 = floats({B, P}),
                          .y = floats({N, P}),
                          .w = floats({4 * H, P}),
                          .projection = floats({P, H}),
                          .h0 = floats({B, P}),
                          .params = {.op = RnnOp::Lstm, .steps = 4}};
  CHECK(entry::work_of(back).flops == 2. * N * weights);
  back.dw = floats({4 * H, P}), back.dprojection = floats({P, H});
  CHECK(entry::work_of(back).flops == 2. * N * 2 * weights);
}

TEST_CASE("work of what is indexed, updated, or a list") {
  const Tensor table = floats({1000, 4}), index = zeros({3}, {.dtype = kInt64});
  const TensorView indices[] = {index};
  check_work(entry::work_of(entry::Index{.out = floats({3, 4}), .x = table, .indices = indices, .params = {}}), 0,
             4 * (12 + 12) + 8 * 3);
  check_work(entry::work_of(entry::IndexPut{.out = table, .source = floats({3, 4}), .indices = indices, .params = {}}),
             0, 4 * (2 * 12 + 12) + 8 * 3);
  const TensorView xs[] = {floats({6}), floats({2, 2})};
  check_work(entry::work_of(entry::Foreach{.xs = xs, .params = {ForeachOp::Scale}}), 0, 2 * 4 * 10);
  check_work(entry::work_of(entry::Foreach{.xs = xs, .params = {ForeachOp::Zero}}), 0, 4 * 10);
  FusedParams params;
  const TensorView ins[] = {floats({2, 3}), TensorView(floats({3})).expand({2, 3})}, outs[] = {ins[0]};
  check_work(entry::work_of(entry::Fused{.outs = outs, .ins = ins, .params = &params}), 0, 4 * (6 + 3 + 6));
}
