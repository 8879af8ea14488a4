// Note [Norms with relu]
// y = relu(norm(x) + add) is one call instead of two or three: what is normalised is added to and cut where it is written, so that the
// sums are never in memory. Its gradient is one call too. Where nothing was added it knows from x alone what the relu let through (the
// first call leaves the shift that it normalised with), and neither reads y nor writes what the relu makes of dy.
#include <map>

#include "dependencies.h"
#include "overlap.h"
#include "params.h"
#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Norm, entry::NormBackward, entry::NormRelu, entry::NormReluBackward, entry::Unary;

bool is_batch(const Call& call) { return call.params<NormParams>().op == NormOp::Batch; }
bool is_sum(const Call& call) {
  if (!is<Binary>(call)) return false;
  const auto p = call.params<BinaryParams>();
  return p.op == BinaryOp::Add && p.alpha.to_double() == 1;
}
/// A half may be rounded between the two.
bool is_wide(const View& v) { return v.dtype == kFloat32 || v.dtype == kFloat64; }
bool same_or_absent(const View& a, const View& b) {
  return a.kind == View::Kind::Absent ? b.kind == View::Kind::Absent : same_place(a, b);
}

class Norms {
 public:
  explicit Norms(Program& p)
      : p_(p), users_(users_of(p)), fixed_(fixed_blocks(p)), dead_(p.calls.size()), moved_(p.calls.size()) {}
  void run();

 private:
  struct Chain {  // calls that become one at the place of the last
    int norm = -1, sum = -1, relu = -1;
    View add = {};
  };
  struct Done {
    int call;  // the new one
    View x, y;
    bool adds;
  };
  int next_user(int block, int after) const {
    for (int at : users_[size_t(block)])
      if (at > after) return at;
    return -1;
  }
  const Call& call(int at) const { return p_.calls[size_t(at)]; }
  /// Does call `next`, which reads v, leave nothing that others could see of it?
  bool ends_in(const View& v, int writer, int next, const View& result) const;
  std::optional<Chain> chain_from(int norm) const;
  bool may_move(const Chain& c) const;
  void join(const Chain& c);
  /// The last call before `at` that writes to v's block: the relu's gradient that made v; -1: something else did.
  int relu_gradient(const View& v, int at, const Done& done) const;
  bool may_move_back(int at, int to, bool with_y, const Done& done) const;
  void join_gradient(int at);
  View shift_of(const Done& done);

  Program& p_;
  std::vector<std::vector<int>> users_;
  std::vector<bool> fixed_, dead_, moved_;
  std::map<int, Done> done_;  // by the block of the statistics
};

bool Norms::ends_in(const View& v, int writer, int next, const View& result) const {
  if (same_place(v, result)) return true;
  const Block& b = p_.blocks[size_t(v.block)];
  return b.kind == Block::Kind::Temporary && b.death >= 0 && !fixed_[size_t(v.block)] && next_user(v.block, next) < 0 &&
         next_user(v.block, writer) == next && !overlap(v, result);
}

std::optional<Norms::Chain> Norms::chain_from(int norm) const {
  Chain c{.norm = norm};
  View v = call(norm)[&Norm::y];
  if (!is_wide(v) || v.block < 0 || !is_batch(call(norm)) || !backend(call(norm).device).norm_relu) return {};
  int writer = norm, next = next_user(v.block, norm);
  if (next >= 0 && is_sum(call(next))) {
    const View &out = call(next)[&Binary::out], &a = call(next)[&Binary::a], &b = call(next)[&Binary::b];
    const View& other = same_place(a, v) ? b : a;
    if (!same_place(&other == &b ? a : b, v) || other.kind != View::Kind::Memory || other.block < 0 ||
        !(other.shape == v.shape) || other.dtype != v.dtype || overlap(other, v) || overlap(other, out) ||
        out.dtype != v.dtype || !(out.shape == v.shape) || !ends_in(v, norm, next, out))
      return {};
    c.sum = writer = next, c.add = other, v = out;
    next = next_user(v.block, writer);
  }
  if (next < 0 || !is_relu(call(next)) || !same_place(call(next)[&Unary::x], v)) return {};
  const View& y = call(next)[&Unary::out];
  if (y.dtype != v.dtype || y.block < 0 || !(y.shape == v.shape) || !ends_in(v, writer, next, y)) return {};
  c.relu = next;
  const bool deterministic = call(norm).deterministic;
  if (call(next).deterministic != deterministic || overlap(y, call(norm)[&Norm::x])) return {};
  return c;
}

