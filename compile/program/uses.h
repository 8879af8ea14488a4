#pragma once
// Note [Values and places]
// Operands of a program name places, blocks and views of them; passes think of values: what a block holds from one write to the next. A
// write that covers its block makes a new value; any other write, and an update, takes the value that is there and makes the next one. Uses
// is the table of both: who made a value, who reads it, what overwrites its place, and which calls may change their order. Rewriter
// keeps the table right while a pass replaces calls.
// Note [Moving calls]
// A call depends on the earlier ones that write what it reads (or writes), or read what it writes: exactly where their views overlap.
// Calls that may refuse a value (an index out of range) keep their order among each other, and calls that write outside theirs to those: a
// replay that ends there has told what eager code tells, and left outside what eager code leaves.
#include <algorithm>
#include <initializer_list>
#include <limits>
#include <vector>

#include "program.h"

namespace tapir::inline v0::ir {

/// f(view, access) for every view that lies in a block; for a mutable call the view may be changed.
template <class C, class F> void each_view(C& call, F&& f) {
  for (auto& o : call.operands)
    for (auto& v : o.views)
      if (v.in_memory()) f(v, o.access);
}
/// The blocks that a call names, each once.
inline std::vector<int> blocks_of(const Call& call) {
  std::vector<int> blocks;
  each_view(call, [&](const View& v, Access) {
    if (std::find(blocks.begin(), blocks.end(), v.block) == blocks.end()) blocks.push_back(v.block);
  });
  return blocks;
}
inline bool is_relu(const Call& call) {
  return is<entry::Unary>(call) && call.params<UnaryParams>().op == UnaryOp::Relu;
}
inline bool is_sum(const Call& call) {
  if (!is<entry::Binary>(call)) return false;
  const auto p = call.params<BinaryParams>();
  return p.op == BinaryOp::Add && p.alpha.to_double() == 1;
}
inline bool is_half(const View& v) { return v.dtype == kFloat16 || v.dtype == kBFloat16; }
/// Does the view name every byte of its block?
bool covers(const View& v, const Program& p);
/// Blocks that are not the program's to rename: inputs and outputs, gradients among them.
std::vector<bool> fixed_blocks(const Program& p);
/// The calls that name a block first and last; last -1: none does.
struct Life {
  int first = std::numeric_limits<int>::max(), last = -1;
};
std::vector<Life> lives_of(const Program& program);
/// Births and deaths of temporary blocks by the calls that name them; one that no call names is left without bytes.
void remake_lifetimes(Program& program);

/// How one call uses a block, all its operands together.
struct Use {
  int call;
  bool reads = false, writes = false;
  bool whole = false;  // it writes all of the block
  /// Does it need the value that it finds?
  bool takes() const { return reads || !whole; }
};

struct Value {
  int maker = -1;            // the call; -1: it was there before the program
  bool whole = false;        // nothing of the value before is left in it
  bool seen = false;         // by somebody outside the program
  std::vector<int> readers;  // calls that read it, or write over a part of it, in order
  bool only_read_by(int call) const { return !seen && readers.size() == 1 && readers[0] == call; }
};

class Uses {
 public:
  explicit Uses(const Program& program);
  int size() const { return int(program_.calls.size()); }
  const Call& call(int at) const { return program_.calls[size_t(at)]; }
  const Program& program() const { return program_; }
  const Block& block(int i) const { return program_.blocks[size_t(i)]; }
  /// The calls that use the block, in order.
  const std::vector<Use>& of(int block) const { return uses_[size_t(block)]; }
  /// The first of them that is call `from` or a later one.
  std::vector<Use>::const_iterator since(int block, int from) const;
  /// The first call behind call `after` that uses the block; -1: none.
  int next(int block, int after) const;
  bool is_written(int block) const;
  bool is_fixed(int block) const { return fixed_[size_t(block)]; }
  /// Is what the block holds seen by somebody else: before, after or beside the program?
  bool is_seen(int i) const { return block(i).kind == Block::Kind::Outside || block(i).death < 0 || is_fixed(i); }
  /// Does the program make the block, for itself alone?
  bool own(int i) const { return block(i).kind == Block::Kind::Temporary && !is_seen(i); }
  bool own(const View& v) const { return v.in_memory() && own(v.block); }
  /// Memory from outside that stays where it is, and that no call writes to?
  bool is_weight(int i) const {
    const Block& b = block(i);
    return b.kind == Block::Kind::Outside && !b.borrowed && !is_written(i) && !is_fixed(i);
  }

  /// The call that made the value which the block has before a call; -1: it was there before the program.
  int maker(int call, int block) const;
  Value read_by(int call, int block) const { return made_by(maker(call, block), block); }
  /// The value that a call leaves in the block.
  Value made_by(int call, int block) const;
  /// The call that makes all of a temporary block, and no other writes to it; -1: there is none.
  int only_maker(int block) const;

  /// Does the call read, or write, where the view lies?
  bool reads(int at, const View& v) const;
  bool writes(int at, const View& v) const;
  /// Must a call that uses v so keep its order with call `at`?
  bool conflict(int at, const View& v, Access access) const {
    return writes(at, v) || (access != Access::Read && reads(at, v));
  }
  /// Does a call behind `first` and before `last` write where the view lies?
  bool overwritten(const View& v, int first, int last) const { return in_between(v, Access::Read, first, last); }
  /// Does a call between the two read or write there?
  bool used(const View& v, int first, int last) const { return in_between(v, Access::Write, first, last); }
  /// Does the call write to memory that was there before?
  bool writes_outside(int at) const;
  /// Can call `at` run next to call `to`, past all that are between the two? Those of `with` do not count: they become one with it.
  bool may_move(int at, int to, std::initializer_list<int> with = {}) const;
  /// For each call of [first, last), the earlier ones of that range it depends on directly; what follows from others may be left out.
  std::vector<std::vector<int>> dependencies(int first, int last) const;

 protected:
  void add(int at);
  bool in_between(const View& v, Access access, int first, int last, std::initializer_list<int> with = {}) const;

  const Program& program_;
  std::vector<std::vector<Use>> uses_;  // of each block
  std::vector<bool> fixed_;
};

class Rewriter : public Uses {
 public:
  explicit Rewriter(Program& program) : Uses(program), p_(program) {}
  void replace(int at, Call call);
  /// It keeps its number, without operands, until finish().
  void remove(int at) { replace(at, Call()); }
  /// f(call) changes the call.
  template <class F> void change(int at, F&& f) {
    Call changed = call(at);
    f(changed);
    replace(at, std::move(changed));
  }
  /// All calls name block `to` where they named `from`.
  void rename(int from, int to);
  /// Calls behind these get other numbers. Takes a walk over the whole program.
  void insert(int before, std::vector<Call> calls);
  /// A new block for such elements, all of it.
  View temporary(const View& like, const Shape& shape, const Strides& strides);
  /// Removed calls go, lifetimes are made anew.
  void finish();

 private:
  Program& p_;
};

/// pattern(calls, at) for each call in order: what most passes are.
template <class F> void rewrite(Program& program, F&& pattern) {
  Rewriter calls(program);
  for (int at = 0; at < calls.size(); ++at) pattern(calls, at);
  calls.finish();
}

}  // namespace tapir::inline v0::ir
