// Note [Copies at once]
// Under autocast a step begins with the rounding of each weight to 16 bits: two of them for each layer of a network, a launch each. Where
// a GPU runs them they become one call, which stands where the first of them stood; their results are in memory all at once then, as eager
// code's are. Weights that nobody trains have a call of their own: it is one of the prepared ones.
#include "../program/params.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Copies, entry::Copy;

/// A copy of memory from outside into another type, as it lies.
bool is_cast_from_outside(const Uses& uses, int at) {
  const Call& call = uses.call(at);
  if (!is<Copy>(call) || !call.device.is_cuda() || !backend(call.device).copies) return false;
  const View &out = call[&Copy::out], &x = call[&Copy::x];
  return out.in_memory() && x.in_memory() && out.dtype != x.dtype && out.shape == x.shape && x.device == out.device &&
         out.strides == x.strides && uses.block(x.block).kind == Block::Kind::Outside && uses.own(out) &&
         uses.only_maker(out.block) == at;
}

}  // namespace

/// Those of weights that no call writes to, or the others.
static void join_some(Rewriter& calls, bool weights) {
  std::vector<int> found;
  for (int at = 0; at < calls.size(); ++at) {
    if (!is_cast_from_outside(calls, at) || calls.is_weight(calls.call(at)[&Copy::x].block) != weights) continue;
    const Call &call = calls.call(at), &first = calls.call(found.empty() ? at : found[0]);
    if (call.modes == first.modes && call.device == first.device && (found.empty() || calls.may_move(at, found[0])))
      found.push_back(at);
  }
  if (found.size() < 2) return;
  std::vector<View> outs, xs;
  for (const int at : found) outs.push_back(calls.call(at)[&Copy::out]), xs.push_back(calls.call(at)[&Copy::x]);
  Call made = call_of<Copies>(calls.call(found[0]), NoParams(), &Copies::outs, outs, &Copies::xs, xs);
  for (const int at : found) calls.remove(at);
  calls.replace(found[0], std::move(made));
}

void join_copies(Program& p) {
  Rewriter calls(p);
  join_some(calls, true), join_some(calls, false);
  calls.finish();
}

}  // namespace tapir::inline v0::ir
