// Note [Relus behind poolings]
// max(relu(x)) is relu(max(x)): where nothing but a max pooling, and their two gradients, read what a relu wrote, the relu goes behind the
// pooling, where there is a part of the elements. Of a window without positive elements another one is the largest then; its gradient
// is cut in both orders. (The sign of a zero may be another one.)
#include "../program/overlap.h"
#include "../program/uses.h"
#include "passes.h"

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

/// A relu, the pooling behind it, and their gradients, where there are any.
struct Found {
  int relu = -1, pool = -1, pool_gradient = -1, relu_gradient = -1;
};

/// relu -> pool, and nobody else but their gradients reads what they write.
bool find_pool(const Uses& uses, Found& f) {
  const Call& relu = uses.call(f.relu);
  const View &y = relu[&Unary::out], &x = relu[&Unary::x];
  if (!x.in_memory() || !uses.own(y) || y.dtype != x.dtype || !is_floating(y.dtype) || overlap(x, y)) return false;
  const std::vector<int> readers = uses.made_by(f.relu, y.block).readers;
  if (uses.only_maker(y.block) != f.relu || readers.empty() || readers.size() > 2) return false;
  f.pool = readers[0];
  const Call& pool = uses.call(f.pool);
  if (!is<Pool>(pool) || !is_max(pool) || !has_full_windows(pool) || !same_place(pool[&Pool::x], y) ||
      pool.modes != relu.modes || pool[&Pool::y].dtype != y.dtype || uses.overwritten(x, f.relu, f.pool))
    return false;
  if (readers.size() == 2) f.relu_gradient = readers[1];
  return readers.size() == 2 || pool[&Pool::indices].kind == View::Kind::Absent;
}

/// pool_backward -> the relu's gradient, with nobody else in between.
bool find_gradient(const Uses& uses, Found& f) {
  const Call &pool = uses.call(f.pool), &grad = uses.call(f.relu_gradient);
  const View &pooled = pool[&Pool::y], &indices = pool[&Pool::indices];
  if (!is_relu_gradient(grad) || !same_place(grad[&Binary::b], pool[&Pool::x]) || !indices.in_memory() ||
      !pooled.in_memory())
    return false;
  f.pool_gradient = uses.next(indices.block, f.pool);
  if (uses.only_maker(indices.block) != f.pool || !uses.made_by(f.pool, indices.block).only_read_by(f.pool_gradient) ||
      f.pool_gradient > f.relu_gradient)
    return false;
  const Call& back = uses.call(f.pool_gradient);
  if (!is<PoolBackward>(back) || !is_max(back)) return false;
  const View &dx = back[&PoolBackward::dx], &dy = back[&PoolBackward::dy], &out = grad[&Binary::out];
  return dx.in_memory() && same_place(grad[&Binary::a], dx) && uses.only_maker(dx.block) == f.pool_gradient &&
         uses.made_by(f.pool_gradient, dx.block).only_read_by(f.relu_gradient) &&
         (same_place(out, dx) || !overlap(out, dx)) && out.dtype == dx.dtype && dy.dtype == pooled.dtype &&
         dy.shape == pooled.shape && is_dense(pooled.shape, pooled.strides) && back.modes == grad.modes &&
         pool.modes == back.modes && !uses.overwritten(pooled, f.pool, f.pool_gradient);
}

void sink(Rewriter& calls, const Found& f) {
  Call relu = calls.call(f.relu), pool = calls.call(f.pool);
  pool[&Pool::x] = relu[&Unary::x];
  const View pooled = relu[&Unary::out] = relu[&Unary::x] = pool[&Pool::y];
  if (f.pool_gradient >= 0) {
    Call back = calls.call(f.pool_gradient), grad = calls.call(f.relu_gradient);
    back[&PoolBackward::dx] = grad[&Binary::out], grad[&Binary::a] = back[&PoolBackward::dy];
    grad[&Binary::b] = pooled;  // and in its order, which the pooling's gradient takes best
    back[&PoolBackward::dy] = grad[&Binary::out] = calls.temporary(pooled, pooled.shape, pooled.strides);
    calls.replace(f.pool_gradient, std::move(grad)), calls.replace(f.relu_gradient, std::move(back));
  }
  calls.remove(f.relu), calls.replace(f.pool, std::move(pool));
  calls.insert(f.pool + 1, {std::move(relu)});
}

}  // namespace

void sink_relus(Program& p) {
  rewrite(p, [](Rewriter& calls, int at) {
    Found f{.relu = at};
    if (is_relu(calls.call(at)) && find_pool(calls, f) && (f.relu_gradient < 0 || find_gradient(calls, f)))
      sink(calls, f);
  });
}

}  // namespace tapir::inline v0::ir
