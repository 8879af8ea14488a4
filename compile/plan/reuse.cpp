#include <optional>

#include "../passes/passes.h"
#include "../program/overlap.h"
#include "../program/uses.h"

namespace tapir::inline v0::ir {

/// Entries whose kernels may write where they read, element by element.
static bool may_write_in_place(const Call& call) {
  return is<entry::Unary, entry::Binary, entry::Ternary, entry::Fused, entry::NormAddBackward>(call);
}
/// Of those operands: of a norm's gradient only dx what is added to it.
static bool may_write_over(const Call& call, const View& out, const View& in) {
  using entry::NormAddBackward;
  return !is<NormAddBackward>(call) || (same(out, call[&NormAddBackward::dx]) && same(in, call[&NormAddBackward::add]));
}

/// May `out`, which call `at` makes, take over the block of `in`, which ends there?
static bool fits(const Uses& uses, int at, const View& out, const View& in) {
  if (in.block == out.block || !uses.own(in) || uses.of(in.block).back().call != at ||
      uses.of(in.block)[0].call == at || !same_form(in, out) ||
      uses.block(in.block).bytes != uses.block(out.block).bytes)
    return false;
  bool alone = true;
  each_view(uses.call(at), [&](const View& v, Access access) {
    alone &= v.block != in.block || (access == Access::Read && same_place(v, in));
  });
  return alone;
}

/// A block that call `at` makes, and the one that it can take over.
static std::optional<std::pair<int, int>> find(const Uses& uses, int at) {
  std::optional<std::pair<int, int>> found;
  each_view(uses.call(at), [&](const View& out, Access access) {
    if (access != Access::Write || !uses.own(out) || uses.of(out.block)[0].call != at || !covers(out, uses.program()))
      return;
    each_view(uses.call(at), [&](const View& in, Access how) {
      if (!found && how == Access::Read && may_write_over(uses.call(at), out, in) && fits(uses, at, out, in))
        found = {out.block, in.block};
    });
  });
  return found;
}

void reuse_operands(Program& p) {
  rewrite(p, [](Rewriter& calls, int at) {
    if (may_write_in_place(calls.call(at)))
      while (const auto found = find(calls, at)) calls.rename(found->first, found->second);
  });
}

}  // namespace tapir::inline v0::ir
