#pragma once
// Walks over a program's operands, for its passes.
#include "program.h"

namespace tapir::inline v0::ir {

/// f(view, access) for every view that lies in a block; for a mutable call the view may be changed.
template <class C, class F> void each_view(C& call, F&& f) {
  for (auto& o : call.operands)
    for (auto& v : o.views)
      if (v.kind == View::Kind::Memory && v.block >= 0) f(v, o.access);
}
inline bool is_relu(const Call& call) {
  return is<entry::Unary>(call) && call.params<UnaryParams>().op == UnaryOp::Relu;
}
inline void remove_calls(Program& p, const std::vector<bool>& dead) {
  size_t at = 0;
  std::erase_if(p.calls, [&](const Call&) { return dead[at++]; });
}
/// How often each block is named as read or updated, and as written or updated.
struct Uses {
  std::vector<int> reads, writes;
  explicit Uses(const Program& p) : reads(p.blocks.size()), writes(p.blocks.size()) {
    for (const Call& call : p.calls)
      each_view(call, [&](const View& v, Access access) {
        if (access != Access::Write) ++reads[size_t(v.block)];
        if (access != Access::Read) ++writes[size_t(v.block)];
      });
  }
};
/// The calls that name each block, in order.
inline std::vector<std::vector<int>> users_of(const Program& p) {
  std::vector<std::vector<int>> users(p.blocks.size());
  for (int at = 0; at < int(p.calls.size()); ++at)
    each_view(p.calls[size_t(at)], [&](const View& v, Access) {
      std::vector<int>& list = users[size_t(v.block)];
      if (list.empty() || list.back() != at) list.push_back(at);
    });
  return users;
}
/// Blocks that are not the program's to rename: inputs and outputs.
inline std::vector<bool> fixed_blocks(const Program& p) {
  std::vector<bool> fixed(p.blocks.size());
  for (const auto* list : {&p.inputs, &p.outputs})
    for (const View& v : *list)
      if (v.kind == View::Kind::Memory && v.block >= 0) fixed[size_t(v.block)] = true;
  return fixed;
}
/// Does the view name every byte of its block?
inline bool covers(const View& v, const Program& p) {
  return v.offset == 0 && is_dense(v.shape, v.strides) &&
         numel_of(v.shape) * size_of(v.dtype) >= p.blocks[size_t(v.block)].bytes;
}

}  // namespace tapir::inline v0::ir
