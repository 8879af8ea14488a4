// Note [Prepared calls]
// What a program computes of weights alone (folded norms, casts, transposed copies) is the same in each replay until somebody writes to
// them. Such calls stand first, Program::prepared of them, and run when the version of a storage that they read has changed; blocks that
// later calls read of theirs are `kept`, outside of the arena.
#include <algorithm>

#include "../core/fused.h"
#include "dependencies.h"
#include "passes.h"
#include "refusals.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

/// Does the call give the same result for the same operands, and refuse none?
bool is_plain(const Call& call) {
  using namespace entry;
  if (is<Copy, Fill, Range, Unary, Binary, Ternary, Reduce, Matmul>(call)) return !may_refuse(call);
  if (!is<Fused>(call)) return false;
  const auto p = call.params<FusedParams>();
  return std::none_of(p.steps, p.steps + p.count, [](const FusedStep& s) { return s.kind == FusedKind::Keep; });
}

class Preparer {
 public:
  explicit Preparer(Program& p) : p_(p), fixed_(fixed_blocks(p)), in_(p.calls.size()), writers_(p.blocks.size()) {
    for (int at = 0; at < int(p.calls.size()); ++at) {
      in_[size_t(at)] = is_plain(p.calls[size_t(at)]);
      each_view(p.calls[size_t(at)], [&](const View& v, Access access) {
        if (access != Access::Read) writers_[size_t(v.block)].push_back(at);
      });
    }
  }
  void run() {
    while (drop()) {}
    keep_what_weights_need();
    std::vector<bool> early(p_.blocks.size());
    for (size_t at = 0; at < in_.size(); ++at)
      if (in_[at])
        each_view(p_.calls[at], [&](const View& v, Access a) {
          if (a != Access::Read) early[size_t(v.block)] = true;
        });
    for (size_t at = 0; at < in_.size(); ++at)
      if (!in_[at])
        each_view(p_.calls[at], [&](const View& v, Access) {
          if (early[size_t(v.block)]) p_.blocks[size_t(v.block)].kept = true;
        });
    std::vector<Call> calls, later;
    for (size_t at = 0; at < in_.size(); ++at) (in_[at] ? calls : later).push_back(std::move(p_.calls[at]));
    p_.prepared = int(calls.size());
    std::move(later.begin(), later.end(), std::back_inserter(calls));
    p_.calls = std::move(calls);
    remake_lifetimes(p_);
  }

 private:
  bool is_weight(int block) const {
    return p_.blocks[size_t(block)].kind == Block::Kind::Outside && writers_[size_t(block)].empty() &&
           !fixed_[size_t(block)];
  }
  bool all_writers_in(int block) const {
    const auto& list = writers_[size_t(block)];
    return std::all_of(list.begin(), list.end(), [&](int at) { return in_[size_t(at)]; });
  }
  /// Takes out calls that cannot go first; were there any?
  bool drop();
  void keep_what_weights_need();

  Program& p_;
  const std::vector<bool> fixed_;
  std::vector<bool> in_;
  std::vector<std::vector<int>> writers_;
};

bool Preparer::drop() {
  bool dropped = false;
  std::vector<bool> read_later(p_.blocks.size());  // by a call that stays, and may not see a later value
  for (int at = 0; at < int(p_.calls.size()); ++at) {
    bool stays = !in_[size_t(at)];
    if (!stays)
      each_view(p_.calls[size_t(at)], [&](const View& v, Access access) {
        const Block& b = p_.blocks[size_t(v.block)];
        if (access != Access::Read)
          stays |= b.kind != Block::Kind::Temporary || b.death < 0 || fixed_[size_t(v.block)] ||
                   read_later[size_t(v.block)] || !all_writers_in(v.block);
        else
          stays |= !(is_weight(v.block) || (b.kind == Block::Kind::Constant && writers_[size_t(v.block)].empty()) ||
                     (b.kind == Block::Kind::Temporary && all_writers_in(v.block)));
      });
    if (stays && in_[size_t(at)]) in_[size_t(at)] = false, dropped = true;
    if (stays) each_view(p_.calls[size_t(at)], [&](const View& v, Access) { read_later[size_t(v.block)] = true; });
  }
  return dropped;
}

/// Calls of numbers alone stay where they are, unless a call of weights reads what they make.
void Preparer::keep_what_weights_need() {
  std::vector<bool> of_weights(p_.blocks.size()), needed(p_.blocks.size()), keep(in_.size());
  for (size_t at = 0; at < in_.size(); ++at) {
    if (!in_[at]) continue;
    bool reads = false;
    each_view(p_.calls[at], [&](const View& v, Access) { reads |= is_weight(v.block) || of_weights[size_t(v.block)]; });
    if (!reads) continue;
    keep[at] = true;
    each_view(p_.calls[at], [&](const View& v, Access) { of_weights[size_t(v.block)] = true; });
  }
  for (bool more = true; std::exchange(more, false);)
    for (size_t at = in_.size(); at-- > 0;) {
      if (!in_[at]) continue;
      bool wanted = keep[at];
      each_view(p_.calls[at], [&](const View& v, Access a) { wanted |= a != Access::Read && needed[size_t(v.block)]; });
      if (!wanted) continue;
      more |= !keep[at];
      keep[at] = true;
      each_view(p_.calls[at], [&](const View& v, Access) { needed[size_t(v.block)] = true; });
    }
  in_ = std::move(keep);
  while (drop()) {}
}

}  // namespace

void prepare_calls(Program& program) { Preparer(program).run(); }

}  // namespace tapir::inline v0::ir
