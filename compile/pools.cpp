// Note [Relus behind poolings]
// max(relu(x)) is relu(max(x)): where nothing but a max pooling, and their two gradients, read what a relu wrote, the relu goes behind the
// pooling, where there is a part of the elements. Of a window without positive elements another one is the largest then; its gradient
// is cut in both orders. (The sign of a zero may be another one.)
#include "dependencies.h"
#include "overlap.h"
#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Pool, entry::PoolBackward, entry::Unary;

bool is_relu_gradient(const Call& call) {
  return is<Binary>(call) && call.params<BinaryParams>().op == BinaryOp::ReluGrad;
}
bool is_max(const Call& call) { return call.params<PoolParams>().op == PoolOp::Max; }
/// Is there an element in every window? What lies in none is -inf, and a relu behind the pooling would make 0 of it. Padding is at most
/// half a window, so that only one with gaps can miss all elements.
bool has_full_windows(const Call& pool) {
  const auto p = pool.params<PoolParams>();
  for (int64_t d = 0; d < p.spatial; ++d)
    if (p.padding[d] > 0 && (p.dilation[d] > 1 || 2 * p.padding[d] > p.kernel[d])) return false;
  return true;
}

class Pools {
 public:
  explicit Pools(Program& p) : p_(p), users_(users_of(p)), fixed_(fixed_blocks(p)) {}
  void run();

 private:
  struct Found {
    int relu = -1, pool = -1, pool_gradient = -1, relu_gradient = -1;
  };
  const Call& call(int at) const { return p_.calls[size_t(at)]; }
  /// Made by the program, for nobody outside.
  bool is_own(const View& v) const {
    if (v.kind != View::Kind::Memory || v.block < 0) return false;
    const Block& b = p_.blocks[size_t(v.block)];
    return b.kind == Block::Kind::Temporary && b.death >= 0 && !fixed_[size_t(v.block)];
  }
  const std::vector<int>& users(const View& v) const { return users_[size_t(v.block)]; }
  bool find(int relu, Found& f) const;
  bool find_gradient(Found& f) const;
  bool written_between(const View& v, int first, int last) const;
  void sink(const Found& f);

  Program& p_;
  std::vector<std::vector<int>> users_;
  std::vector<bool> fixed_;
};

bool Pools::written_between(const View& v, int first, int last) const {
  bool written = false;
  for (int at = first + 1; at < last; ++at)
    each_view(call(at), [&](const View& own, Access access) { written |= access != Access::Read && overlap(own, v); });
  return written;
}

/// relu -> pool, and what reads what they wrote.
bool Pools::find(int relu, Found& f) const {
  const View &y = call(relu)[&Unary::out], &x = call(relu)[&Unary::x];
  if (!is_own(y) || x.block < 0 || y.dtype != x.dtype || !is_floating(y.dtype) || overlap(x, y)) return false;
  f.relu = relu;
  const std::vector<int>& list = users(y);
  if (list.size() < 2 || list.size() > 3 || list[0] != relu) return false;
  f.pool = list[1];
  const Call& pool = call(f.pool);
  if (!is<Pool>(pool) || !is_max(pool) || !has_full_windows(pool) || !same_place(pool[&Pool::x], y) ||
      pool.deterministic != call(relu).deterministic)
    return false;
  if (pool[&Pool::y].dtype != y.dtype || written_between(x, relu, f.pool)) return false;
  if (list.size() == 2) return pool[&Pool::indices].kind == View::Kind::Absent;
  f.relu_gradient = list[2];
  return find_gradient(f);
}

/// pool_backward -> the relu's gradient, with nobody else in between.
bool Pools::find_gradient(Found& f) const {
  const Call &pool = call(f.pool), &grad = call(f.relu_gradient);
  const View &pooled = pool[&Pool::y], &indices = pool[&Pool::indices];
  if (!is_relu_gradient(grad) || !same_place(grad[&Binary::b], call(f.relu)[&Unary::out]) || !is_own(indices))
    return false;
  const std::vector<int>& list = users(indices);
  if (list.size() != 2 || list[0] != f.pool) return false;
  f.pool_gradient = list[1];
  const Call& back = call(f.pool_gradient);
  if (!is<PoolBackward>(back) || !is_max(back) || f.pool_gradient > f.relu_gradient || pooled.block < 0) return false;
  const View &dx = back[&PoolBackward::dx], &dy = back[&PoolBackward::dy], &out = grad[&Binary::out];
  const bool passed_on = dx.block >= 0 && is_own(dx) && same_place(grad[&Binary::a], dx) &&
                         users(dx) == std::vector<int>{f.pool_gradient, f.relu_gradient} &&
                         (same_place(out, dx) || !overlap(out, dx));
  return passed_on && out.dtype == dx.dtype && dy.dtype == pooled.dtype && dy.shape == pooled.shape &&
         is_dense(pooled.shape, pooled.strides) && back.deterministic == grad.deterministic &&
         !written_between(pooled, f.pool, f.pool_gradient);
}

void Pools::sink(const Found& f) {
  Call relu = call(f.relu), pool = call(f.pool);
  pool[&Pool::x] = relu[&Unary::x];
  relu[&Unary::out] = relu[&Unary::x] = pool[&Pool::y];
  if (f.pool_gradient >= 0) {
    Call back = call(f.pool_gradient), grad = call(f.relu_gradient);
    back[&PoolBackward::dx] = grad[&Binary::out];
    View cut = pool[&Pool::y];  // in the pooled tensor's order, which the pooling's gradient takes best
    cut.offset = 0, cut.block = int(p_.blocks.size());
    p_.blocks.push_back({.bytes = numel_of(cut.shape) * size_of(cut.dtype), .device = cut.device, .death = 0});
    grad[&Binary::out] = cut, grad[&Binary::a] = back[&PoolBackward::dy];
    grad[&Binary::b] = pool[&Pool::y], back[&PoolBackward::dy] = cut;
    p_.calls[size_t(f.pool_gradient)] = std::move(grad), p_.calls[size_t(f.relu_gradient)] = std::move(back);
  }
  p_.calls[size_t(f.pool)] = std::move(pool);
  p_.calls.erase(p_.calls.begin() + f.relu);
  p_.calls.insert(p_.calls.begin() + f.pool, std::move(relu));  // behind the pooling, which has moved up
}

void Pools::run() {
  for (int at = 0; at < int(p_.calls.size()); ++at) {
    Found f;
    if (!is_relu(call(at)) || !find(at, f)) continue;
    sink(f);
    users_ = users_of(p_), fixed_.resize(p_.blocks.size());
    --at;
  }
  remake_lifetimes(p_);
}

}  // namespace

void sink_relus(Program& p) { Pools(p).run(); }

}  // namespace tapir::inline v0::ir
