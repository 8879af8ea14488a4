// Note [Folded norms]
// In evaluation a batch norm is (x - mean) s + bias with s = weight / sqrt(var + eps). Behind a convolution with weights w and bias b that
// is the convolution with w s and (b - mean) s + bias. The calls that make those read nothing but what lies outside, so that
// prepare_calls() has them run once, and again when somebody wrote there. They are kept beside w, so w must have no more numbers than the
// result has: else more memory is taken than the pass over the result, which is saved, is worth (ResNet-18 on one image: 1 % of time, 43 MiB).
#include "../program/overlap.h"
#include "../program/params.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Conv, entry::Norm, entry::Unary;

/// Absent, or numbers of that type that no call of the program writes and no argument brings.
bool is_constant(const Uses& uses, const View& v, DType dtype) {
  return v.kind == View::Kind::Absent || (v.in_memory() && v.dtype == dtype && uses.is_weight(v.block));
}

/// The convolution whose result call `at`, a batch norm in evaluation, is alone to read; -1: there is none.
int convolution_of(const Uses& uses, int at) {
  const Call& norm = uses.call(at);
  if (!is<Norm>(norm) || norm.params<NormParams>().op != NormOp::Batch || norm.params<NormParams>().training) return -1;
  const View &y = norm[&Norm::y], &x = norm[&Norm::x];
  if (!x.in_memory() || !y.in_memory() || x.dtype != y.dtype || (x.dtype != kFloat32 && x.dtype != kFloat64)) return -1;
  const Value sums = uses.read_by(at, x.block);
  if (sums.maker < 0 || !sums.only_read_by(at)) return -1;
  const Call& conv = uses.call(sums.maker);
  if (!is<Conv>(conv) || numel_of(conv[&Conv::w].shape) > numel_of(x.shape) || conv.modes != norm.modes ||
      !same_place(conv[&Conv::y], x))
    return -1;
  bool ok = norm[&Norm::mean].kind == View::Kind::Absent && norm[&Norm::rstd].kind == View::Kind::Absent &&
            conv[&Conv::w].kind == View::Kind::Memory;
  for (const View& v : {norm[&Norm::weight], norm[&Norm::bias], norm[&Norm::running_mean], norm[&Norm::running_var],
                        conv[&Conv::w], conv[&Conv::bias]})
    ok = ok && is_constant(uses, v, x.dtype);
  ok = ok && !uses.conflict(sums.maker, y, Access::Write) && uses.may_move(at, sums.maker);  // y is written earlier
  return ok ? sums.maker : -1;
}

/// The convolution that does what both do; the calls that make its weights go to `to`.
Call folded(Rewriter& calls, Call conv, const Call& norm, std::vector<Call>& to) {
  const View w = conv[&Conv::w], b = conv[&Conv::bias];
  const View &weight = norm[&Norm::weight], &bias = norm[&Norm::bias], &mean = norm[&Norm::running_mean];
  const auto vector = [&] { return calls.temporary(w, {w.shape[0]}, {1}); };
  const auto binary = [&](BinaryOp op, const View& out, const View& x, const View& y) {
    to.push_back(call_of<Binary>(norm, BinaryParams{op}, &Binary::out, out, &Binary::a, x, &Binary::b, y));
    return out;
  };
  const auto unary = [&](UnaryOp op, const View& out, const View& x) {
    to.push_back(call_of<Unary>(norm, UnaryParams{op}, &Unary::out, out, &Unary::x, x));
  };
  View scale = vector(), shift = vector();
  const View var =
      binary(BinaryOp::Add, vector(), norm[&Norm::running_var], number_like(w, norm.params<NormParams>().eps));
  unary(UnaryOp::Rsqrt, scale, var);
  if (weight.kind == View::Kind::Memory) scale = binary(BinaryOp::Mul, vector(), scale, weight);
  if (b.kind == View::Kind::Memory) binary(BinaryOp::Sub, shift, b, mean);
  else unary(UnaryOp::Neg, shift, mean);
  shift = binary(BinaryOp::Mul, vector(), shift, scale);
  if (bias.kind == View::Kind::Memory) shift = binary(BinaryOp::Add, vector(), shift, bias);
  View along = scale;  // (O) as the weights have it
  along.shape = w.shape, along.strides = Strides::filled(w.shape.size(), 0);
  along.strides[0] = 1;
  const Strides strides = is_dense(w.shape, w.strides) ? w.strides : contiguous_strides(w.shape);
  conv[&Conv::w] = binary(BinaryOp::Mul, calls.temporary(w, w.shape, strides), w, along);
  conv[&Conv::bias] = shift;
  conv[&Conv::y] = norm[&Norm::y];
  return conv;
}

void fold_norm(Rewriter& calls, int at) {
  const int conv = convolution_of(calls, at);
  if (conv < 0) return;
  std::vector<Call> weights;
  calls.replace(conv, folded(calls, calls.call(conv), calls.call(at), weights));
  calls.remove(at);
  calls.insert(conv, std::move(weights));
}

}  // namespace

void fold_norms(Program& p) { rewrite(p, fold_norm); }

}  // namespace tapir::inline v0::ir
