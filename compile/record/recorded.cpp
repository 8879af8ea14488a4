#include "recorded.h"

#include <algorithm>

#include "../device/device_program.h"
#include "../program/uses.h"

namespace tapir::inline v0::ir {
Recorded keep(Program program, Notes notes) {
  Recorded r;
  r.moves.resize(program.blocks.size()), r.raised_input.resize(program.inputs.size());
  for (const auto* list : {&program.inputs, &program.outputs})
    for (const View& v : *list) {
      const int i = block_of(v);
      if (i >= 0 && (list == &program.inputs || program.blocks[size_t(i)].kind != Block::Kind::Outside))
        r.moves[size_t(i)] = true;
    }
  for (Notes::GradSlot& g : notes.grads) {
    r.shared_gradient |= g.holders > 0;
    for (const View* v : {&g.start, &g.end})
      if (const int i = block_of(*v);
          i >= 0 && (v == &g.start || program.blocks[size_t(i)].kind != Block::Kind::Outside))
        r.moves[size_t(i)] = true;
    // Passes must know of them as of inputs and outputs; they stand behind those that the function has.
    if (block_of(g.start) >= 0) program.inputs.push_back(g.start);
    if (block_of(g.end) >= 0) program.outputs.push_back(g.end);
    const bool outside = block_of(g.end) >= 0 && block_of(g.end) != block_of(g.start) &&
                         program.blocks[size_t(g.end.block)].kind == Block::Kind::Outside;
    r.grads.push_back(
        {WeakTensor(g.leaf), g.relevant, g.had, g.start, g.end, outside ? WeakTensor(g.leaf.grad()) : WeakTensor()});
  }
  for (const Tensor& leaf : notes.asked) r.asked.emplace_back(leaf);
  for (Notes::Object& o : notes.objects) {
    const void* const place = o.stamp->place;
    r.objects.push_back({std::move(o.stamp), place, 0, o.flag});
    r.objects.back().version = r.objects.back().stamp->version;
    r.left_otherwise |= r.objects.back().stamp->flag != o.flag;
  }
  place_constants(program);
  for (Notes::Seen& s : notes.storages) {
    r.left_otherwise |= s.storage->leaves != s.leaves;
    if (!r.moves[size_t(s.block)])
      r.storages.push_back({detail::Weak(s.storage.get()), s.block, s.raised, s.storage->handles.load(), s.leaves});
    for (size_t i = 0; i < r.raised_input.size(); ++i)
      if (block_of(program.inputs[i]) == s.block && program.blocks[size_t(s.block)].written)
        r.raised_input[i] = std::max({r.raised_input[i], s.raised, uint32_t(1)});
  }
  for (size_t i = 0; i < program.blocks.size(); ++i) {
    Block& b = program.blocks[i];
    const bool stays = b.kind == Block::Kind::Outside && !r.moves[i] && b.memory;
    r.roots.push_back(stays ? detail::Weak(b.memory.get()) : detail::Weak<Storage>());
    b.memory = {};
  }
  r.seed = notes.seed, r.offset = notes.offset, r.numbers = notes.numbers;
  r.program = std::move(program);
  return r;
}

bool Recorded::hold(Held& held) const {
  const auto lock = [&](const detail::Weak<Storage>& s) {
    return s.lock() && (held.storages.emplace_back(s.get()), true);
  };
  return std::all_of(storages.begin(), storages.end(), [&](const Seen& s) { return lock(s.storage); }) &&
         std::all_of(roots.begin(), roots.end(), [&](const auto& root) { return !root || lock(root); }) &&
         std::all_of(grads.begin(), grads.end(),
                     [&](const GradSlot& g) { return held.leaves.emplace_back(g.leaf.lock()).defined(); });
}

// ---- what cannot be replayed ----

/// Does a view of an input reach beyond the elements of the tensor that was passed?
static bool within(const View& v, const View& input) {
  const auto end = [](const View& x) {
    int64_t last = x.offset;
    for (int64_t d = 0; d < x.shape.size(); ++d) last += (x.shape[d] - 1) * x.strides[d];
    return (last + 1) * size_of(x.dtype);
  };
  return v.offset * size_of(v.dtype) >= input.offset * size_of(input.dtype) && end(v) <= end(input);
}

Reason text_of(const Call& call) { return {label_of(call), call.site}; }

static Reason strange_call(const Recorded& r, bool& permanent) {
  const Program& p = r.program;
  std::vector<const View*> input(p.blocks.size());
  for (const View& v : p.inputs)
    if (block_of(v) >= 0 && !input[size_t(v.block)]) input[size_t(v.block)] = &v;
  permanent = true;
  for (const Call& call : p.calls) {
    if (std::string why = foreign(call, p); !why.empty()) {
      permanent = false;  // the first step may make state of the host's numbers
      return {why, call.site};
    }
    for (const Operand& o : call.operands)
      for (const View& v : o.views)
        if (block_of(v) >= 0 && input[size_t(v.block)] && !within(v, *input[size_t(v.block)]))
          return text_of(call) + " reaches beyond the elements of an argument";
    bool outside = false;
    with_numbers(
        call, [&]<class>(const auto& drawn) { outside = drawn.seed != r.seed || drawn.offset - r.offset > r.numbers; });
    if (outside) return text_of(call) + " draws numbers that do not follow the generator's state";
  }
  return "";
}

Reason obstacle(const Recorded& r, const Notes& notes, bool graph, bool& permanent) {
  if (Reason why = strange_call(r, permanent); !why.empty()) return why;
  permanent = false;  // the first call may make what the later ones find
  if (!notes.unseen.empty())
    return notes.unseen +
           " is read, which no kernel wrote: what code outside of the kernels computes cannot be replayed";
  if (!notes.taken.empty())
    return notes.taken + " that kernels wrote, or that was there before: what the host does with it cannot be replayed";
  if (notes.reseeded) return "manual_seed() is called inside";
  if (notes.outer_graph)
    return "backward() goes on through the history that a tensor had before the call: return the loss and "
           "differentiate it outside, or pass the tensor's detach()";
  if (r.left_otherwise)
    return "a module's mode (train, eval) or a tensor's requires_grad is another one after the call than before";
  const Program& p = r.program;
  for (size_t i = 0; i < p.blocks.size() && !graph; ++i) {
    const Block& b = p.blocks[i];
    if (b.kind == Block::Kind::Outside || b.death >= 0 || r.moves[i]) continue;
    for (const Call& call : p.calls) {
      bool makes = false;
      each_view(call, [&](const View& v, Access access) { makes |= v.block == int(i) && access != Access::Read; });
      if (makes)
        return "the result of " + text_of(call) +
               " is kept outside, but not returned: return it, or copy_() it into a tensor that exists before";
    }
    return tapir::format("a tensor of {} bytes is made inside and kept outside, but not returned", b.bytes);
  }
  if (r.shared_gradient)
    return "a gradient that is read or added to is held by something else too: which of both is meant cannot be seen";
  for (const Recorded::GradSlot& g : r.grads)
    if (!g.outside.empty() && r.moves[size_t(g.end.block)]) return "a gradient is set to an argument";
  return "";
}

}  // namespace tapir::inline v0::ir
