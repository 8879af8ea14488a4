// Note [Norms with relu]
// y = relu(norm(x) + add) is one call instead of two or three: what is normalised is added to and cut where it is written, so that the
// sums are never in memory. Its gradient is one call too. Where nothing was added it knows from x alone what the relu let through (the
// first call leaves the shift that it normalised with), and neither reads y nor writes what the relu makes of dy.
#include <map>
#include <optional>

#include "../program/overlap.h"
#include "../program/params.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Norm, entry::NormBackward, entry::NormRelu, entry::NormReluBackward, entry::Unary;

bool is_batch(const Call& call) { return call.params<NormParams>().op == NormOp::Batch; }
/// A half is rounded between the calls. A GPU's kernel does that too.
bool keeps_roundings(const Call& call, const View& v) {
  return call.device.is_cuda() || v.dtype == kFloat32 || v.dtype == kFloat64;
}
bool same_or_absent(const View& a, const View& b) {
  return a.kind == View::Kind::Absent ? b.kind == View::Kind::Absent : same_place(a, b);
}

/// Calls that become one at the place of the last.
struct Chain {
  int norm = -1, sum = -1, relu = -1;
  View add = {};
};
/// What they became, for their gradient.
struct Joined {
  int call;
  bool adds;
};

/// Is `result`, which call `next` makes of what `maker` left at v, all that others see of v?
bool ends_in(const Uses& uses, const View& v, int maker, int next, const View& result) {
  return same_place(v, result) || (uses.made_by(maker, v.block).only_read_by(next) && !overlap(v, result));
}

std::optional<Chain> chain_from(const Uses& uses, int norm) {
  const auto call = [&](int at) -> const Call& { return uses.call(at); };
  Chain c{.norm = norm};
  View v = call(norm)[&Norm::y];
  if (!keeps_roundings(call(norm), v) || v.block < 0 || !is_batch(call(norm)) || !backend(call(norm).device).norm_relu)
    return {};
  int maker = norm, next = uses.next(v.block, norm);
  if (next >= 0 && is_sum(call(next))) {
    const View &out = call(next)[&Binary::out], &a = call(next)[&Binary::a], &b = call(next)[&Binary::b];
    const View &added = same_place(a, v) ? b : a, &normed = same_place(a, v) ? a : b;
    if (!same_place(normed, v) || !added.in_memory() || !(added.shape == v.shape) || added.dtype != v.dtype ||
        overlap(added, v) || overlap(added, out) || out.dtype != v.dtype || !(out.shape == v.shape) ||
        !ends_in(uses, v, norm, next, out))
      return {};
    c.sum = maker = next, c.add = added, v = out;
    next = uses.next(v.block, maker);
  }
  if (next < 0 || !is_relu(call(next)) || !same_place(call(next)[&Unary::x], v)) return {};
  const View& y = call(next)[&Unary::out];
  if (y.dtype != v.dtype || y.block < 0 || !(y.shape == v.shape) || !ends_in(uses, v, maker, next, y)) return {};
  c.relu = next;
  const bool alike = call(next).modes == call(norm).modes && call(maker).modes == call(norm).modes;
  if (!alike || overlap(y, call(norm)[&Norm::x])) return {};
  const bool free = uses.may_move(norm, next, {c.sum}) && (c.sum < 0 || uses.may_move(c.sum, next));
  return free ? std::optional(c) : std::nullopt;
}

void join(Rewriter& calls, const Chain& c) {
  const Call norm = calls.call(c.norm);
  Call made = call_of<NormRelu>(norm, norm.params<NormParams>());
  made[&NormRelu::y] = calls.call(c.relu)[&Unary::out];
  made[&NormRelu::x] = norm[&Norm::x], made[&NormRelu::add] = c.add;
  made[&NormRelu::mean] = norm[&Norm::mean], made[&NormRelu::rstd] = norm[&Norm::rstd];
  made[&NormRelu::weight] = norm[&Norm::weight], made[&NormRelu::bias] = norm[&Norm::bias];
  made[&NormRelu::running_mean] = norm[&Norm::running_mean];
  made[&NormRelu::running_var] = norm[&Norm::running_var];
  calls.remove(c.norm);
  if (c.sum >= 0) calls.remove(c.sum);
  calls.replace(c.relu, std::move(made));
}

