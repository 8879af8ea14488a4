// A relu of a product that nothing else reads becomes the product's finish.
#include "../program/overlap.h"
#include "../program/params.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Matmul, entry::Unary;

bool is_plain_product(const Call& call) {
  if (!is<Matmul>(call)) return false;
  const auto p = call.params<MatmulParams>();
  const View& out = call[&Matmul::out];
  return p.finish == MatmulFinish::None && p.beta == 0 && call[&Matmul::aux].kind == View::Kind::Absent &&
         out.in_memory() && (out.dtype == kFloat32 || out.dtype == kFloat64);  // a half may round to -0 before the relu
}

/// Where the product of call `i` can write what call `j`, a relu, makes of it; an Absent view where it cannot.
View place_of_relu(const Uses& uses, int i, int j) {
  const Call &product = uses.call(i), &relu = uses.call(j);
  const View& sums = product[&Matmul::out];
  const auto source = reshaped(relu[&Unary::x], sums.shape), y = reshaped(relu[&Unary::out], sums.shape);
  if (relu.modes != product.modes || !source || !y || !same_place(*source, sums) || y->dtype != sums.dtype ||
      uses.reads(i, *y))
    return {};
  const bool ends = same_place(*y, sums) || uses.made_by(i, sums.block).only_read_by(j);  // nobody else wants the sums
  return ends && uses.may_move(j, i) ? *y : View();
}

void join_epilogue(Rewriter& calls, int i) {
  if (!is_plain_product(calls.call(i))) return;
  const int next = calls.next(calls.call(i).result().block, i);
  const View y = next >= 0 && is_relu(calls.call(next)) ? place_of_relu(calls, i, next) : View();
  if (y.kind != View::Kind::Memory) return;
  calls.change(i, [&](Call& product) {
    auto params = product.params<MatmulParams>();
    params.finish = MatmulFinish::Relu;
    product[&Matmul::out] = y, set_params<Matmul>(product, params);
  });
  calls.remove(next);
}

}  // namespace

void join_epilogues(Program& p) { rewrite(p, join_epilogue); }

}  // namespace tapir::inline v0::ir