/// Nobody between the norm and the relu sees or changes what the norm uses.
bool Norms::may_move(const Chain& c) const {
  const Call& norm = call(c.norm);
  const bool outside = writes_outside(norm, p_) || (c.sum >= 0 && writes_outside(call(c.sum), p_));
  if (outside && !may_cross(p_, c.norm, c.relu)) return false;
  for (int at = c.norm + 1; at < c.relu; ++at) {
    if (at == c.sum || dead_[size_t(at)]) continue;
    bool free = true;
    each_view(call(at), [&](const View& v, Access access) {
      each_view(norm, [&](const View& own, Access how) {
        free &= (access == Access::Read && how == Access::Read) || !overlap(v, own);
      });
      if (access != Access::Read && at > c.sum && c.sum >= 0) free &= !overlap(v, c.add);
    });
    if (!free) return false;
  }
  return true;
}

void Norms::join(const Chain& c) {
  const Call& norm = call(c.norm);
  const View y = call(c.relu)[&Unary::out];
  Call made = call_of<NormRelu>(norm, norm.params<NormParams>());
  made[&NormRelu::y] = y, made[&NormRelu::add] = c.add, made[&NormRelu::x] = norm[&Norm::x];
  made[&NormRelu::mean] = norm[&Norm::mean], made[&NormRelu::rstd] = norm[&Norm::rstd];
  made[&NormRelu::weight] = norm[&Norm::weight], made[&NormRelu::bias] = norm[&Norm::bias];
  made[&NormRelu::running_mean] = norm[&Norm::running_mean];
  made[&NormRelu::running_var] = norm[&Norm::running_var];
  const View& rstd = norm[&Norm::rstd];
  done_[rstd.kind == View::Kind::Memory ? rstd.block : -1] = Done{c.relu, norm[&Norm::x], y, c.sum >= 0};
  dead_[size_t(c.norm)] = true;
  if (c.sum >= 0) dead_[size_t(c.sum)] = true;
  p_.calls[size_t(c.relu)] = std::move(made);
  moved_[size_t(c.relu)] = true;
}

int Norms::relu_gradient(const View& v, int at, const Done& done) const {
  int writer = -1;
  for (int user : users_[size_t(v.block)])
    if (user < at) {
      bool writes = false;
      each_view(call(user),
                [&](const View& own, Access access) { writes |= access != Access::Read && own.block == v.block; });
      if (writes) writer = user;
    }
  if (writer < 0 || dead_[size_t(writer)] || moved_[size_t(writer)] || !is<Binary>(call(writer))) return -1;
  const Call& grad = call(writer);
  const View &g = grad[&Binary::out], &dy = grad[&Binary::a], &y = grad[&Binary::b];
  const bool fits = grad.params<BinaryParams>().op == BinaryOp::ReluGrad && same_place(g, v) && same_place(y, done.y) &&
                    dy.kind == View::Kind::Memory && dy.block >= 0 && dy.dtype == v.dtype && dy.shape == v.shape &&
                    !overlap(dy, g) && grad.deterministic == call(at).deterministic;
  return fits ? writer : -1;
}

