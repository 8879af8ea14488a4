#include <numeric>

#include "overlap.h"
#include "passes.h"
#include "plan.h"
#include "uses.h"

namespace tapir::inline v0::ir {

/// Entries whose kernels may write where they read, element by element.
static bool may_write_in_place(const Call& call) {
  return is<entry::Unary, entry::Binary, entry::Ternary, entry::Fused>(call);
}

/// What the views of a pass's calls stand for now, and when blocks are named first and last.
struct Reuse {
  Program& p;
  std::vector<bool> fixed = fixed_blocks(p);
  std::vector<Life> lives = lives_of(p);
  std::vector<int> stands_for;

  explicit Reuse(Program& p) : p(p), stands_for(p.blocks.size()) { std::iota(stands_for.begin(), stands_for.end(), 0); }
  bool own(int block) const { return p.blocks[size_t(block)].kind == Block::Kind::Temporary && !fixed[size_t(block)]; }
  /// May `out`, which call `at` makes, take over the block of `in`, which ends there?
  bool fits(const Call& call, int at, const View& out, const View& in) const {
    if (!own(in.block) || lives[size_t(in.block)].last != at || lives[size_t(in.block)].first == at ||
        !same_form(in, out) || p.blocks[size_t(in.block)].bytes != p.blocks[size_t(out.block)].bytes)
      return false;
    bool alone = true;
    each_view(call, [&](const View& v, Access access) {
      alone &= v.block != in.block || (access == Access::Read && same_place(v, in));
    });
    return alone;
  }
  void take_over(Call& call, int at) {
    each_view(call, [&](View& out, Access access) {
      if (access != Access::Write || !own(out.block) || lives[size_t(out.block)].first != at || !covers(out, p)) return;
      int taken = -1;
      each_view(call, [&](const View& in, Access a) {
        if (taken < 0 && a == Access::Read && in.block != out.block && fits(call, at, out, in)) taken = in.block;
      });
      if (taken < 0) return;
      stands_for[size_t(out.block)] = taken;
      lives[size_t(taken)].last = lives[size_t(out.block)].last;
      out.block = taken;
    });
  }
};

void reuse_operands(Program& p) {
  Reuse reuse(p);
  for (int at = 0; at < int(p.calls.size()); ++at) {
    Call& call = p.calls[size_t(at)];
    each_view(call, [&](View& v, Access) { v.block = reuse.stands_for[size_t(v.block)]; });
    if (may_write_in_place(call)) reuse.take_over(call, at);
  }
}

}  // namespace tapir::inline v0::ir
