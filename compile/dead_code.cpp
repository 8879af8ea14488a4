#include <algorithm>

#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {

void remove_dead_code(Program& p) {
  std::vector<bool> live = fixed_blocks(p);
  for (size_t i = 0; i < live.size(); ++i)
    if (p.blocks[i].kind == Block::Kind::Outside) live[i] = true;
  std::vector<bool> needed(p.calls.size());
  const std::vector<bool> always = live;
  for (size_t at = p.calls.size(); at-- > 0;) {
    const Call& call = p.calls[at];
    each_view(call, [&](const View& v, Access access) {
      if (access != Access::Read && live[size_t(v.block)]) needed[at] = true;
    });
    if (!needed[at]) continue;
    each_view(call, [&](const View& v, Access access) {  // what it overwrites, nobody needs before
      if (access == Access::Write && !always[size_t(v.block)] && covers(v, p)) live[size_t(v.block)] = false;
    });
    each_view(call, [&](const View& v, Access access) {
      if (access != Access::Write) live[size_t(v.block)] = true;
    });
  }
  needed.flip();
  remove_calls(p, needed);
}

}  // namespace tapir::inline v0::ir