/// Call `at`, a norm's gradient, can be made at `to`; and what the forward call left is still there.
bool Norms::may_move_back(int at, int to, bool with_y, const Done& done) const {
  const Call& norm = call(at);
  if (writes_outside(norm, p_) && !may_cross(p_, to, at)) return false;
  for (const auto written : {&NormBackward::dx, &NormBackward::dweight, &NormBackward::dbias}) {
    const Call& relu = call(to);
    for (const View& v : {relu[&Binary::out], relu[&Binary::a], relu[&Binary::b]})
      if (overlap(norm[written], v)) return false;
  }
  for (int between = done.call + 1; between < at; ++between) {
    if (dead_[size_t(between)]) continue;
    bool free = true;
    each_view(call(between), [&](const View& v, Access access) {
      each_view(norm, [&](const View& own, Access how) {
        const bool written = how != Access::Read;
        if (&own == &norm[&NormBackward::dy] || (access == Access::Read && !written) || (written && between < to))
          return;
        free &= !overlap(v, own);
      });
      if (with_y && access != Access::Read && between < to) free &= !overlap(v, done.y);
    });
    if (!free) return false;
  }
  return true;
}

/// Where the forward call leaves its shift: a block that is made for it.
View Norms::shift_of(const Done& done) {
  View& shift = p_.calls[size_t(done.call)][&NormRelu::shift];
  if (shift.kind == View::Kind::Memory) return shift;
  shift = call(done.call)[&NormRelu::rstd];
  shift.offset = 0, shift.block = int(p_.blocks.size()), shift.strides = 1;
  p_.blocks.push_back({.bytes = numel_of(shift.shape) * size_of(shift.dtype), .device = shift.device, .death = 0});
  return shift;
}

void Norms::join_gradient(int at) {
  const Call norm = call(at);
  const View& g = norm[&NormBackward::dy];
  const View& rstd = norm[&NormBackward::rstd];
  if (!is_batch(norm) || rstd.kind != View::Kind::Memory || g.kind != View::Kind::Memory || g.block < 0) return;
  const auto found = done_.find(rstd.block);
  if (found == done_.end() || !backend(norm.device).norm_relu_backward) return;
  const Done& done = found->second;
  const Call& forward = call(done.call);
  if (!same_place(norm[&NormBackward::x], done.x) || !same_place(rstd, forward[&NormRelu::rstd]) ||
      !same_place(norm[&NormBackward::mean], forward[&NormRelu::mean]) ||
      !same_or_absent(norm[&NormBackward::weight], forward[&NormRelu::weight]))
    return;
  const int relu = relu_gradient(g, at, done);
  if (relu <= done.call || !may_move_back(at, relu, done.adds, done)) return;
  const Block& block = p_.blocks[size_t(g.block)];
  const bool wanted = block.kind != Block::Kind::Temporary || block.death < 0 || fixed_[size_t(g.block)] ||
                      next_user(g.block, relu) != at || next_user(g.block, at) >= 0;
  using To = NormReluBackward;
  Call made = call_of<To>(norm, norm.params<NormParams>());
  made[&To::dx] = norm[&NormBackward::dx], made[&To::dweight] = norm[&NormBackward::dweight];
  made[&To::dbias] = norm[&NormBackward::dbias], made[&To::x] = norm[&NormBackward::x];
  made[&To::weight] = norm[&NormBackward::weight], made[&To::mean] = norm[&NormBackward::mean];
  made[&To::rstd] = rstd, made[&To::dy] = call(relu)[&Binary::a];
  if (wanted) made[&To::dadd] = g;
  if (done.adds) made[&To::y] = done.y;
  else made[&To::shift] = shift_of(done);
  p_.calls[size_t(relu)] = std::move(made);
  moved_[size_t(relu)] = dead_[size_t(at)] = true;
}

void Norms::run() {
  for (int at = 0; at < int(p_.calls.size()); ++at) {
    if (dead_[size_t(at)]) continue;
    if (is<Norm>(call(at))) {
      const auto chain = chain_from(at);
      if (chain && !moved_[size_t(chain->relu)] && may_move(*chain)) join(*chain);
    } else if (is<NormBackward>(call(at))) join_gradient(at);
  }
  remove_calls(p_, dead_);
  remake_lifetimes(p_);
}

}  // namespace

void join_norms(Program& p) { Norms(p).run(); }

}  // namespace tapir::inline v0::ir
