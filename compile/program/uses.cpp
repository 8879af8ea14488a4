#include "uses.h"

#include <algorithm>

#include "overlap.h"
#include "refusals.h"

namespace tapir::inline v0::ir {

bool covers(const View& v, const Program& p) {
  return v.offset == 0 && is_dense(v.shape, v.strides) &&
         numel_of(v.shape) * size_of(v.dtype) >= p.blocks[size_t(v.block)].bytes;
}

std::vector<bool> fixed_blocks(const Program& p) {
  std::vector<bool> fixed(p.blocks.size());
  for (const auto* list : {&p.inputs, &p.outputs})
    for (const View& v : *list)
      if (v.in_memory()) fixed[size_t(v.block)] = true;
  return fixed;
}

std::vector<Life> lives_of(const Program& p) {
  std::vector<Life> lives(p.blocks.size());
  for (int at = 0; at < int(p.calls.size()); ++at)
    each_view(p.calls[size_t(at)], [&](const View& v, Access) {
      Life& life = lives[size_t(v.block)];
      life.first = std::min(life.first, at), life.last = std::max(life.last, at);
    });
  return lives;
}

void remake_lifetimes(Program& p) {
  const std::vector<Life> lives = lives_of(p);
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    Block& b = p.blocks[i];
    if (b.kind == Block::Kind::Outside) continue;
    b.birth = lives[i].last < 0 ? 0 : lives[i].first;
    if (b.death < 0) continue;
    b.death = lives[i].last + 1;
    if (lives[i].last < 0) b.bytes = 0, b.values.clear();
  }
}

Uses::Uses(const Program& program) : program_(program), uses_(program.blocks.size()), fixed_(fixed_blocks(program)) {
  for (int at = 0; at < size(); ++at) add(at);
}

void Uses::add(int at) {
  each_view(call(at), [&](const View& v, Access access) {
    std::vector<Use>& list = uses_[size_t(v.block)];
    auto use = list.begin() + (since(v.block, at) - list.begin());
    if (use == list.end() || use->call != at) use = list.insert(use, {at});
    use->reads |= access != Access::Write, use->writes |= access != Access::Read;
    use->whole |= access == Access::Write && covers(v, program_);
  });
}

std::vector<Use>::const_iterator Uses::since(int block, int from) const {
  return std::lower_bound(of(block).begin(), of(block).end(), from, [](const Use& u, int at) { return u.call < at; });
}

int Uses::next(int block, int after) const {
  const auto use = since(block, after + 1);
  return use == of(block).end() ? -1 : use->call;
}

bool Uses::is_written(int block) const {
  return std::any_of(of(block).begin(), of(block).end(), [](const Use& use) { return use.writes; });
}

int Uses::maker(int call, int block) const {
  for (auto use = since(block, call); use != of(block).begin();)
    if ((--use)->writes) return use->call;
  return -1;
}

Value Uses::made_by(int call, int block) const {
  Value value{.maker = call, .whole = false, .seen = is_seen(block), .readers = {}};
  auto use = since(block, call);
  if (use != of(block).end() && use->call == call) value.whole = !(use++)->takes();
  for (bool ends = false; use != of(block).end() && !ends; ++use) {
    if (use->takes()) value.readers.push_back(use->call);
    ends = use->writes;
  }
  return value;
}

int Uses::only_maker(int i) const {
  const std::vector<Use>& list = of(i);
  if (block(i).kind != Block::Kind::Temporary || list.empty() || list[0].takes()) return -1;
  const bool once = std::none_of(list.begin() + 1, list.end(), [](const Use& use) { return use.writes; });
  return once ? list[0].call : -1;
}

bool Uses::reads(int at, const View& v) const {
  bool found = false;
  each_view(call(at), [&](const View& other, Access how) { found |= how != Access::Write && overlap(v, other); });
  return found;
}
bool Uses::writes(int at, const View& v) const {
  bool found = false;
  each_view(call(at), [&](const View& other, Access how) { found |= how != Access::Read && overlap(v, other); });
  return found;
}

