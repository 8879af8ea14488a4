// Note [Padded gradients]
// The gradient of narrow() is a tensor of zeros with the slice's gradient copied in, and those of all slices are added up: what the
// gradient of split() and chunk() comes to. Where the slices are apart and leave no element out, each can be written to its place at
// once, without zeros and sums. It is written as x + 0, which is what the sums make of it: -0 becomes 0.
#include <cmath>
#include <map>

#include "dependencies.h"
#include "fuse.h"
#include "overlap.h"
#include "params.h"
#include "plan.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Copy, entry::Fill;

/// A block that holds zeros but for the slices that copies wrote.
struct Padded {
  View whole;
  std::vector<int> copies, others;  // `others`: fills and sums, of no use once the slices cover all
};

class Pads {
 public:
  explicit Pads(Program& p) : p_(p), lives_(lives_of(p)), dead_(p.calls.size()) {
    for (const View& v : p.outputs)
      if (v.block >= 0) lives_[size_t(v.block)].last = int(p.calls.size());
  }
  void run() {
    for (int at = 0; at < int(p_.calls.size()); ++at) {
      const Call& call = p_.calls[size_t(at)];
      if ((is<Fill>(call) && fill(at)) || (is<Copy>(call) && copy(at)) || (is<Binary>(call) && sum(at))) continue;
      each_view(call, [&](const View& v, Access) { padded_.erase(v.block); });
    }
    remove_calls(p_, dead_);
  }

 private:
  bool fill(int at);
  bool copy(int at);
  bool sum(int at);
  void write_slices(const Padded& pad, int block);
  const View& slice(int copy) const { return p_.calls[size_t(copy)][&Copy::out]; }

  Program& p_;
  std::vector<Life> lives_;
  std::vector<bool> dead_;
  std::map<int, Padded> padded_;
};

bool Pads::fill(int at) {
  const Call& call = p_.calls[size_t(at)];
  const View& out = call[&Fill::out];
  const Scalar value = call.params<Scalar>();
  if (out.block < 0 || p_.blocks[size_t(out.block)].kind != Block::Kind::Temporary || !covers(out, p_)) return false;
  if (value.to_bool() || std::signbit(value.to_double()) || lives_[size_t(out.block)].first != at) return false;
  padded_[out.block] = {out, {}, {at}};
  return true;
}

bool Pads::copy(int at) {
  const Call& call = p_.calls[size_t(at)];
  const View &out = call[&Copy::out], &x = call[&Copy::x];
  const auto found = padded_.find(out.block);
  if (found == padded_.end() || x.kind != View::Kind::Memory || x.dtype != out.dtype || padded_.contains(x.block))
    return false;
  for (int other : found->second.copies)
    if (overlap(slice(other), out)) return false;
  found->second.copies.push_back(at);
  return true;
}

/// r = a + b of two padded tensors of one form: r is padded with the slices of both.
bool Pads::sum(int at) {
  const Call& call = p_.calls[size_t(at)];
  const auto params = call.params<BinaryParams>();
  const View &r = call[&Binary::out], &a = call[&Binary::a], &b = call[&Binary::b];
  const auto x = padded_.find(a.block), y = padded_.find(b.block);
  if (params.op != BinaryOp::Add || params.alpha.to_double() != 1 || r.block < 0 || x == padded_.end() ||
      y == padded_.end() || x == y)
    return false;
  const auto as = [&](View v) {
    v.block = r.block;
    return v;
  };
  if (p_.blocks[size_t(r.block)].kind != Block::Kind::Temporary || !same_place(as(x->second.whole), r) ||
      !same_place(as(y->second.whole), r) || !same_place(as(a), r) || !same_place(as(b), r))
    return false;
  for (int block : {a.block, b.block})  // what is not the result ends here
    if (block != r.block && (lives_[size_t(block)].last != at || p_.blocks[size_t(block)].death < 0)) return false;
  if (r.block != a.block && r.block != b.block && lives_[size_t(r.block)].first != at) return false;
  Padded both{r, x->second.copies, x->second.others};
  for (int c : y->second.copies) {
    for (int d : x->second.copies)
      if (overlap(as(slice(c)), as(slice(d)))) return false;
    both.copies.push_back(c);
  }
  both.others.insert(both.others.end(), y->second.others.begin(), y->second.others.end());
  both.others.push_back(at);
  int64_t numel = 0;
  for (int c : both.copies) numel += numel_of(slice(c).shape);
  padded_.erase(a.block), padded_.erase(b.block);
  if (numel == numel_of(r.shape)) write_slices(both, r.block);
  else padded_[r.block] = std::move(both);
  return true;
}

void Pads::write_slices(const Padded& pad, int block) {
  for (int at : pad.others) dead_[size_t(at)] = true;
  for (int at : pad.copies) {
    Call& call = p_.calls[size_t(at)];
    Call sum = call_of<Binary>(call, BinaryParams{BinaryOp::Add});
    View &out = sum[&Binary::out] = call[&Copy::out], &zero = sum[&Binary::b];
    out.block = block, sum[&Binary::a] = call[&Copy::x];
    zero.kind = View::Kind::Number, zero.dtype = out.dtype, zero.device = out.device, zero.number = 0;
    call = std::move(sum);
  }
}

}  // namespace

void join_pads(Program& program) {
  Pads(program).run();
  remake_lifetimes(program);
}

}  // namespace tapir::inline v0::ir
