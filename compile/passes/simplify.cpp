// The passes that every compiler has: constants, common calls, dead code.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Fill, entry::Range;

/// The number as elements of that dtype hold it; nothing for those that would round it.
std::optional<Scalar> as_held(Scalar number, DType dtype) {
  if (dtype == kFloat64) return Scalar(number.to_double());
  if (dtype == kFloat32) return Scalar(double(float(number.to_double())));
  if (dtype == kInt64 && !number.is_float()) return Scalar(number.to_int());
  return {};
}

/// The number that all elements are which lie there, always.
std::optional<Scalar> number_read(const Uses& uses, const View& v) {
  const int maker = v.in_memory() ? uses.only_maker(v.block) : -1;
  if (maker < 0 || uses.call(maker).result().dtype != v.dtype) return {};
  const Call& call = uses.call(maker);
  if (is<Fill>(call)) return as_held(call.params<Scalar>(), v.dtype);
  if (is<Range>(call) && numel_of(call.result().shape) == 1) return as_held(call.params<RangeParams>().start, v.dtype);
  return {};
}

/// What a call computes, as text: entry, parameters, and operands with the makers of their values. Of what is written: the form without
/// the block. Empty for calls that update, write what others write too, or are host code.
std::string key_of(const Uses& uses, int at) {
  const Call& call = uses.call(at);
  if (call.custom) return {};
  std::string key = entry::name_of(call.entry);
  key += call.modes.deterministic ? "!" : "";
  key += call.modes.flush_denormals ? "~" : "";
  for (const Operand& o : call.operands) {
    if (o.access == Access::Update) return {};
    key += o.access == Access::Write ? "|w" : "|r";
    key.append(std::to_string(o.bytes.size())).append(o.bytes);
    for (const View& v : o.views) {
      View form = v;
      if (o.access == Access::Write && v.in_memory()) {
        if (uses.only_maker(v.block) != at) return {};
        form.block = 0;
      }
      if (v.kind == View::Kind::Number) {  // exactly, which text is not
        const double number[] = {v.number.to_double(), double(v.number.kind())};
        const int64_t integer = v.number.is_float() ? 0 : v.number.to_int();
        key.append(reinterpret_cast<const char*>(number), sizeof(number));
        key.append(reinterpret_cast<const char*>(&integer), sizeof(integer));
        form.number = 0;
      }
      key += "," + to_string(form) + tapir::format("@{}", form.device);
      if (o.access == Access::Read && v.in_memory()) key += tapir::format("#{}", uses.maker(at, v.block));
    }
  }
  return key;
}

/// Who reads what call `at` writes reads what call `same` wrote.
void merge(Rewriter& calls, int at, int same) {
  const Call call = calls.call(at);
  calls.remove(at);
  for (size_t o = 0; o < call.operands.size(); ++o)
    for (size_t k = 0; k < call.operands[o].views.size(); ++k)
      if (const View& v = call.operands[o].views[k]; call.operands[o].access == Access::Write && v.in_memory())
        calls.rename(v.block, calls.call(same).operands[o].views[k].block);
}

}  // namespace

void take_constants(Program& p) {
  rewrite(p, [](Rewriter& calls, int at) {
    if (!is<Binary>(calls.call(at)) || calls.call(at).params<BinaryParams>().op > BinaryOp::Div) return;
    calls.change(at, [&](Call& call) {
      View &a = call[&Binary::a], &b = call[&Binary::b];
      if (const auto number = number_read(calls, b); number && a.kind == View::Kind::Memory)
        b = number_like(b, *number);
      else if (const auto first = number_read(calls, a); first && b.kind == View::Kind::Memory)
        a = number_like(a, *first);
    });
  });
}

void remove_common_calls(Program& p) {
  std::unordered_map<std::string, int> known;
  rewrite(p, [&](Rewriter& calls, int at) {
    const std::string key = key_of(calls, at);
    if (key.empty()) return;
    const auto [found, fresh] = known.emplace(key, at);
    bool own = !fresh;
    each_view(calls.call(at), [&](const View& v, Access access) { own &= access == Access::Read || calls.own(v); });
    if (own) merge(calls, at, found->second);
  });
}

void remove_dead_code(Program& p) {
  Rewriter calls(p);
  for (int at = calls.size(); at-- > 0;) {
    bool needed = bool(calls.call(at).custom);
    each_view(calls.call(at), [&](const View& v, Access access) {
      if (access == Access::Read || needed) return;
      const Value made = calls.made_by(at, v.block);
      needed = made.seen || !made.readers.empty();
    });
    if (!needed) calls.remove(at);
  }
  calls.finish();
}

}  // namespace tapir::inline v0::ir
