#include <algorithm>

#include "dependencies.h"
#include "fuse.h"
#include "overlap.h"
#include "params.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Matmul, entry::Unary;

bool is_plain_product(const Call& call) {
  if (!is<Matmul>(call)) return false;
  const auto p = call.params<MatmulParams>();
  return p.finish == MatmulFinish::None && p.beta == 0 && call[&Matmul::aux].kind == View::Kind::Absent &&
         (call[&Matmul::out].dtype == kFloat32 ||
          call[&Matmul::out].dtype == kFloat64);  // a half may round to -0 before the relu
}

/// Where the product of call `i` can write what call `j`, a relu, makes of it; an Absent view where it cannot.
View place_of_relu(const Program& p, int i, int j, const std::vector<std::vector<int>>& users) {
  const Call &product = p.calls[size_t(i)], &relu = p.calls[size_t(j)];
  const View& sums = product[&Matmul::out];
  const auto source = reshaped(relu[&Unary::x], sums.shape), y = reshaped(relu[&Unary::out], sums.shape);
  if (relu.deterministic != product.deterministic || !source || !y || !same_place(*source, sums) ||
      y->dtype != sums.dtype)
    return {};
  const Block& block = p.blocks[size_t(sums.block)];
  const bool in_place = same_place(*y, sums);
  if (!in_place && (block.kind != Block::Kind::Temporary || block.death < 0 || users[size_t(sums.block)].size() != 2))
    return {};  // somebody else wants the sums
  for (const View& v : p.outputs)
    if (!in_place && v.kind == View::Kind::Memory && v.block == sums.block) return {};
  if (writes_outside(relu, p) && !may_cross(p, i, j)) return {};
  for (int at = i; at < j; ++at) {
    bool free = true;
    each_view(p.calls[size_t(at)], [&](const View& v, Access access) {
      if (at > i || access == Access::Read) free &= !overlap(v, *y) && (at == i || !overlap(v, sums));
    });
    if (!free) return {};
  }
  return *y;
}

}  // namespace

void join_epilogues(Program& p) {
  const std::vector<std::vector<int>> users = users_of(p);
  std::vector<bool> dead(p.calls.size());
  for (int i = 0; i < int(p.calls.size()); ++i) {
    Call& product = p.calls[size_t(i)];
    if (!is_plain_product(product) || product[&Matmul::out].block < 0) continue;
    const std::vector<int>& list = users[size_t(product[&Matmul::out].block)];
    const auto next = std::find_if(list.begin(), list.end(), [&](int at) { return at > i; });
    if (next == list.end() || !is_relu(p.calls[size_t(*next)])) continue;
    const View y = place_of_relu(p, i, *next, users);
    if (y.kind != View::Kind::Memory) continue;
    auto params = product.params<MatmulParams>();
    params.finish = MatmulFinish::Relu;
    product[&Matmul::out] = y, set_params<Matmul>(product, params);
    dead[size_t(*next)] = true;
  }
  remove_calls(p, dead);
  remake_lifetimes(p);
}

}  // namespace tapir::inline v0::ir
