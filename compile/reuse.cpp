#include <string_view>

#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {

/// Entries whose kernels may write where they read, element by element.
static bool pointwise(std::string_view entry) { return entry == "unary" || entry == "binary" || entry == "ternary"; }

static bool same_place(const View& a, const View& b) {
  return a.offset == b.offset && a.shape == b.shape && a.strides == b.strides && a.dtype == b.dtype;
}

void reuse_operands(Program& p) {
  const std::vector<bool> fixed = fixed_blocks(p);
  std::vector<int> stands_for(p.blocks.size()), first(p.blocks.size(), -1), last(p.blocks.size(), -1);
  for (int at = 0; at < int(p.calls.size()); ++at)
    each_view(p.calls[size_t(at)], [&](const View& v, Access) {
      if (first[size_t(v.block)] < 0) first[size_t(v.block)] = at;
      last[size_t(v.block)] = at;
    });
  for (size_t i = 0; i < stands_for.size(); ++i) stands_for[i] = int(i);
  const auto own = [&](int block) {
    return p.blocks[size_t(block)].kind == Block::Kind::Temporary && !fixed[size_t(block)];
  };
  for (int at = 0; at < int(p.calls.size()); ++at) {
    Call& call = p.calls[size_t(at)];
    each_view(call, [&](View& v, Access) { v.block = stands_for[size_t(v.block)]; });
    if (!pointwise(call.entry)) continue;
    View& out = call.operands[0].views[0];
    if (out.block < 0 || !own(out.block) || first[size_t(out.block)] != at || !covers(out, p)) continue;
    for (size_t i = 1; i < call.operands.size(); ++i) {
      if (call.operands[i].kind != TraceArg::Kind::View) continue;
      const View& in = call.operands[i].views[0];
      if (in.kind != View::Kind::Memory || in.block < 0 || !own(in.block) || last[size_t(in.block)] != at) continue;
      bool alone = same_place(in, out) && p.blocks[size_t(in.block)].bytes == p.blocks[size_t(out.block)].bytes;
      each_view(call, [&](const View& v, Access) { alone &= v.block != in.block || same_place(v, in); });
      if (!alone) continue;
      const int gone = out.block;
      stands_for[size_t(gone)] = in.block;
      last[size_t(in.block)] = last[size_t(gone)];
      out.block = in.block;
      break;
    }
  }
}

}  // namespace tapir::inline v0::ir
