#include "device_program.h"

#include "dependencies.h"
#include "params.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

using entry::CopyBytes;

bool copies_bytes(const Call& call) { return is<CopyBytes>(call); }

/// Is the block the host's numbers, read by nothing but copies to that device? `device`: of the first one.
bool only_copied(const Program& p, int block, Device& device) {
  bool first = true, only = true;
  for (const Call& call : p.calls)
    each_view(call, [&](const View& v, Access access) {
      if (v.block != block) return;
      only &= copies_bytes(call) && access == Access::Read && (first || call[&CopyBytes::to].device == device);
      if (only) first = false, device = call[&CopyBytes::to].device;
    });
  return only && !first && !device.is_cpu();
}

}  // namespace

Device device_of(const Program& p) { return p.calls.empty() ? Device() : p.calls.front().device; }

void place_constants(Program& p) {
  const std::vector<bool> fixed = fixed_blocks(p);
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    Block& b = p.blocks[i];
    Device device;
    if (b.kind != Block::Kind::Constant || !b.device.is_cpu() || fixed[i] || !only_copied(p, int(i), device)) continue;
    b.device = device;
    for (Call& call : p.calls)
      each_view(call, [&](View& v, Access) {
        if (v.block == int(i)) v.device = device;
      });
  }
  const Uses uses(p);
  const auto removed =
      std::erase_if(p.calls, [&](const Call& call) {  // a tensor that is nothing but such a copy is the constant itself
        if (!copies_bytes(call)) return false;
        const View &to = call[&CopyBytes::to], &from = call[&CopyBytes::from];
        if (to.block < 0 || from.block < 0) return false;
        Block &made = p.blocks[size_t(to.block)], &values = p.blocks[size_t(from.block)];
        if (values.kind != Block::Kind::Constant || values.device != made.device ||
            uses.writes[size_t(from.block)] != 0 || made.kind != Block::Kind::Temporary ||
            uses.writes[size_t(to.block)] != 1 || fixed[size_t(to.block)] || !covers(to, p) || !covers(from, p) ||
            made.bytes != values.bytes)
          return false;
        made.kind = Block::Kind::Constant, made.values = values.values;
        return true;
      });
  if (removed) remake_lifetimes(p);
}

std::string foreign(const Call& call, const Program& p) {
  const Device device = device_of(p);
  if (call.device != device)
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
  const auto rebase = [&]<class E>(Call& call, entry::In E::*of, auto params) {
    View& base = call[of];
    if (base.kind != View::Kind::Absent) return;
    params.offset -= start;
    base = position;
    set_params<E>(call, params);
    any = true;
  };
  for (Call& call : p.calls) {
    if (is<entry::Random>(call)) rebase(call, &entry::Random::base, call.params<RandomParams>());
    if (is<entry::Dropout>(call)) rebase(call, &entry::Dropout::base, call.params<DropoutParams>());
  }
  if (!any) return -1;
  p.blocks.push_back({.kind = Block::Kind::Outside, .bytes = 8, .device = position.device, .read = true});
  return position.block;
}

}  // namespace tapir::inline v0::ir
