// Note [Norms with relu]
// y = relu(norm(x) + add) is one call instead of two or three: what is normalised is added to and cut where it is written, so that the
// sums are never in memory. Its gradient is one call too. Where nothing was added it knows from x alone what the relu let through (the
// first call leaves the shift that it normalised with), and neither reads y nor writes what the relu makes of dy.
#include <map>

#include "dependencies.h"
#include "overlap.h"
#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

bool is_batch(const Call& call) { return call.params<NormParams>().op == NormOp::Batch; }
bool is_sum(const Call& call) {
  if (!is(call, "binary")) return false;
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
  View v = call(norm).view(0);
  if (!is_wide(v) || v.block < 0 || !is_batch(call(norm)) || !backend(call(norm).device).norm_relu) return {};
  int writer = norm, next = next_user(v.block, norm);
  if (next >= 0 && is_sum(call(next))) {
    const View &out = call(next).view(0), &a = call(next).view(1), &b = call(next).view(2);
    const View& other = same_place(a, v) ? b : a;
    if (!same_place(&other == &b ? a : b, v) || other.kind != View::Kind::Memory || other.block < 0 ||
        !(other.shape == v.shape) || other.dtype != v.dtype || overlap(other, v) || overlap(other, out) ||
        out.dtype != v.dtype || !(out.shape == v.shape) || !ends_in(v, norm, next, out))
      return {};
    c.sum = writer = next, c.add = other, v = out;
    next = next_user(v.block, writer);
  }
  if (next < 0 || !is_relu(call(next)) || !same_place(call(next).view(1), v)) return {};
  const View& y = call(next).view(0);
  if (y.dtype != v.dtype || y.block < 0 || !(y.shape == v.shape) || !ends_in(v, writer, next, y)) return {};
  c.relu = next;
  const bool deterministic = call(norm).deterministic;
  if (call(next).deterministic != deterministic || overlap(y, call(norm).view(3))) return {};
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
  const View y = call(c.relu).view(0);
  Call made{.entry = "norm_relu", .device = norm.device, .deterministic = norm.deterministic, .site = norm.site};
  made.operands = norm.operands;
  made.operands[0].views[0] = y;
  made.operands.insert(made.operands.begin() + 3, Operand{.access = Access::Write, .views = {View()}});
  made.operands.insert(made.operands.end() - 1, Operand{.views = {c.add}});
  done_[norm.view(2).kind == View::Kind::Memory ? norm.view(2).block : -1] = Done{c.relu, norm.view(3), y, c.sum >= 0};
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
  if (writer < 0 || dead_[size_t(writer)] || moved_[size_t(writer)] || !is(call(writer), "binary")) return -1;
  const Call& grad = call(writer);
  const View &g = grad.view(0), &dy = grad.view(1), &y = grad.view(2);
  const bool fits = grad.params<BinaryParams>().op == BinaryOp::ReluGrad && same_place(g, v) && same_place(y, done.y) &&
                    dy.kind == View::Kind::Memory && dy.block >= 0 && dy.dtype == v.dtype && dy.shape == v.shape &&
                    !overlap(dy, g) && grad.deterministic == call(at).deterministic;
  return fits ? writer : -1;
}

/// Call `at`, a norm's gradient, can be made at `to`; and what the forward call left is still there.
bool Norms::may_move_back(int at, int to, bool with_y, const Done& done) const {
  const Call& norm = call(at);
  if (writes_outside(norm, p_) && !may_cross(p_, to, at)) return false;
  for (int i : {0, 1, 2})
    for (int k : {0, 1, 2})
      if (overlap(norm.view(size_t(i)), call(to).view(size_t(k)))) return false;
  for (int between = done.call + 1; between < at; ++between) {
    if (dead_[size_t(between)]) continue;
    bool free = true;
    each_view(call(between), [&](const View& v, Access access) {
      for (size_t i = 0; i < 8; ++i) {
        const bool written = i < 3;
        if (i == 3 || (access == Access::Read && !written) || (written && between < to)) continue;
        free &= !overlap(v, norm.view(i));
      }
      if (with_y && access != Access::Read && between < to) free &= !overlap(v, done.y);
    });
    if (!free) return false;
  }
  return true;
}

/// Where the forward call leaves its shift: a block that is made for it.
View Norms::shift_of(const Done& done) {
  View& shift = p_.calls[size_t(done.call)].operands[3].views[0];
  if (shift.kind == View::Kind::Memory) return shift;
  shift = call(done.call).view(2);  // like rstd
  shift.offset = 0, shift.block = int(p_.blocks.size()), shift.strides = 1;
  p_.blocks.push_back({.bytes = numel_of(shift.shape) * size_of(shift.dtype), .device = shift.device, .death = 0});
  return shift;
}

void Norms::join_gradient(int at) {
  const Call norm = call(at);
  const View& g = norm.view(3);
  if (!is_batch(norm) || norm.view(7).kind != View::Kind::Memory || g.kind != View::Kind::Memory || g.block < 0) return;
  const auto found = done_.find(norm.view(7).block);
  if (found == done_.end() || !backend(norm.device).norm_relu_backward) return;
  const Done& done = found->second;
  const Call& forward = call(done.call);
  if (!same_place(norm.view(4), done.x) || !same_place(norm.view(7), forward.view(2)) ||
      !same_place(norm.view(6), forward.view(1)) || !same_or_absent(norm.view(5), forward.view(5)))
    return;
  const int relu = relu_gradient(g, at, done);
  if (relu <= done.call || !may_move_back(at, relu, done.adds, done)) return;
  const Block& block = p_.blocks[size_t(g.block)];
  const bool wanted = block.kind != Block::Kind::Temporary || block.death < 0 || fixed_[size_t(g.block)] ||
                      next_user(g.block, relu) != at || next_user(g.block, at) >= 0;
  Call made{.entry = "norm_relu_backward", .device = norm.device, .deterministic = norm.deterministic};
  made.site = norm.site;
  const auto add = [&](Access access, const View& v) { made.operands.push_back({.access = access, .views = {v}}); };
  for (size_t i : {0, 1, 2}) add(Access::Write, norm.view(i));
  add(Access::Write, wanted ? g : View());
  add(Access::Read, call(relu).view(1)), add(Access::Read, norm.view(4));
  add(Access::Read, done.adds ? done.y : View());
  add(Access::Read, done.adds ? View() : shift_of(done));
  for (size_t i : {5, 6, 7}) add(Access::Read, norm.view(i));
  made.operands.push_back(norm.operands.back());
  p_.calls[size_t(relu)] = std::move(made);
  moved_[size_t(relu)] = dead_[size_t(at)] = true;
}

void Norms::run() {
  for (int at = 0; at < int(p_.calls.size()); ++at) {
    if (dead_[size_t(at)]) continue;
    if (is(call(at), "norm")) {
      const auto chain = chain_from(at);
      if (chain && !moved_[size_t(chain->relu)] && may_move(*chain)) join(*chain);
    } else if (is(call(at), "norm_backward")) join_gradient(at);
  }
  remove_calls(p_, dead_);
  remake_lifetimes(p_);
}

}  // namespace

void join_norms(Program& p) { Norms(p).run(); }

}  // namespace tapir::inline v0::ir
