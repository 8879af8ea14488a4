#pragma once
#include "../../core/trace_call.h"
#include "program.h"

namespace tapir::inline v0::ir {

/// Parameters as the last operand of a call.
template <class P> Operand operand_of(const P& params) {
  TraceArg a = tapir::detail::bytes_of(params);
  return {.kind = a.kind, .bytes = std::move(a.bytes), .op = a.op, .op_name = a.op_name};
}

/// Of an entry that has none.
struct NoParams {};

/// Gives a call of E other parameters: what it does with its operands may change by them.
template <class E, class P> void set_params(Call& call, const P& params) {
  E any{};
  if constexpr (requires { any.params; }) {
    if constexpr (std::is_pointer_v<decltype(any.params)>) any.params = &params;
    else any.params = params;
  }
  size_t at = 0;
  entry::each_field(any, [&]<class T>(const T&) {
    Operand& o = call.operands[at++];
    if constexpr (entry::OneOperand<T> || entry::ManyOperands<T>) o.access = tapir::detail::access_of<T>(any);
    else o = operand_of(params);
  });
}
inline void set_operands(Call&) {}
template <class M, class V, class... Rest>
void set_operands(Call& call, M member, const V& value, const Rest&... rest) {
  call[member] = value;
  set_operands(call, rest...);
}
/// A call of E where `like` was called, with these parameters and operands (&E::x, view, &E::y, view ...). Others are absent.
template <class E, class P, class... Operands>
Call call_of(const Call& like, const P& params, const Operands&... operands) {
  Call call{.entry = entry::id_of<E>, .device = like.device, .modes = like.modes, .site = like.site};
  const E any{};
  entry::each_field(any, [&]<class T>(const T&) {
    Operand& o = call.operands.emplace_back();
    if constexpr (entry::OneOperand<T>) o.views = {View()};
    else if constexpr (entry::ManyOperands<T>) o.kind = TraceArg::Kind::List;
  });
  set_params<E>(call, params);
  set_operands(call, operands...);
  return call;
}

}  // namespace tapir::inline v0::ir
