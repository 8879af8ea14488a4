// Note [Prepared calls]
// What a program computes of weights alone (folded norms, casts, transposed copies) is the same in each replay until somebody writes to
// them. Such calls stand first, Program::prepared of them, and run when the version of a storage that they read has changed; blocks that
// later calls read of theirs are `kept`, outside of the arena.
#include <algorithm>

#include "../../core/fused.h"
#include "../program/refusals.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

/// Does the call give the same result for the same operands, and refuse none?
bool is_plain(const Call& call) {
  using namespace entry;
  if (is<Copy, Copies, Fill, Range, Unary, Binary, Ternary, Reduce, Matmul>(call)) return !may_refuse(call);
  if (!is<Fused>(call)) return false;
  const auto p = call.params<FusedParams>();
  return std::none_of(p.steps, p.steps + p.count, [](const FusedStep& s) { return s.kind == FusedKind::Keep; });
}

class Preparer {
 public:
  explicit Preparer(const Uses& uses) : uses_(uses) {
    for (int at = 0; at < uses.size(); ++at) first_.push_back(is_plain(uses.call(at)));
  }
  /// Which calls go first.
  std::vector<bool> run() {
    while (drop()) {}
    keep_what_weights_need();
    while (drop()) {}
    return first_;
  }

 private:
  bool may_go_first(int at) const;
  /// Takes out calls that cannot go first; were there any?
  bool drop() {
    bool dropped = false;
    for (int at = 0; at < uses_.size(); ++at)
      if (first_[size_t(at)] && !may_go_first(at)) first_[size_t(at)] = false, dropped = true;
    return dropped;
  }
  void keep_what_weights_need();

  const Uses& uses_;
  std::vector<bool> first_;
};

bool Preparer::may_go_first(int at) const {
  bool may = true;
  each_view(uses_.call(at), [&](const View& v, Access access) {
    const auto all = [&](auto&& f) { return std::all_of(uses_.of(v.block).begin(), uses_.of(v.block).end(), f); };
    const auto goes = [&](const Use& use) { return first_[size_t(use.call)]; };
    const Block::Kind kind = uses_.block(v.block).kind;
    if (access != Access::Read)  // a call that stays may not see a later value
      may = may && uses_.own(v) && all([&](const Use& use) { return goes(use) || (use.call > at && !use.writes); });
    else if (kind == Block::Kind::Constant) may = may && !uses_.is_written(v.block);
    else if (kind == Block::Kind::Outside) may = may && uses_.is_weight(v.block);
    else may = may && all([&](const Use& use) { return goes(use) || !use.writes; });
  });
  return may;
}

/// Calls of numbers alone stay where they are, unless a call of weights reads what they make.
void Preparer::keep_what_weights_need() {
  std::vector<bool> keep(first_.size());
  const auto is_kept = [&](int block) {
    return std::any_of(uses_.of(block).begin(), uses_.of(block).end(),
                       [&](const Use& use) { return keep[size_t(use.call)]; });
  };
  for (size_t at = 0; at < keep.size(); ++at)
    each_view(uses_.call(int(at)), [&](const View& v, Access) {
      if (first_[at] && (uses_.is_weight(v.block) || is_kept(v.block))) keep[at] = true;
    });
  for (bool more = true; std::exchange(more, false);)
    for (size_t at = keep.size(); at-- > 0;)
      each_view(uses_.call(int(at)), [&](const View& v, Access access) {
        if (first_[at] && !keep[at] && access != Access::Read && is_kept(v.block)) keep[at] = more = true;
      });
  first_ = std::move(keep);
}

}  // namespace

void prepare_calls(Program& p) {
  const Uses uses(p);
  const std::vector<bool> first = Preparer(uses).run();
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    bool made = false, used_later = false;
    for (const Use& use : uses.of(int(i)))
      if (first[size_t(use.call)]) made |= use.writes;
      else used_later = true;
    p.blocks[i].kept |= made && used_later;
  }
  std::vector<Call> calls, later;
  for (size_t at = 0; at < first.size(); ++at) (first[at] ? calls : later).push_back(std::move(p.calls[at]));
  p.prepared = int(calls.size());
  std::move(later.begin(), later.end(), std::back_inserter(calls));
  p.calls = std::move(calls);
  remake_lifetimes(p);
}

}  // namespace tapir::inline v0::ir
