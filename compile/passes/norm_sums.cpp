// Note [Gradients of norms on the residual stream]
// The gradient of a layer or rms norm is added to what came past the norm, and is rounded to 16 bits for the products before it where
// autocast rules; its operand was widened from 16 bits likewise. On a GPU all of this is one call: nothing between is in memory, and the
// sum is rounded once where it was twice.
#include <optional>

#include "../program/overlap.h"
#include "../program/params.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Copy, entry::NormAddBackward, entry::NormBackward;

/// Copies of the same shape, from one dtype to another.
bool is_cast(const Call& call, const Call& like) {
  return is<Copy>(call) && call.device == like.device && call.modes == like.modes && call[&Copy::x].in_memory() &&
         call[&Copy::out].in_memory() && call[&Copy::out].shape == call[&Copy::x].shape;
}

/// The copy that widened what the norm's gradient `at` reads, for it alone; -1: none did.
int widening(const Uses& uses, int at) {
  const View& dy = uses.call(at)[&NormBackward::dy];
  if (!dy.in_memory()) return -1;
  const Value value = uses.read_by(at, dy.block);
  if (value.maker < 0 || !value.whole || !value.only_read_by(at)) return -1;
  const Call& copy = uses.call(value.maker);
  const bool fits = is_cast(copy, uses.call(at)) && is_half(copy[&Copy::x]) && same_place(copy[&Copy::out], dy) &&
                    !uses.overwritten(copy[&Copy::x], value.maker, at);
  return fits ? value.maker : -1;
}

/// The sum that alone reads the gradient dx which call `at` makes, and what is added to it; -1: there is none.
std::pair<int, View> sum_of(const Uses& uses, int at) {
  const View& dx = uses.call(at)[&NormBackward::dx];
  const int next = uses.next(dx.block, at);
  if (next < 0 || !is_sum(uses.call(next)) || uses.call(next).modes != uses.call(at).modes) return {-1, {}};
  const Call& sum = uses.call(next);
  const View &a = sum[&Binary::a], &b = sum[&Binary::b], &out = sum[&Binary::out];
  const View &norm = same_place(a, dx) ? a : b, &add = same_place(a, dx) ? b : a;
  const View &x = uses.call(at)[&NormBackward::x], &dy = uses.call(at)[&NormBackward::dy];
  const bool fits = same_place(norm, dx) && add.in_memory() && add.dtype == dx.dtype && add.shape == dx.shape &&
                    out.dtype == dx.dtype && out.shape == dx.shape && !overlap(add, dx) &&
                    (same_place(out, add) || !overlap(out, add)) && !overlap(out, x) &&
                    (same_place(out, dy) || !overlap(out, dy)) &&
                    (same_place(out, dx) || uses.made_by(at, dx.block).only_read_by(next));
  return {fits && uses.may_move(at, next) ? next : -1, add};
}

/// A copy that rounds what call `at` leaves at v to 16 bits, and can be made there, where `norm` is made too; -1: there is none.
int rounding(const Uses& uses, int norm, int at, const View& v) {
  for (const int next : uses.made_by(at, v.block).readers) {
    const Call& copy = uses.call(next);
    if (is_cast(copy, uses.call(at)) && is_half(copy[&Copy::out]) && same_place(copy[&Copy::x], v) &&
        !uses.conflict(at, copy[&Copy::out], Access::Write) && !uses.conflict(norm, copy[&Copy::out], Access::Write) &&
        uses.may_move(next, at))
      return next;
  }
  return -1;
}

void join_norm_sum(Rewriter& calls, int at) {
  const Call norm = calls.call(at);
  if (!is<NormBackward>(norm) || !norm.device.is_cuda()) return;
  const auto p = norm.params<NormParams>();
  const View& dx = norm[&NormBackward::dx];
  if ((p.op != NormOp::Layer && p.op != NormOp::Rms) || !dx.in_memory() || dx.dtype != kFloat32 ||
      norm[&NormBackward::x].dtype != kFloat32 || norm[&NormBackward::dy].dtype != kFloat32)
    return;
  using To = NormAddBackward;
  Call made = call_of<To>(norm, p);
  made[&To::dx] = dx, made[&To::dweight] = norm[&NormBackward::dweight], made[&To::dbias] = norm[&NormBackward::dbias];
  made[&To::dy] = norm[&NormBackward::dy], made[&To::x] = norm[&NormBackward::x];
  made[&To::weight] = norm[&NormBackward::weight], made[&To::mean] = norm[&NormBackward::mean];
  made[&To::rstd] = norm[&NormBackward::rstd];
  const int widened = widening(calls, at);
  if (widened >= 0) {
    made[&To::dy] = calls.call(widened)[&Copy::x];
    calls.change(at, [&](Call& call) { call[&NormBackward::dy] = made[&To::dy]; });  // for what may_move() sees
  }
  const auto [sum, add] = sum_of(calls, at);
  int place = at;
  if (sum >= 0) made[&To::add] = add, made[&To::dx] = calls.call(sum)[&Binary::out], place = sum;
  const int rounded = rounding(calls, at, place, made[&To::dx]);
  const bool alike =
      rounded >= 0 && (!is_half(made[&To::dy]) || made[&To::dy].dtype == calls.call(rounded)[&Copy::out].dtype);
  if (alike) made[&To::rounded] = calls.call(rounded)[&Copy::out];
  if (widened >= 0) calls.remove(widened);
  if (sum < 0 && !alike && widened < 0) return;
  if (alike) calls.remove(rounded);
  calls.remove(at);
  calls.replace(place, std::move(made));
}

}  // namespace

void join_norm_sums(Program& p) { rewrite(p, join_norm_sum); }

}  // namespace tapir::inline v0::ir
