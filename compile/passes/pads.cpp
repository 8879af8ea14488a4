// Note [Padded gradients]
// The gradient of narrow() is a tensor of zeros with the slice's gradient copied in, and those of all slices are added up: what the
// gradient of split() and chunk() comes to. Where the slices are apart and leave no element out, each can be written to its place at
// once, without zeros and sums. It is written as x + 0, which is what the sums make of it: -0 becomes 0. On a GPU, what attention or a
// product alone makes of a slice is made in that place; a -0 stays there.
#include <algorithm>
#include <cmath>

#include "../program/overlap.h"
#include "../program/params.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Copy, entry::Fill;

/// Calls that make a tensor of zeros but for slices.
struct Padded {
  std::vector<int> slices;  // copies
  std::vector<int> others;  // fills and sums, of no use once the slices cover all
};

bool is_zero_fill(const Call& call) {
  if (!is<Fill>(call)) return false;
  const Scalar value = call.params<Scalar>();
  return !value.to_bool() && !std::signbit(value.to_double());
}

/// Adds the calls that made what call `at` reads at `v`; false: it is not padded, or somebody else reads it.
bool collect(const Uses& uses, int at, const View& v, Padded& pad);

/// The same of both operands of call `at`, a sum of all of a block.
bool collect_sum(const Uses& uses, int at, Padded& pad) {
  const Call& call = uses.call(at);
  const View &r = call[&Binary::out], &a = call[&Binary::a], &b = call[&Binary::b];
  pad.others.push_back(at);
  return a.block != b.block && same_form(a, r) && same_form(b, r) && covers(r, uses.program()) &&
         collect(uses, at, a, pad) && collect(uses, at, b, pad);
}

bool collect(const Uses& uses, int at, const View& v, Padded& pad) {
  while (v.in_memory()) {
    const Value value = uses.read_by(at, v.block);
    if (value.maker < 0 || !value.only_read_by(at)) return false;
    at = value.maker;
    const Call& call = uses.call(at);
    if (is_zero_fill(call) && value.whole) {
      pad.others.push_back(at);
      return same_form(call.result(), v);
    }
    if (is_sum(call) && same_form(call.result(), v)) return collect_sum(uses, at, pad);
    if (!is<Copy>(call) || call[&Copy::x].kind != View::Kind::Memory || call[&Copy::x].dtype != v.dtype ||
        call[&Copy::out].dtype != v.dtype)
      return false;
    pad.slices.push_back(at);
  }
  return false;
}

/// Are the slices apart, do they leave nothing out of `r`, and can they be written there?
bool cover(const Uses& uses, const Padded& pad, const View& r) {
  const auto slice = [&](int at) {
    View v = uses.call(at)[&Copy::out];
    v.block = r.block;
    return v;
  };
  int64_t numel = 0;
  for (size_t i = 0; i < pad.slices.size(); ++i) {
    numel += numel_of(slice(pad.slices[i]).shape);
    for (size_t k = 0; k < i; ++k)
      if (overlap(slice(pad.slices[i]), slice(pad.slices[k]))) return false;
  }
  const auto has = [](const std::vector<int>& list, int at) {
    return std::find(list.begin(), list.end(), at) != list.end();
  };
  const std::vector<Use>& list = uses.of(r.block);  // nobody may name the block before the sum
  return numel == numel_of(r.shape) && uses.block(r.block).kind == Block::Kind::Temporary &&
         std::all_of(list.begin(), list.end(), [&](const Use& use) {
           return use.call > pad.others[0] || has(pad.slices, use.call) || has(pad.others, use.call);
         });
}

/// The call that alone makes what `copy` reads, for nobody else, with its result at `place` instead; -1: there is none.
std::pair<int, Call> made_at(const Uses& uses, int copy, const View& place) {
  const View& x = uses.call(copy)[&Copy::x];
  const int maker = uses.only_maker(x.block);
  if (maker < 0 || !(x.shape == place.shape) || !uses.own(x) || uses.of(x.block).size() != 2 ||
      !covers(x, uses.program()))
    return {-1, {}};
  Call made = uses.call(maker);
  if (!made.device.is_cuda() || !is<entry::AttentionBackward, entry::Matmul>(made)) return {-1, {}};
  bool fits = true;
  each_view(made, [&](View& v, Access) {
    if (v.block != x.block) return;
    const auto there = through(v, x, place);
    fits &= there.has_value();
    v = there.value_or(v);
  });
  return {fits ? maker : -1, std::move(made)};
}

void join_pad(Rewriter& calls, int at) {
  Padded pad;
  if (!is_sum(calls.call(at)) || !collect_sum(calls, at, pad) || !cover(calls, pad, calls.call(at).result())) return;
  const View r = calls.call(at).result();
  for (const int slice : pad.slices) {
    const Call& copy = calls.call(slice);
    View place = copy[&Copy::out];
    place.block = r.block;
    if (auto [maker, made] = made_at(calls, slice, place); maker >= 0) {
      calls.replace(maker, std::move(made)), calls.remove(slice);
      continue;
    }
    calls.replace(slice, call_of<Binary>(copy, BinaryParams{BinaryOp::Add}, &Binary::out, place, &Binary::a,
                                         copy[&Copy::x], &Binary::b, number_like(r, 0)));
  }
  for (const int other : pad.others) calls.remove(other);
}

}  // namespace

void join_pads(Program& p) { rewrite(p, join_pad); }

}  // namespace tapir::inline v0::ir
