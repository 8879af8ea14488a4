// Note [Calls on rows]
// Softmax, layer and rms norm, their gradients and sums, means and maxima along the last dimensions are steps of a fused call too (Note
// [Fused calls] in core/fused.h), together with the pointwise calls around them: what lies between them is never written. Their results
// are those of the single calls within rounding. Alone they stay what they are: their own kernels are faster.
#include <algorithm>

#include "../program/overlap.h"
#include "fuse_group.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Norm, entry::NormBackward, entry::Reduce, entry::Softmax, entry::SoftmaxBackward;

/// The operand whose shape is that of the elements.
const View& full_view(const Call& call) {
  if (is<Norm>(call)) return call[&Norm::x];
  if (is<NormBackward>(call)) return call[&NormBackward::x];
  return is<Reduce>(call) ? call[&Reduce::x] : call.result();
}

/// How many of the last dimensions are a row; 0: none are.
int64_t row_dims_of(const Call& call) {
  if (is<Softmax, SoftmaxBackward>(call)) {
    const int64_t rank = call.result().shape.size();
    return rank && call.params<SoftmaxParams>().dim == rank - 1;
  }
  if (is<Norm, NormBackward>(call)) {
    const auto p = call.params<NormParams>();
    if (p.op != NormOp::Layer && p.op != NormOp::Rms) return 0;
    // Gradients of weight and bias come for little in the pass that dx needs: apart, they would read everything again.
    if (is<NormBackward>(call) && (call[&NormBackward::dweight].in_memory() || call[&NormBackward::dbias].in_memory() ||
                                   !call[&NormBackward::dx].in_memory()))
      return 0;
    return p.axes;
  }
  if (!is<Reduce>(call)) return 0;
  const auto p = call.params<ReduceParams>();
  const int64_t rank = call[&Reduce::x].shape.size();
  int64_t dims = 0;
  while (dims < rank && p.dims >> (rank - 1 - dims) & 1) ++dims;
  const bool last_alone = rank <= 31 && p.dims == ((uint32_t(1) << dims) - 1) << (rank - dims);
  const bool known = p.op == ReduceOp::Sum || p.op == ReduceOp::Mean || p.op == ReduceOp::Max;
  return known && last_alone && call[&Reduce::out].dtype == call[&Reduce::x].dtype ? dims : 0;
}

/// A layer's statistics, one a row, as a view of the rows of `full`, whose last `axes` dimensions are a row.
std::optional<View> by_rows(const View& v, const Shape& full, int64_t axes) {
  Shape kept = full;
  for (int64_t d = full.size() - axes; d < full.size(); ++d) kept[d] = 1;
  return reshaped(v, kept);
}

}  // namespace

const Shape& elements_of(const Call& call) { return full_view(call).shape; }

int64_t row_of(const Call& call) {
  if (!is<Softmax, SoftmaxBackward, Norm, NormBackward, Reduce>(call)) return 0;
  const Shape& shape = elements_of(call);
  int64_t row = 1;
  const int64_t dims = row_dims_of(call);
  for (int64_t d = shape.size() - dims; d < shape.size(); ++d) row *= shape[d];
  return dims ? row : 0;
}

bool is_row_call(const Call& call) {
  const int64_t row = row_of(call);
  if (row < 2 || row > kLongestRow) return false;
  const Shape& full = elements_of(call);
  if (numel_of(full) == 0 || !is_floating(full_view(call).dtype)) return false;
  for (const Operand& o : call.operands)
    for (const View& v : o.views)
      if (v.in_memory() && (v.device != call.device || (v.shape == full && !goes_by_rows(v)))) return false;
  return true;
}

// Note [Rows on the CPU]
// A fused call makes a pass over its tile in the first-level cache for what the kernels of softmax and norm do at once. Measured as
// processor time of one thread, fused by separate: sums, means and maxima with the calls around them 0.4 to 1.0 on rows of 32 to 8192
// elements, and 2 to 6 on rows of 8; norms 1.0 to 1.5; softmax 1.0 to 1.8, and 5 on rows of 8. What loses keeps its own kernel. (Norms of
// rows of up to 64 win, 0.3 to 0.9, but networks as small as that rather keep eager code's bits.)
bool is_worth_fusing(const Call& call) { return !call.device.is_cpu() || (is<Reduce>(call) && row_of(call) >= 32); }

bool goes_by_rows(const View& v) {
  int64_t inner = -1;
  for (int64_t d = v.shape.size(); inner < 0 && d-- > 0;)
    if (v.shape[d] > 1) inner = d;
  if (inner < 0 || v.strides[inner] == 0) return true;
  for (int64_t d = 0; d < inner; ++d)
    if (v.shape[d] > 1 && v.strides[d] != 0 && std::abs(v.strides[d]) < std::abs(v.strides[inner])) return false;
  return true;
}

int GroupBuilder::unary(UnaryOp op, int x) {
  if (x < 0) return kFull;
  FusedStep s{.kind = FusedKind::Unary, .op = uint8_t(op), .type = type_of(x), .operand = {uint8_t(x)}};
  for (Scalar& number : s.numbers) number = 0.0;
  return step(s);
}

int GroupBuilder::binary(BinaryOp op, int a, int b) {
  if (a < 0 || b < 0) return kFull;
  return step({.kind = FusedKind::Binary,
               .op = uint8_t(op),
               .type = type_of(a),
               .operand = {uint8_t(a), uint8_t(b)},
               .numbers = {1, 0, 0}});
}

