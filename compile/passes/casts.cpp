// Note [Casts and layouts]
// Copies that only carry elements to another type or order are merged with their neighbours. A copy of a copy that nothing else reads
// reads the first one's operand, where no number changes by it: types that hold all numbers of the first one may stand between. And a
// product or attention whose result is copied into another order of the same elements, or into a part of a tensor (a gradient of chunk()),
// writes there at once; those kernels write aligned rows of any strides as fast, and who else reads the result takes any. On a GPU a product
// of 16 bits that is widened, as gradients of weights are under autocast, is written in float32: its sums are then rounded once instead of
// twice.
#include <optional>
#include <utility>

#include "../program/overlap.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Copy;

/// Does `to` hold every number of `from`?
bool holds(DType to, DType from) {
  if (to == from || (to == kFloat64 && is_floating(from))) return true;
  return to == kFloat32 && (from == kFloat16 || from == kBFloat16);
}

bool is_copy(const Call& call) {
  return is<Copy>(call) && call[&Copy::out].in_memory() && call[&Copy::x].in_memory() &&
         call[&Copy::out].shape == call[&Copy::x].shape;
}

/// c = copy(b) of b = copy(a): c = copy(a).
void merge_copy(Rewriter& calls, int at) {
  const Call& call = calls.call(at);
  if (!is_copy(call)) return;
  const View &c = call[&Copy::out], &read = call[&Copy::x];
  const Value middle = calls.read_by(at, read.block);
  if (!middle.whole || !middle.only_read_by(at) || c.block == read.block) return;
  const Call& before = calls.call(middle.maker);
  if (!is_copy(before) || before.device != call.device || before.modes != call.modes) return;
  const View &b = before[&Copy::out], &a = before[&Copy::x];
  if (!(b.dtype == c.dtype || holds(b.dtype, a.dtype))) return;
  const auto source = through(read, b, a);
  if (!source || a.block == c.block) return;
  if (source->dtype != c.dtype && !(source->strides == c.strides)) return;  // two steps are faster than both in one
  if (calls.overwritten(a, middle.maker, at)) return;
  calls.change(at, [&](Call& copy) { copy[&Copy::x] = *source; });
  calls.remove(middle.maker);
}

/// Call `copy` copies s, which call `maker` makes, to d, a part of a block: may d be written by then? On a GPU rows of 16 bits must begin at
/// multiples of 16 bytes: others are slower to write than to copy to.
bool is_free_part(const Uses& uses, int maker, int copy, const View& s, const View& d) {
  constexpr int64_t kUnit = 8;
  bool aligned = d.offset % kUnit == 0;
  for (int64_t i = 0; i < d.shape.size(); ++i)
    aligned &= d.shape[i] == 1 || d.strides[i] == 1 || d.strides[i] % kUnit == 0;
  if (d.device.is_cuda() && is_half(d) && !aligned) return false;
  return uses.block(d.block).kind == Block::Kind::Temporary && uses.of(s.block).size() == 2 &&
         !uses.used(d, maker, copy);
}

/// d = copy(s) of what a call makes: it makes d.
void fold_copy(Rewriter& calls, int at) {
  const Call& call = calls.call(at);
  if (!is_copy(call)) return;
  const View &d = call[&Copy::out], &s = call[&Copy::x];
  const int maker = calls.only_maker(s.block);
  if (maker < 0 || !calls.own(s) || d.dtype != s.dtype || !covers(s, calls.program())) return;
  const bool whole = calls.only_maker(d.block) == at;
  if (!whole && !is_free_part(calls, maker, at, s, d)) return;
  const Call& makes = calls.call(maker);
  if (makes.device != call.device || !(is<entry::AttentionBackward>(makes) ||
                                       (is<entry::Matmul, entry::Attention>(makes) && makes.result().block == s.block)))
    return;
  std::vector<std::pair<int, Call>> changed;
  for (const Use& use : calls.of(s.block)) {
    if (use.call == at) continue;
    Call& other = changed.emplace_back(use.call, calls.call(use.call)).second;
    bool fits = use.call == maker || is<entry::AttentionBackward>(other);
    each_view(other, [&](View& v, Access) {
      if (v.block != s.block) return;
      const auto there = through(v, s, d);
      fits &= there && (whole || !calls.conflict(maker, *there, Access::Write));
      v = there.value_or(v);
    });
    if (!fits) return;
  }
  calls.remove(at);
  for (auto& [user, made] : changed) calls.replace(user, std::move(made));
}

/// Where a copy that alone reads the values of call `at` at v puts them in float32, and the copy; an Absent view where none does.
std::pair<View, int> widened(const Uses& uses, int at, const View& v) {
  if (uses.only_maker(v.block) != at || !uses.own(v) || uses.of(v.block).size() != 2) return {};
  const int next = uses.of(v.block)[1].call;
  const Call& copy = uses.call(next);
  if (!is_copy(copy) || copy.device != uses.call(at).device || copy.modes != uses.call(at).modes) return {};
  const View &s = copy[&Copy::x], &d = copy[&Copy::out];
  if (s.block != v.block || d.dtype != kFloat32 || uses.only_maker(d.block) != next || !covers(s, uses.program()))
    return {};
  return {through(v, s, d).value_or(View()), next};
}

/// A product in 16 bits whose result, and whose sums of rows, are widened: it makes float32.
void widen_product(Rewriter& calls, int at) {
  using entry::Matmul;
  const Call& call = calls.call(at);
  if (!is<Matmul>(call) || !call.device.is_cuda()) return;
  const View &out = call[&Matmul::out], &aux = call[&Matmul::aux];
  const auto p = call.params<MatmulParams>();
  if (!is_half(out) || out.shape.size() != 2 || p.beta != 0 || p.finish != MatmulFinish::None ||
      call[&Matmul::bias].kind != View::Kind::Absent || !out.in_memory())
    return;
  const auto wide = widened(calls, at, out);
  const auto wide_aux = aux.in_memory() ? widened(calls, at, aux) : std::pair(View(), -1);
  if (!wide.first.in_memory() || (aux.in_memory() && !wide_aux.first.in_memory())) return;
  calls.change(at, [&](Call& product) { product[&Matmul::out] = wide.first, product[&Matmul::aux] = wide_aux.first; });
  calls.remove(wide.second);
  if (wide_aux.second >= 0) calls.remove(wide_aux.second);
}

}  // namespace

void merge_casts(Program& p) { rewrite(p, merge_copy); }
void widen_products(Program& p) { rewrite(p, widen_product); }
void fold_layouts(Program& p) { rewrite(p, fold_copy); }

}  // namespace tapir::inline v0::ir
