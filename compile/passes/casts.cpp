// Note [Casts and layouts]
// Copies that only carry elements to another type or order are merged with their neighbours. A copy of a copy that nothing else reads
// reads the first one's operand, where no number changes by it: types that hold all numbers of the first one may stand between. And a
// product or attention whose result is copied into another order of the same elements writes that order at once; those kernels write
// any strides as fast, and who else reads the result takes any.
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

/// The elements that `v` names as a view of another block, where `there` holds what `here` does, element by element. Nothing where that
/// takes more than an exchange of dimensions or another shape.
std::optional<View> through(const View& v, const View& here, const View& there) {
  if (v.dtype != here.dtype || v.offset != here.offset || numel_of(v.shape) != numel_of(here.shape)) return {};
  if (const auto same = reshaped(here, v.shape); same && same_place(*same, v)) return reshaped(there, v.shape);
  View out = there;
  bool taken[kMaxRank] = {};
  out.shape = v.shape, out.strides = Strides::filled(v.shape.size(), 1);
  for (int64_t d = 0; d < v.shape.size(); ++d) {
    if (v.shape[d] == 1) continue;
    int64_t from = -1;
    for (int64_t i = 0; i < here.shape.size(); ++i)
      if (here.shape[i] == v.shape[d] && here.strides[i] == v.strides[d]) from = i;
    if (from < 0 || std::exchange(taken[from], true)) return {};
    out.strides[d] = there.strides[from];
  }
  return out;
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

/// d = copy(s) of what a call makes: it makes d.
void fold_copy(Rewriter& calls, int at) {
  const Call& call = calls.call(at);
  if (!is_copy(call)) return;
  const View &d = call[&Copy::out], &s = call[&Copy::x];
  const int maker = calls.only_maker(s.block);
  if (maker < 0 || !calls.own(s) || calls.only_maker(d.block) != at || d.dtype != s.dtype ||
      !covers(s, calls.program()))
    return;
  const Call& makes = calls.call(maker);
  if (!is<entry::Matmul, entry::Attention>(makes) || makes.result().block != s.block || makes.device != call.device)
    return;
  std::vector<std::pair<int, Call>> changed;
  for (const Use& use : calls.of(s.block)) {
    if (use.call == at) continue;
    Call& other = changed.emplace_back(use.call, calls.call(use.call)).second;
    bool fits = use.call == maker || is<entry::AttentionBackward>(other);
    each_view(other, [&](View& v, Access) {
      if (v.block != s.block) return;
      const auto there = through(v, s, d);
      fits &= there.has_value();
      v = there.value_or(v);
    });
    if (!fits) return;
  }
  calls.remove(at);
  for (auto& [user, made] : changed) calls.replace(user, std::move(made));
}

}  // namespace

void merge_casts(Program& p) { rewrite(p, merge_copy); }
void fold_layouts(Program& p) { rewrite(p, fold_copy); }

}  // namespace tapir::inline v0::ir