int GroupBuilder::reduce(ReduceOp op, int x) {
  if (x < 0) return kFull;
  return step({.kind = FusedKind::Reduce, .op = uint8_t(op), .type = type_of(x), .operand = {uint8_t(x)}});
}

bool GroupBuilder::add_rows(const Call& call, size_t index) {
  from_ = elements_of(call);
  if (numel_of(from_) != numel_of(group_.shape)) return false;
  if (is<Softmax>(call)) return add_softmax(call, index);
  if (is<SoftmaxBackward>(call)) return add_softmax_backward(call, index);
  if (is<Norm>(call)) return add_norm(call, index);
  return is<Reduce>(call) ? add_reduce(call, index) : add_norm_backward(call, index);
}

/// e^(x - max) / sum, or x - max - ln sum.
bool GroupBuilder::add_softmax(const Call& call, size_t index) {
  const View& in = call[&Softmax::x];
  const int x = read(in, compute_type(in.dtype));
  const int low = binary(BinaryOp::Sub, x, reduce(ReduceOp::Max, x)), e = unary(UnaryOp::Exp, low);
  const int sum = reduce(ReduceOp::Sum, e);
  const int y = call.params<SoftmaxParams>().log ? binary(BinaryOp::Sub, low, unary(UnaryOp::Log, sum))
                                                 : binary(BinaryOp::Mul, e, unary(UnaryOp::Reciprocal, sum));
  return write(call[&Softmax::y], y, index);
}

/// (dy - sum(dy y)) y, or dy - e^y sum(dy).
bool GroupBuilder::add_softmax_backward(const Call& call, size_t index) {
  const DType type = compute_type(call[&SoftmaxBackward::y].dtype);
  const int dy = read(call[&SoftmaxBackward::dy], type), y = read(call[&SoftmaxBackward::y], type);
  int dx;
  if (call.params<SoftmaxParams>().log) {
    const int sum = reduce(ReduceOp::Sum, dy);
    dx = binary(BinaryOp::Sub, dy, binary(BinaryOp::Mul, unary(UnaryOp::Exp, y), sum));
  } else {
    const int sum = reduce(ReduceOp::Sum, binary(BinaryOp::Mul, dy, y));
    dx = binary(BinaryOp::Mul, binary(BinaryOp::Sub, dy, sum), y);
  }
  return write(call[&SoftmaxBackward::dx], dx, index);
}

/// The variance from the differences to the mean, as in cpu_kernels/norm/norm_rows.cpp.
bool GroupBuilder::add_norm(const Call& call, size_t index) {
  const auto p = call.params<NormParams>();
  const DType type = compute_type(call[&Norm::x].dtype);
  int x = read(call[&Norm::x], type), average = kFull;
  if (p.op == NormOp::Layer) x = binary(BinaryOp::Sub, x, average = mean(x));
  const int variance = mean(unary(UnaryOp::Square, x));
  const int rstd = unary(UnaryOp::Rsqrt, binary(BinaryOp::Add, variance, number(p.eps, type)));
  int y = binary(BinaryOp::Mul, x, rstd);
  const View &weight = call[&Norm::weight], &bias = call[&Norm::bias];
  if (weight.in_memory()) y = binary(BinaryOp::Mul, y, read(weight, type));
  if (bias.in_memory()) y = binary(BinaryOp::Add, y, read(bias, type));
  for (const auto& [statistic, value] : {std::pair(&Norm::mean, average), std::pair(&Norm::rstd, rstd)}) {
    if (!call[statistic].in_memory()) continue;
    const auto view = by_rows(call[statistic], from_, p.axes);
    if (!view || !write(*view, value, index)) return false;
  }
  return write(call[&Norm::y], y, index);
}

/// rstd (g - avg(g) - xhat avg(g xhat)), g = dy weight, xhat = (x - mean) rstd; Rms has no avg(g).
bool GroupBuilder::add_norm_backward(const Call& call, size_t index) {
  const auto p = call.params<NormParams>();
  const DType type = compute_type(call[&NormBackward::x].dtype);
  const bool rms = p.op == NormOp::Rms;
  const auto means = by_rows(call[&NormBackward::mean], from_, p.axes);
  const auto rstds = by_rows(call[&NormBackward::rstd], from_, p.axes);
  if (!rstds || (!rms && !means)) return false;
  int g = read(call[&NormBackward::dy], type), x = read(call[&NormBackward::x], type);
  const int rstd = read(*rstds, type);
  const View& weight = call[&NormBackward::weight];
  if (weight.in_memory()) g = binary(BinaryOp::Mul, g, read(weight, type));
  if (!rms) x = binary(BinaryOp::Sub, x, read(*means, type));
  const int xhat = binary(BinaryOp::Mul, x, rstd);
  const int slope = mean(binary(BinaryOp::Mul, g, xhat));
  int dx = rms ? g : binary(BinaryOp::Sub, g, mean(g));
  dx = binary(BinaryOp::Sub, dx, binary(BinaryOp::Mul, xhat, slope));
  return write(call[&NormBackward::dx], binary(BinaryOp::Mul, dx, rstd), index);
}

bool GroupBuilder::add_reduce(const Call& call, size_t index) {
  const ReduceOp op = call.params<ReduceParams>().op;
  const View& in = call[&Reduce::x];
  const int x = read(in, compute_type(in.dtype));
  return write(call[&Reduce::out], op == ReduceOp::Mean ? mean(x) : reduce(op, x), index);
}

}  // namespace tapir::inline v0::ir
