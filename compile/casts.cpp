// Note [Casts and layouts]
// Copies that only carry elements to another type or order are merged with their neighbours. A copy of a copy that nothing else reads
// reads the first one's operand, where no number changes by it: types that hold all numbers of the first one may stand between. And a
// product or attention whose result is copied into another order of the same elements writes that order at once; those kernels write
// any strides as fast, and who else reads the result takes any.
#include <algorithm>
#include <optional>
#include <utility>

#include "dependencies.h"
#include "overlap.h"
#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Copy;

/// Does `to` hold every number of `from`?
bool holds(DType to, DType from) {
  if (to == from || (to == kFloat64 && is_floating(from))) return true;
  return to == kFloat32 && (from == kFloat16 || from == kBFloat16);
}

/// The elements that `v` names as a view of another block, where `there` holds what `here` does, element by element. Nothing where that
/// takes more than an exchange of dimensions or another shape.
std::optional<View> through(const View& v, const View& here, const View& there) {
  if (v.dtype != here.dtype || v.offset != here.offset || numel_of(v.shape) != numel_of(here.shape)) return {};
  if (const auto same = reshaped(here, v.shape); same && same_place(*same, v)) return reshaped(there, v.shape);
  View out = there;
  bool taken[kMaxRank] = {};
  out.shape = v.shape, out.strides = Strides::filled(v.shape.size(), 1);
  for (int64_t d = 0; d < v.shape.size(); ++d) {
    if (v.shape[d] == 1) continue;
    int64_t from = -1;
    for (int64_t i = 0; i < here.shape.size(); ++i)
      if (here.shape[i] == v.shape[d] && here.strides[i] == v.strides[d]) from = i;
    if (from < 0 || std::exchange(taken[from], true)) return {};
    out.strides[d] = there.strides[from];
  }
  return out;
}

bool is_copy(const Call& call) {
  if (!is<Copy>(call)) return false;
  const View &out = call[&Copy::out], &x = call[&Copy::x];
  return out.kind == View::Kind::Memory && out.block >= 0 && x.kind == View::Kind::Memory && x.block >= 0 &&
         out.shape == x.shape;
}

class Copies {
 public:
  explicit Copies(Program& p)
      : p_(p), fixed_(fixed_blocks(p)), users_(p.blocks.size()), writers_(p.blocks.size()), dead_(p.calls.size()) {
    for (int at = 0; at < int(p.calls.size()); ++at)
      each_view(p.calls[size_t(at)], [&](const View& v, Access access) {
        users_[size_t(v.block)].push_back(at);
        if (access != Access::Read) writers_[size_t(v.block)].push_back(at);
      });
  }
  void merge() {
    for (int at = 0; at < int(p_.calls.size()); ++at)
      if (is_copy(p_.calls[size_t(at)])) merge_at(at);
  }
  void fold() {
    for (int at = 0; at < int(p_.calls.size()); ++at)
      if (is_copy(p_.calls[size_t(at)])) fold_at(at);
  }
  void finish() {
    remove_calls(p_, dead_);
    remake_lifetimes(p_);
  }

 private:
  void merge_at(int at);
  void fold_at(int at);
  /// The call that makes all of a temporary block, alone; -1: there is none.
  int maker(const View& v) const;

  Program& p_;
  std::vector<bool> fixed_;
  std::vector<std::vector<int>> users_, writers_;  // of each block; a call twice where it names it twice
  std::vector<bool> dead_;
};

int Copies::maker(const View& v) const {
  const size_t i = size_t(v.block);
  if (p_.blocks[i].kind != Block::Kind::Temporary || writers_[i].size() != 1 || users_[i][0] != writers_[i][0])
    return -1;
  const Operand& first = p_.calls[size_t(writers_[i][0])].operands[0];
  const bool makes = !first.views.empty() && first.views[0].block == v.block && first.access == Access::Write &&
                     covers(first.views[0], p_);
  return makes ? writers_[i][0] : -1;
}

/// c = copy(b) of b = copy(a): c = copy(a).
void Copies::merge_at(int at) {
  Call& call = p_.calls[size_t(at)];
  const View &c = call[&Copy::out], &read = call[&Copy::x];
  const size_t middle = size_t(read.block);
  const int first = maker(read);
  if (first < 0 || fixed_[middle] || p_.blocks[middle].death < 0 || users_[middle].size() != 2) return;
  const Call& before = p_.calls[size_t(first)];
  if (!is_copy(before) || before.device != call.device) return;
  const View &b = before[&Copy::out], &a = before[&Copy::x];
  if (!(b.dtype == c.dtype || holds(b.dtype, a.dtype))) return;
  const auto source = through(read, b, a);
  if (!source || a.block == c.block) return;
  if (source->dtype != c.dtype && !(source->strides == c.strides)) return;  // two steps are faster than both in one
  for (int w : writers_[size_t(a.block)])
    if (w > first && w < at) return;
  users_[size_t(a.block)].push_back(at);
  call[&Copy::x] = *source;
  dead_[size_t(first)] = true;
}

/// d = copy(s) of what a call makes: it makes d.
void Copies::fold_at(int at) {
  const Call& call = p_.calls[size_t(at)];
  const View &d = call[&Copy::out], &read = call[&Copy::x];
  const size_t source = size_t(read.block);
  const int first = maker(read);
  if (first < 0 || fixed_[source] || p_.blocks[source].death < 0 || maker(d) != at || d.dtype != read.dtype) return;
  const Call& makes = p_.calls[size_t(first)];
  if (!is<entry::Matmul, entry::Attention>(makes) || !covers(read, p_) || makes.device != call.device) return;
  for (int user : users_[source])
    if (user != at && user != first && !is<entry::AttentionBackward>(p_.calls[size_t(user)])) return;
  const auto each_other = [&](auto&& f) {
    for (int user : users_[source])
      if (user != at)
        each_view(p_.calls[size_t(user)], [&](View& v, Access) {
          if (size_t(v.block) == source) f(v);
        });
  };
  bool all = true;
  each_other([&](const View& v) { all &= through(v, read, d).has_value(); });
  if (!all) return;
  const View from = read, to = d;
  for (int user : users_[source])
    if (user != at) users_[size_t(to.block)].push_back(user);
  each_other([&](View& v) { v = *through(v, from, to); });
  writers_[size_t(to.block)] = {first};
  std::sort(users_[size_t(to.block)].begin(), users_[size_t(to.block)].end());
  dead_[size_t(at)] = true;
}

}  // namespace

void merge_casts(Program& p) {
  Copies copies(p);
  copies.merge();
  copies.finish();
}

void fold_layouts(Program& p) {
  Copies copies(p);
  copies.fold();
  copies.finish();
}

}  // namespace tapir::inline v0::ir