/// The relu's gradient that the norm's gradient, call `at`, reads and can be joined with; -1: there is none.
int relu_gradient(const Uses& uses, int at, const Joined& joined) {
  const Call &norm = uses.call(at), &forward = uses.call(joined.call);
  const View &v = norm[&NormBackward::dy], &made = forward[&NormRelu::y];
  const int relu = v.in_memory() ? uses.maker(at, v.block) : -1;
  if (relu <= joined.call || !norm[&NormBackward::mean].in_memory() || !is<Binary>(uses.call(relu)) ||
      uses.call(relu).params<BinaryParams>().op != BinaryOp::ReluGrad || uses.call(relu).modes != norm.modes)
    return -1;
  const View &g = uses.call(relu)[&Binary::out], &dy = uses.call(relu)[&Binary::a], &y = uses.call(relu)[&Binary::b];
  if (!same_place(g, v) || !same_place(y, made) || !dy.in_memory() || dy.dtype != v.dtype || !(dy.shape == v.shape) ||
      overlap(dy, g) || (joined.adds && uses.overwritten(made, joined.call, relu)))
    return -1;
  const std::pair<View, View> read[] = {// what both calls read must be the same values
                                        {norm[&NormBackward::x], forward[&NormRelu::x]},
                                        {norm[&NormBackward::mean], forward[&NormRelu::mean]},
                                        {norm[&NormBackward::rstd], forward[&NormRelu::rstd]},
                                        {norm[&NormBackward::weight], forward[&NormRelu::weight]}};
  for (const auto& [now, before] : read)
    if (!same_or_absent(now, before) || uses.overwritten(now, joined.call, at)) return -1;
  for (const auto written : {&NormBackward::dx, &NormBackward::dweight, &NormBackward::dbias})
    if (uses.conflict(relu, norm[written], Access::Write)) return -1;
  return uses.may_move(at, relu) ? relu : -1;
}

/// Where the forward call leaves its shift: a block that is made for it.
View shift_of(Rewriter& calls, const Joined& joined) {
  const View shift = calls.call(joined.call)[&NormRelu::shift], like = calls.call(joined.call)[&NormRelu::rstd];
  if (shift.kind == View::Kind::Memory) return shift;
  const View made = calls.temporary(like, like.shape, contiguous_strides(like.shape));
  calls.change(joined.call, [&](Call& forward) { forward[&NormRelu::shift] = made; });
  return made;
}

void join_gradient(Rewriter& calls, int at, const Joined& joined) {
  using To = NormReluBackward;
  const Call norm = calls.call(at);
  if (!is_batch(norm) || !backend(norm.device).norm_relu_backward) return;
  const int relu = relu_gradient(calls, at, joined);
  if (relu < 0) return;
  const View& g = norm[&NormBackward::dy];
  Call made = call_of<To>(norm, norm.params<NormParams>());
  made[&To::dx] = norm[&NormBackward::dx], made[&To::dweight] = norm[&NormBackward::dweight];
  made[&To::dbias] = norm[&NormBackward::dbias], made[&To::x] = norm[&NormBackward::x];
  made[&To::weight] = norm[&NormBackward::weight], made[&To::mean] = norm[&NormBackward::mean];
  made[&To::rstd] = norm[&NormBackward::rstd], made[&To::dy] = calls.call(relu)[&Binary::a];
  if (!calls.made_by(relu, g.block).only_read_by(at)) made[&To::dadd] = g;
  if (joined.adds) made[&To::y] = calls.call(joined.call)[&NormRelu::y];
  else made[&To::shift] = shift_of(calls, joined);
  calls.replace(relu, std::move(made));
  calls.remove(at);
}

}  // namespace

void join_norms(Program& p) {
  std::map<int, Joined> joined;  // by the block of the statistics
  rewrite(p, [&](Rewriter& calls, int at) {
    const Call& call = calls.call(at);
    if (is<NormBackward>(call)) {
      const auto found = joined.find(call[&NormBackward::rstd].block);
      if (found != joined.end()) join_gradient(calls, at, found->second);
    } else if (const auto chain = is<Norm>(call) ? chain_from(calls, at) : std::nullopt) {
      const View& rstd = call[&Norm::rstd];
      if (rstd.in_memory()) joined[rstd.block] = {chain->relu, chain->sum >= 0};
      join(calls, *chain);
    }
  });
}

}  // namespace tapir::inline v0::ir
