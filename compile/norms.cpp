// Note [Norms with relu]
// y = relu(norm(x) + add) is one call instead of two or three: what is normalised is added to and cut where it is written, so that the
// sums are never in memory. Its gradient is one call too. Where nothing was added it knows from x alone what the relu let through (the
// first call leaves the shift that it normalised with), and neither reads y nor writes what the relu makes of dy.
#include <map>
#include <optional>

#include "overlap.h"
#include "params.h"
#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Norm, entry::NormBackward, entry::NormRelu, entry::NormReluBackward, entry::Unary;

bool is_batch(const Call& call) { return call.params<NormParams>().op == NormOp::Batch; }
/// A half may be rounded between the two.
bool is_wide(const View& v) { return v.dtype == kFloat32 || v.dtype == kFloat64; }
bool same_or_absent(const View& a, const View& b) {
  return a.kind == View::Kind::Absent ? b.kind == View::Kind::Absent : same_place(a, b);
}

/// What a norm with its relu became, for their gradient.
struct Joined {
  int call;
  bool adds;
};

class Norms {
 public:
  explicit Norms(Program& p) : calls_(p) {}
  void run();

 private:
  struct Chain {  // calls that become one at the place of the last
    int norm = -1, sum = -1, relu = -1;
    View add = {};
  };
  const Call& call(int at) const { return calls_.call(at); }
  /// Is `result`, which call `next` makes of what `maker` left at v, all that others see of v?
  bool ends_in(const View& v, int maker, int next, const View& result) const {
    return same_place(v, result) || (calls_.made_by(maker, v.block).only_read_by(next) && !overlap(v, result));
  }
  std::optional<Chain> chain_from(int norm) const;
  void join(const Chain& c);
  int relu_gradient(int at, const Joined& joined) const;
  void join_gradient(int at);
  View shift_of(const Joined& joined);

  Rewriter calls_;
  std::map<int, Joined> joined_;  // by the block of the statistics
};

std::optional<Norms::Chain> Norms::chain_from(int norm) const {
  Chain c{.norm = norm};
  View v = call(norm)[&Norm::y];
  if (!is_wide(v) || v.block < 0 || !is_batch(call(norm)) || !backend(call(norm).device).norm_relu) return {};
  int maker = norm, next = calls_.next(v.block, norm);
  if (next >= 0 && is_sum(call(next))) {
    const View &out = call(next)[&Binary::out], &a = call(next)[&Binary::a], &b = call(next)[&Binary::b];
    const View &added = same_place(a, v) ? b : a, &normed = same_place(a, v) ? a : b;
    if (!same_place(normed, v) || !added.in_memory() || !(added.shape == v.shape) || added.dtype != v.dtype ||
        overlap(added, v) || overlap(added, out) || out.dtype != v.dtype || !(out.shape == v.shape) ||
        !ends_in(v, norm, next, out))
      return {};
    c.sum = maker = next, c.add = added, v = out;
    next = calls_.next(v.block, maker);
  }
  if (next < 0 || !is_relu(call(next)) || !same_place(call(next)[&Unary::x], v)) return {};
  const View& y = call(next)[&Unary::out];
  if (y.dtype != v.dtype || y.block < 0 || !(y.shape == v.shape) || !ends_in(v, maker, next, y)) return {};
  c.relu = next;
  if (call(next).deterministic != call(norm).deterministic || overlap(y, call(norm)[&Norm::x])) return {};
  const bool free = calls_.may_move(norm, next, {c.sum}) && (c.sum < 0 || calls_.may_move(c.sum, next));
  return free ? std::optional(c) : std::nullopt;
}

void Norms::join(const Chain& c) {
  const Call norm = call(c.norm);
  Call made = call_of<NormRelu>(norm, norm.params<NormParams>());
  made[&NormRelu::y] = call(c.relu)[&Unary::out], made[&NormRelu::add] = c.add, made[&NormRelu::x] = norm[&Norm::x];
  made[&NormRelu::mean] = norm[&Norm::mean], made[&NormRelu::rstd] = norm[&Norm::rstd];
  made[&NormRelu::weight] = norm[&Norm::weight], made[&NormRelu::bias] = norm[&Norm::bias];
  made[&NormRelu::running_mean] = norm[&Norm::running_mean];
  made[&NormRelu::running_var] = norm[&Norm::running_var];
  if (norm[&Norm::rstd].in_memory()) joined_[norm[&Norm::rstd].block] = {c.relu, c.sum >= 0};
  calls_.remove(c.norm);
  if (c.sum >= 0) calls_.remove(c.sum);
  calls_.replace(c.relu, std::move(made));
}

