#include "refusals.h"

#include <algorithm>
#include <string_view>

namespace tapir::inline v0::ir {
namespace {

using entry::Id;

constexpr const char *kIndex = "index {value} at position {position} is out of bounds for a dimension of size {bound}",
                     *kTarget = "target {value} at position {position} is out of bounds for {bound} classes";
constexpr struct {
  Id entry;
  const char *op, *text;  // op: nothing for the entry's own name
} kTexts[] = {
    {Id::gather, "", kIndex},
    {Id::scatter, "", kIndex},
    {Id::index, "", kIndex},
    {Id::index_put, "", kIndex},
    {Id::put_attention, "index_put",
     "the index of a key, or their number, is {value}, out of bounds for a dimension of size {bound}"},
    {Id::cross_entropy, "", kTarget},
    {Id::cross_entropy_backward, "", kTarget},
    {Id::binary, "", "ZeroDivisionError: the integer divisor at position {position} is {value}"},
    {Id::random, "bernoulli", "expected probabilities in [0, 1], got another one at position {position}"},
    {Id::attention, "scaled_dot_product_attention", "expected a length of at most {bound} keys, got {value}"},
};

const char* text_of(LinalgOp op) {
  if (op == LinalgOp::Cholesky)
    return "[linalg.cholesky] expected positive-definite matrices, but in batch element {position} the leading minor "
           "of order {value} is not positive";
  if (op == LinalgOp::Lu)
    return "[linalg] expected matrices that have an inverse, but in batch element {position} pivot {value} is 0";
  return op == LinalgOp::Eigh
             ? "[linalg.eigh] expected finite numbers, got an infinity or NaN in batch element {position}"
             : "[linalg.svd] expected finite numbers, got an infinity or NaN in batch element {position}";
}
LinalgOp linalg_op(const Call& call) { return call.params<LinalgParams>().op; }

/// By integers of which it is not certain that none is 0.
bool may_divide_by_zero(const Call& call) {
  const BinaryOp op = call.params<BinaryParams>().op;
  const View &a = call[&entry::Binary::a], &b = call[&entry::Binary::b];
  return (op == BinaryOp::TruncDiv || op == BinaryOp::FloorDiv || op == BinaryOp::Remainder || op == BinaryOp::Fmod) &&
         !is_floating(a.dtype) && !is_floating(b.dtype) && (b.kind != View::Kind::Number || !b.number.to_bool());
}
bool may_refuse_matrices(const Call& call) {
  const LinalgOp op = linalg_op(call);
  const std::vector<View>& outs = call[&entry::Linalg::outs];
  const auto lacks = [&](size_t i) { return outs.size() <= i || outs[i].kind == View::Kind::Absent; };
  if (op == LinalgOp::Cholesky) return lacks(1);  // else it is told there
  if (op == LinalgOp::Lu) return lacks(2);        // singular matrices have a determinant, but no inverse
  return op == LinalgOp::Eigh || op == LinalgOp::Svd;
}

}  // namespace

bool may_refuse(const Call& call) {
  if (call.custom) return true;  // it throws what it likes
  if (is<entry::Binary>(call)) return may_divide_by_zero(call);
  if (is<entry::Linalg>(call)) return may_refuse_matrices(call);
  if (is<entry::Random>(call)) return call.params<RandomParams>().op == RandomOp::BernoulliTensor;
  if (is<entry::Attention>(call))  // by a length
    return call[&entry::Attention::mask].kind == View::Kind::Memory && call[&entry::Attention::mask].dtype == kInt64;
  return std::any_of(std::begin(kTexts), std::end(kTexts), [&](const auto& t) { return call.entry == t.entry; });
}

std::string refusal_of(const Call& call) {
  if (is<entry::Linalg>(call)) return text_of(linalg_op(call));
  for (const auto& t : kTexts)
    if (call.entry == t.entry) {
      const char* const op = *t.op                     ? t.op
                             : is<entry::Binary>(call) ? call.operands.back().op_name
                                                       : entry::name_of(call.entry);
      return std::string("[").append(op).append("] ").append(t.text);
    }
  return std::string("[") + entry::name_of(call.entry) +
         "] bad value {value} at position {position}, expected one within {bound}";
}

bool iterates(const Call& call) {
  return is<entry::Linalg>(call) && (linalg_op(call) == LinalgOp::Eigh || linalg_op(call) == LinalgOp::Svd);
}

}  // namespace tapir::inline v0::ir
