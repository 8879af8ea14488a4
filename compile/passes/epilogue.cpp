// Note [Finishes of products]
// A relu of a product that nothing else reads becomes the product's finish, on a GPU that of a convolution too (the sign of a zero may be
// another one). On a GPU, of products in 16 bits, so do GELU by tanh and its gradient, which libraries have in their epilogues: what GELU is
// applied to is left where it was, for the gradient. The sums are then rounded behind GELU alone. Products with quantized weights take GELU of
// any floats, where nothing else reads what it is applied to.
#include "../program/overlap.h"
#include "../program/params.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Conv, entry::Matmul, entry::QuantMatmul, entry::Unary;

bool is_plain_product(const Call& call) {
  if (!is<Matmul>(call)) return false;
  const auto p = call.params<MatmulParams>();
  const View& out = call[&Matmul::out];
  return p.finish == MatmulFinish::None && p.beta == 0 && call[&Matmul::aux].kind == View::Kind::Absent &&
         out.in_memory() && out.dtype == call[&Matmul::a].dtype;  // not one that widens
}

/// Where the product of call `at` can write y, what call `next` makes of its sums, read there as x; an Absent view where it cannot.
View place_of(const Uses& uses, int at, int next, const View& x, const View& y) {
  const View& sums = uses.call(at).result();
  const auto source = reshaped(x, sums.shape), to = reshaped(y, sums.shape);
  if (uses.call(next).modes != uses.call(at).modes || !source || !to || !same_place(*source, sums) ||
      to->dtype != sums.dtype || uses.reads(at, *to) || !uses.may_move(next, at))
    return {};
  return *to;
}
/// Does nobody but call `next`, which writes y, want the product's sums?
bool ends(const Uses& uses, int at, int next, const View& y) {
  const View& sums = uses.call(at).result();
  return same_place(y, sums) || uses.made_by(at, sums.block).only_read_by(next);
}

/// What becomes of the product `at` that takes in call `next`; false: nothing does.
bool take_in(Rewriter& calls, int at, int next, MatmulFinish finish, const View& y, const View& aux,
             const View& before) {
  if (y.kind != View::Kind::Memory) return false;
  calls.change(at, [&](Call& product) {
    auto params = product.params<MatmulParams>();
    params.finish = finish;
    product[&Matmul::out] = y, product[&Matmul::aux] = aux, product[&Matmul::before] = before;
    set_params<Matmul>(product, params);
  });
  calls.remove(next);
  return true;
}

bool join_relu(Rewriter& calls, int at, int next) {
  const Call& relu = calls.call(next);
  const DType dtype = calls.call(at).result().dtype;  // a half may round to -0 before the relu
  if (!is_relu(relu) || (dtype != kFloat32 && dtype != kFloat64)) return false;
  const View y = place_of(calls, at, next, relu[&Unary::x], relu[&Unary::out]);
  return y.in_memory() && ends(calls, at, next, y) && take_in(calls, at, next, MatmulFinish::Relu, y, {}, {});
}

/// May products of the call's kind have GELU in their epilogue?
bool takes_gelu(const Call& product) {
  return product.device.is_cuda() && is_half(product[&Matmul::out]) && product.params<MatmulParams>().alpha == 1;
}

/// Where the product can write what call `next` makes of it, if that is GELU by tanh.
View place_of_gelu(const Uses& uses, int at, int next) {
  const Call& gelu = uses.call(next);
  if (!is<Unary>(gelu)) return {};
  const auto p = gelu.params<UnaryParams>();
  return p.op == UnaryOp::Gelu && p.a == 1 ? place_of(uses, at, next, gelu[&Unary::x], gelu[&Unary::out]) : View();
}

bool join_gelu(Rewriter& calls, int at, int next) {
  if (!takes_gelu(calls.call(at))) return false;
  const View sums = calls.call(at)[&Matmul::out], y = place_of_gelu(calls, at, next);
  if (!y.in_memory()) return false;
  const bool kept = !ends(calls, at, next, y);
  if (kept && overlap(y, sums)) return false;
  return take_in(calls, at, next, MatmulFinish::GeluTanh, y, kept ? sums : View(), {});
}

bool join_gelu_gradient(Rewriter& calls, int at, int next) {
  const Call &product = calls.call(at), &gradient = calls.call(next);
  if (!takes_gelu(product) || product[&Matmul::bias].kind != View::Kind::Absent || !is<Binary>(gradient)) return false;
  const auto p = gradient.params<BinaryParams>();
  if (p.op != BinaryOp::GeluGrad || p.alpha.to_double() != 1) return false;
  const View y = place_of(calls, at, next, gradient[&Binary::a], gradient[&Binary::out]);
  const auto before = reshaped(gradient[&Binary::b], product[&Matmul::out].shape);
  if (!y.in_memory() || !before || !before->in_memory() || before->dtype != y.dtype || overlap(*before, y) ||
      overlap(*before, product[&Matmul::out]) || !ends(calls, at, next, y))
    return false;
  return take_in(calls, at, next, MatmulFinish::GeluTanhGrad, y, {}, *before);
}

/// A relu of convolution `at`.
void join_conv_relu(Rewriter& calls, int at) {
  const Call& conv = calls.call(at);
  const View& sums = conv[&Conv::y];
  const int next = conv.device.is_cuda() && sums.in_memory() ? calls.next(sums.block, at) : -1;
  if (next < 0 || !is_relu(calls.call(next)) || !is_floating(sums.dtype)) return;
  const View y = place_of(calls, at, next, calls.call(next)[&Unary::x], calls.call(next)[&Unary::out]);
  if (y.kind != View::Kind::Memory || !ends(calls, at, next, y)) return;
  calls.change(at, [&](Call& call) {
    auto params = call.params<ConvParams>();
    params.relu = true;
    call[&Conv::y] = y;
    set_params<Conv>(call, params);
  });
  calls.remove(next);
}

void join_quantized_gelu(Rewriter& calls, int at) {
  const Call& product = calls.call(at);
  auto params = product.params<QuantMatmulParams>();
  const int next = product.result().in_memory() ? calls.next(product.result().block, at) : -1;
  if (!product.device.is_cuda() || params.finish != MatmulFinish::None || next < 0) return;
  const View y = place_of_gelu(calls, at, next);
  if (!y.in_memory() || !ends(calls, at, next, y)) return;
  params.finish = MatmulFinish::GeluTanh;
  calls.change(at, [&](Call& call) { call[&QuantMatmul::y] = y, set_params<QuantMatmul>(call, params); });
  calls.remove(next);
}

void join_epilogue(Rewriter& calls, int at) {
  if (is<Conv>(calls.call(at))) return join_conv_relu(calls, at);
  if (is<QuantMatmul>(calls.call(at))) return join_quantized_gelu(calls, at);
  if (!is_plain_product(calls.call(at))) return;
  const int next = calls.next(calls.call(at).result().block, at);
  if (next >= 0) join_relu(calls, at, next) || join_gelu(calls, at, next) || join_gelu_gradient(calls, at, next);
}

}  // namespace

void join_epilogues(Program& p) { rewrite(p, join_epilogue); }

}  // namespace tapir::inline v0::ir