/// The relu's gradient that the norm's gradient, call `at`, reads and can be joined with; -1: there is none.
int Norms::relu_gradient(int at, const Joined& joined) const {
  const Call &norm = call(at), &forward = call(joined.call);
  const View &v = norm[&NormBackward::dy], &made = forward[&NormRelu::y];
  const int relu = v.in_memory() ? calls_.maker(at, v.block) : -1;
  if (relu <= joined.call || !norm[&NormBackward::mean].in_memory() || !is<Binary>(call(relu)) ||
      call(relu).params<BinaryParams>().op != BinaryOp::ReluGrad || call(relu).deterministic != norm.deterministic)
    return -1;
  const View &g = call(relu)[&Binary::out], &dy = call(relu)[&Binary::a], &y = call(relu)[&Binary::b];
  if (!same_place(g, v) || !same_place(y, made) || !dy.in_memory() || dy.dtype != v.dtype || !(dy.shape == v.shape) ||
      overlap(dy, g) || (joined.adds && calls_.overwritten(made, joined.call, relu)))
    return -1;
  const std::pair<View, View> read[] = {// what both calls read must be the same values
                                        {norm[&NormBackward::x], forward[&NormRelu::x]},
                                        {norm[&NormBackward::mean], forward[&NormRelu::mean]},
                                        {norm[&NormBackward::rstd], forward[&NormRelu::rstd]},
                                        {norm[&NormBackward::weight], forward[&NormRelu::weight]}};
  for (const auto& [now, before] : read)
    if (!same_or_absent(now, before) || calls_.overwritten(now, joined.call, at)) return -1;
  for (const auto written : {&NormBackward::dx, &NormBackward::dweight, &NormBackward::dbias})
    if (calls_.conflict(relu, norm[written], Access::Write)) return -1;
  return calls_.may_move(at, relu) ? relu : -1;
}

/// Where the forward call leaves its shift: a block that is made for it.
View Norms::shift_of(const Joined& joined) {
  const View shift = call(joined.call)[&NormRelu::shift], like = call(joined.call)[&NormRelu::rstd];
  if (shift.kind == View::Kind::Memory) return shift;
  const View made = calls_.temporary(like, like.shape, contiguous_strides(like.shape));
  calls_.change(joined.call, [&](Call& forward) { forward[&NormRelu::shift] = made; });
  return made;
}

void Norms::join_gradient(int at) {
  const Call norm = call(at);
  const View &g = norm[&NormBackward::dy], &rstd = norm[&NormBackward::rstd];
  const auto found = is_batch(norm) && rstd.in_memory() ? joined_.find(rstd.block) : joined_.end();
  if (found == joined_.end() || !backend(norm.device).norm_relu_backward) return;
  const Joined& joined = found->second;
  const int relu = relu_gradient(at, joined);
  if (relu < 0) return;
  using To = NormReluBackward;
  Call made = call_of<To>(norm, norm.params<NormParams>());
  made[&To::dx] = norm[&NormBackward::dx], made[&To::dweight] = norm[&NormBackward::dweight];
  made[&To::dbias] = norm[&NormBackward::dbias], made[&To::x] = norm[&NormBackward::x];
  made[&To::weight] = norm[&NormBackward::weight], made[&To::mean] = norm[&NormBackward::mean];
  made[&To::rstd] = rstd, made[&To::dy] = call(relu)[&Binary::a];
  if (!calls_.made_by(relu, g.block).only_read_by(at)) made[&To::dadd] = g;
  if (joined.adds) made[&To::y] = call(joined.call)[&NormRelu::y];
  else made[&To::shift] = shift_of(joined);
  calls_.replace(relu, std::move(made));
  calls_.remove(at);
}

void Norms::run() {
  for (int at = 0; at < calls_.size(); ++at) {
    if (is<NormBackward>(call(at))) join_gradient(at);
    else if (!is<Norm>(call(at))) continue;
    else if (const auto chain = chain_from(at)) join(*chain);
  }
  calls_.finish();
}

}  // namespace

void join_norms(Program& p) { Norms(p).run(); }

}  // namespace tapir::inline v0::ir
