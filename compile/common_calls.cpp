#include <string_view>
#include <unordered_map>

#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

/// What a call computes, as text: entry, parameters, and operands with the number of writes that their blocks have seen. Of what is
/// written: the form without the block. Empty for calls that update.
std::string key_of(const Call& call, const std::vector<int>& writes) {
  std::string key = entry::name_of(call.entry);
  key += call.deterministic ? "!" : "";
  for (const Operand& o : call.operands) {
    if (o.access == Access::Update) return {};
    key += o.access == Access::Write ? "|w" : "|r";
    key.append(std::to_string(o.bytes.size())).append(o.bytes);
    for (const View& v : o.views) {
      View form = v;
      if (o.access == Access::Write) form.block = v.block < 0 ? -1 : 0;
      if (v.kind == View::Kind::Number) {  // exactly, which text is not
        const double number[] = {v.number.to_double(), double(v.number.kind())};
        const int64_t integer = v.number.is_float() ? 0 : v.number.to_int();
        key.append(reinterpret_cast<const char*>(number), sizeof(number));
        key.append(reinterpret_cast<const char*>(&integer), sizeof(integer));
        form.number = 0;
      }
      key += "," + to_string(form) + tapir::format("@{}", form.device);
      if (o.access == Access::Read && v.block >= 0) key += tapir::format("#{}", int64_t(writes[size_t(v.block)]));
    }
  }
  return key;
}

}  // namespace

void remove_common_calls(Program& p) {
  const Uses uses(p);
  const std::vector<bool> fixed = fixed_blocks(p);
  std::vector<int> stands_for(p.blocks.size()), writes(p.blocks.size());
  for (size_t i = 0; i < stands_for.size(); ++i) stands_for[i] = int(i);
  std::unordered_map<std::string, const Call*> known;
  std::vector<Call> kept;
  kept.reserve(p.calls.size());
  const auto only_here = [&](const View& v) {  // written by this call alone, all of it
    const size_t i = size_t(v.block);
    return p.blocks[i].kind == Block::Kind::Temporary && uses.writes[i] == 1 && covers(v, p);
  };
  for (Call& call : p.calls) {
    bool mergeable = true;
    each_view(call, [&](View& v, Access) { v.block = stands_for[size_t(v.block)]; });
    each_view(call, [&](const View& v, Access access) { mergeable &= access == Access::Read || only_here(v); });
    const std::string key = mergeable ? key_of(call, writes) : "";
    const auto found = key.empty() ? known.end() : known.find(key);
    bool merged = found != known.end();
    if (merged)
      each_view(call,
                [&](const View& v, Access access) { merged &= access == Access::Read || !fixed[size_t(v.block)]; });
    if (merged) {
      for (size_t o = 0; o < call.operands.size(); ++o)
        for (size_t k = 0; k < call.operands[o].views.size(); ++k)
          if (const View& v = call.operands[o].views[k]; call.operands[o].access == Access::Write && v.block >= 0)
            stands_for[size_t(v.block)] = found->second->operands[o].views[k].block;
      continue;
    }
    each_view(call, [&](const View& v, Access access) { writes[size_t(v.block)] += access != Access::Read; });
    kept.push_back(std::move(call));
    if (!key.empty()) known.emplace(key, &kept.back());
  }
  p.calls = std::move(kept);
}

}  // namespace tapir::inline v0::ir