/// Is there a conflict with a call behind `first` and before `last`, those of `with` left out?
bool Uses::in_between(const View& v, Access access, int first, int last, std::initializer_list<int> with) const {
  if (!v.in_memory() || last <= first + 1) return false;
  return std::any_of(since(v.block, first + 1), since(v.block, last), [&](const Use& use) {
    return std::find(with.begin(), with.end(), use.call) == with.end() && (access != Access::Read || use.writes) &&
           conflict(use.call, v, access);
  });
}

bool Uses::writes_outside(int at) const {
  bool outside = false;
  each_view(call(at), [&](const View& v, Access access) {
    outside |= access != Access::Read && block(v.block).kind == Block::Kind::Outside;
  });
  return outside;
}

bool Uses::may_move(int at, int to, std::initializer_list<int> with) const {
  const int first = std::min(at, to), last = std::max(at, to);
  bool free = true;
  each_view(call(at), [&](const View& v, Access access) { free = free && !in_between(v, access, first, last, with); });
  const bool refuses = may_refuse(call(at)), outside = writes_outside(at);
  for (int other = first + 1; free && (refuses || outside) && other < last; ++other)
    free = !may_refuse(call(other)) && !(refuses && writes_outside(other));
  return free;
}

std::vector<std::vector<int>> Uses::dependencies(int first, int last) const {
  std::vector<std::vector<int>> direct(size_t(last - first));
  int refuses = -1;               // the last call that may refuse
  std::vector<int> left_outside;  // calls since then that write there
  for (int at = first; at < last; ++at) {
    std::vector<int>& on = direct[size_t(at - first)];
    each_view(call(at), [&](const View& v, Access access) {
      for (auto use = since(v.block, at); use != of(v.block).begin() && (--use)->call >= first;) {
        if (conflict(use->call, v, access)) on.push_back(use->call - first);
        if (use->whole) break;  // who replaces all of a block comes after all that used it before
      }
    });
    const bool may_end = may_refuse(call(at)), outside = writes_outside(at);
    if ((may_end || outside) && refuses >= 0) on.push_back(refuses);
    if (may_end) on.insert(on.end(), left_outside.begin(), left_outside.end());
    if (may_end) refuses = at - first, left_outside.clear();
    if (outside) left_outside.push_back(at - first);
    std::sort(on.begin(), on.end());
    on.erase(std::unique(on.begin(), on.end()), on.end());
  }
  return direct;
}

void Rewriter::replace(int at, Call changed) {
  for (const int block : blocks_of(call(at))) uses_[size_t(block)].erase(since(block, at));
  p_.calls[size_t(at)] = std::move(changed);
  add(at);
}

void Rewriter::rename(int from, int to) {
  const std::vector<Use> list = of(from);
  for (const Use& use : list)
    change(use.call,
           [&](Call& call) { each_view(call, [&](View& v, Access) { v.block = v.block == from ? to : v.block; }); });
}

void Rewriter::insert(int before, std::vector<Call> calls) {
  p_.calls.insert(p_.calls.begin() + before, std::make_move_iterator(calls.begin()),
                  std::make_move_iterator(calls.end()));
  for (auto& list : uses_) list.clear();
  for (int at = 0; at < size(); ++at) add(at);
}

View Rewriter::temporary(const View& like, const Shape& shape, const Strides& strides) {
  View v = like;
  v.block = int(p_.blocks.size()), v.offset = 0, v.shape = shape, v.strides = strides;
  p_.blocks.push_back({.bytes = numel_of(shape) * size_of(like.dtype), .device = like.device, .death = 0});
  uses_.emplace_back(), fixed_.push_back(false);
  return v;
}

void Rewriter::finish() {
  std::erase_if(p_.calls, [](const Call& call) { return call.operands.empty(); });
  remake_lifetimes(p_);
}

}  // namespace tapir::inline v0::ir
