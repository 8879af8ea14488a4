#include <cstring>

#include "../../core/denormals.h"
#include "program.h"
#include "refusals.h"

namespace tapir::inline v0::ir {
namespace {

TensorView view_of(const View& v, const Memory& memory) {
  if (v.kind == View::Kind::Absent) return {};
  if (v.kind == View::Kind::Number) return TensorView(v.number, v.dtype);
  return tensor_of(v, memory);
}

void copy(const StoragePtr& to, const void* from, Device from_device) {
  if (to->bytes == 0) return;
  const Device over = from_device.is_cpu() ? to->device : from_device;
  const BackendTable& table = backend(over);
  table.copy_bytes(to->data, to->device, from, from_device, to->bytes, current_stream(over));
  table.synchronize(over, current_stream(over));
}

void run(const Call& call, const Memory& memory) {
  std::vector<TraceArg> args;
  for (const Operand& o : call.operands) {
    TraceArg& a = args.emplace_back();
    a.kind = o.kind, a.bytes = o.bytes;
    if (o.kind == TraceArg::Kind::View) a.view = view_of(o.views[0], memory);
    if (o.kind == TraceArg::Kind::List)
      for (const View& v : o.views) a.list.push_back(view_of(v, memory));
  }
  const BackendTable& table = backend(call.device);
  if (call.custom) {
    std::vector<Tensor> reads, writes;
    for (const Operand& o : call.operands)
      if (o.kind == TraceArg::Kind::View)
        (o.access == Access::Read ? reads : writes).push_back(tensor_of(o.views[0], memory));
    return call.custom->run(reads, writes);
  }
  if (is<entry::CopyBytes>(call)) {
    const TensorView &to = args[0].view, &from = args[1].view;
    table.copy_bytes(to.data, to.device, from.data, from.device, to.numel(), current_stream(call.device));
    return table.synchronize(call.device, current_stream(call.device));
  }
  ScopedMode mode(modes.deterministic, call.modes.deterministic);
  const detail::FlushDenormals flush(call.modes.flush_denormals);
  Context& ctx = context(call.device);
  call_entry(table, call.entry, ctx, args);
  check_values(ctx, refusal_of(call));
}

}  // namespace

Tensor tensor_in(const View& v, StoragePtr storage, int64_t offset) {
  Tensor t(new TensorImpl);
  TensorImpl& p = t.impl();
  p.dtype = v.dtype, p.device = v.device, p.storage = std::move(storage), p.offset = offset;
  p.sizes = v.shape, p.strides = v.strides, p.numel = numel_of(v.shape);
  p.contiguous = p.numel == 0 || is_contiguous(v.shape, v.strides);
  return t;
}
Tensor tensor_of(const View& v, const Memory& memory) {
  const StoragePtr storage = v.block < 0 ? allocate_storage(0, v.device) : memory[size_t(v.block)];
  check_internal(bool(storage), "[interpret] expected block %{} to be alive", v.block);
  return tensor_in(v, storage, v.offset);
}

Memory copy_of_outside(const Program& program) {
  Memory memory(program.blocks.size());
  for (size_t i = 0; i < memory.size(); ++i) {
    const Block& b = program.blocks[i];
    if (b.kind != Block::Kind::Outside) continue;
    memory[i] = allocate_storage(b.bytes, b.device);
    copy(memory[i], b.memory->data, b.device);
  }
  return memory;
}

std::vector<Tensor> interpret(const Program& program, Memory& memory) {
  std::vector<std::vector<size_t>> born(program.calls.size() + 1), dying(program.calls.size() + 1);
  for (size_t i = 0; i < program.blocks.size(); ++i) {
    const Block& b = program.blocks[i];
    if (b.kind == Block::Kind::Outside) continue;
    born[size_t(b.birth)].push_back(i);
    if (b.death >= 0) dying[size_t(b.death)].push_back(i);
  }
  for (size_t at = 0; at <= program.calls.size(); ++at) {
    for (size_t i : born[at]) {
      const Block& b = program.blocks[i];
      memory[i] = allocate_storage(b.bytes, b.device);
      if (b.kind == Block::Kind::Constant) copy(memory[i], b.values.data(), kCPU);
    }
    for (size_t i : dying[at]) memory[i] = {};
    if (at < program.calls.size()) run(program.calls[at], memory);
  }
  std::vector<Tensor> outputs;
  for (const View& v : program.outputs)
    outputs.push_back(v.kind == View::Kind::Memory ? tensor_of(v, memory) : Tensor());
  return outputs;
}

}  // namespace tapir::inline v0::ir
