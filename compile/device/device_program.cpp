#include "device_program.h"

#include <algorithm>

#include "../program/params.h"
#include "../program/uses.h"

namespace tapir::inline v0::ir {
namespace {

using entry::CopyBytes;

bool copies_bytes(const Call& call) { return is<CopyBytes>(call); }

/// The device that the block is copied to, by all calls that use it; the CPU where there is none.
Device only_copied_to(const Uses& uses, int block) {
  const std::vector<Use>& list = uses.of(block);
  const auto target = [&](const Use& use) {
    return copies_bytes(uses.call(use.call)) && !use.writes ? uses.call(use.call)[&CopyBytes::to].device : Device();
  };
  const bool same =
      std::all_of(list.begin(), list.end(), [&](const Use& use) { return target(use) == target(list[0]); });
  return same && !list.empty() ? target(list[0]) : Device();
}

}  // namespace

Device device_of(const Program& p) {
  for (const Call& call : p.calls)
    if (!call.custom) return call.device;  // host code may be without tensors
  return p.calls.empty() ? Device() : p.calls.front().device;
}

void place_constants(Program& p) {
  Rewriter calls(p);
  for (int i = 0; i < int(p.blocks.size()); ++i) {
    Block& b = p.blocks[size_t(i)];
    if (b.kind != Block::Kind::Constant || !b.device.is_cpu() || calls.is_fixed(i)) continue;
    b.device = only_copied_to(calls, i);
    if (b.device.is_cpu()) continue;
    for (const Use& use : calls.of(i)) p.calls[size_t(use.call)][&CopyBytes::from].device = b.device;
  }
  bool removed = false;
  for (int at = 0; at < calls.size(); ++at) {  // a tensor that is nothing but such a copy is the constant itself
    if (!copies_bytes(calls.call(at))) continue;
    const View to = calls.call(at)[&CopyBytes::to], from = calls.call(at)[&CopyBytes::from];
    if (!to.in_memory() || !from.in_memory()) continue;
    Block &made = p.blocks[size_t(to.block)], &values = p.blocks[size_t(from.block)];
    if (values.kind != Block::Kind::Constant || values.device != made.device || calls.is_written(from.block) ||
        calls.only_maker(to.block) != at || calls.is_fixed(to.block) || !covers(from, p) || made.bytes != values.bytes)
      continue;
    made.kind = Block::Kind::Constant, made.values = values.values;
    calls.remove(at), removed = true;
  }
  if (removed) calls.finish();
}

std::string foreign(const Call& call, const Program& p) {
  const Device device = device_of(p);
  if (call.device != device && !call.custom)
    return tapir::format("{} runs on {}, others on {}", entry::name_of(call.entry), call.device, device);
  std::string why;
  each_view(call, [&](const View& v, Access access) {
    if (v.device == device) return;
    const bool told = p.blocks[size_t(v.block)].kind == Block::Kind::Constant && access == Access::Read;
    if (copies_bytes(call)) why = "it copies between devices";
    else if (!v.device.is_cpu() || !told)
      why = tapir::format("{} uses memory of {} beside that of {}", entry::name_of(call.entry), v.device, device);
  });
  return why;
}

int count_from_memory(Program& p, uint64_t start) {
  View position;
  position.kind = View::Kind::Memory, position.dtype = kInt64, position.device = device_of(p);
  position.block = int(p.blocks.size());
  bool any = false;
  for (Call& call : p.calls)
    with_numbers(call, [&]<class E>(auto params) {
      View& base = call[&E::base];
      if (base.kind != View::Kind::Absent) return;
      params.offset -= start;
      base = position;
      set_params<E>(call, params);
      any = true;
    });
  if (!any) return -1;
  p.blocks.push_back({.kind = Block::Kind::Outside, .bytes = 8, .device = position.device, .read = true});
  return position.block;
}

}  // namespace tapir::inline v0::ir
