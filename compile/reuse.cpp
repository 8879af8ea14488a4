#include <string_view>

#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {

/// Entries whose kernels may write where they read, element by element.
static bool pointwise(std::string_view entry) {
  return entry == "unary" || entry == "binary" || entry == "ternary" || entry == "fused";
}

static bool same_place(const View& a, const View& b) {
  return a.offset == b.offset && a.shape == b.shape && a.strides == b.strides && a.dtype == b.dtype;
}

/// What the views of a pass's calls stand for now, and when blocks are named first and last.
struct Reuse {
  Program& p;
  std::vector<bool> fixed = fixed_blocks(p);
  std::vector<int> stands_for, first, last;

  explicit Reuse(Program& p) : p(p), first(p.blocks.size(), -1), last(p.blocks.size(), -1) {
    for (size_t i = 0; i < p.blocks.size(); ++i) stands_for.push_back(int(i));
    for (int at = 0; at < int(p.calls.size()); ++at)
      each_view(p.calls[size_t(at)], [&](const View& v, Access) {
        if (first[size_t(v.block)] < 0) first[size_t(v.block)] = at;
        last[size_t(v.block)] = at;
      });
  }
  bool own(int block) const { return p.blocks[size_t(block)].kind == Block::Kind::Temporary && !fixed[size_t(block)]; }
  /// May `out`, which call `at` makes, take over the block of `in`, which ends there?
  bool fits(const Call& call, int at, const View& out, const View& in) const {
    if (!own(in.block) || last[size_t(in.block)] != at || first[size_t(in.block)] == at || !same_place(in, out) ||
        p.blocks[size_t(in.block)].bytes != p.blocks[size_t(out.block)].bytes)
      return false;
    bool alone = true;
    each_view(call, [&](const View& v, Access access) {
      alone &= v.block != in.block || (access == Access::Read && same_place(v, in));
    });
    return alone;
  }
  void take_over(Call& call, int at) {
    each_view(call, [&](View& out, Access access) {
      if (access != Access::Write || !own(out.block) || first[size_t(out.block)] != at || !covers(out, p)) return;
      int taken = -1;
      each_view(call, [&](const View& in, Access a) {
        if (taken < 0 && a == Access::Read && in.block != out.block && fits(call, at, out, in)) taken = in.block;
      });
      if (taken < 0) return;
      stands_for[size_t(out.block)] = taken;
      last[size_t(taken)] = last[size_t(out.block)];
      out.block = taken;
    });
  }
};

void reuse_operands(Program& p) {
  Reuse reuse(p);
  for (int at = 0; at < int(p.calls.size()); ++at) {
    Call& call = p.calls[size_t(at)];
    each_view(call, [&](View& v, Access) { v.block = reuse.stands_for[size_t(v.block)]; });
    if (pointwise(call.entry)) reuse.take_over(call, at);
  }
}

}  // namespace tapir::inline v0::ir
