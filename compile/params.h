#pragma once
#include "../core/trace_call.h"
#include "program.h"

namespace tapir::inline v0::ir {

/// Parameters as the last operand of a call.
template <class P> Operand operand_of(const P& params) {
  TraceArg a = tapir::detail::bytes_of(params);
  return {.kind = a.kind, .bytes = std::move(a.bytes), .op = a.op, .op_name = a.op_name};
}

/// A call of E where `like` was called, with absent operands and these parameters.
template <class E, class P> Call call_of(const Call& like, const P& params) {
  Call call{.entry = entry::id_of<E>, .device = like.device, .deterministic = like.deterministic, .site = like.site};
  E any{};
  if constexpr (std::is_pointer_v<decltype(any.params)>) any.params = &params;
  else any.params = params;
  entry::each_field(any, [&]<class T>(const T&) {
    if constexpr (entry::OneOperand<T>)
      call.operands.push_back({.access = tapir::detail::access_of<T>(any), .views = {View()}});
    else if constexpr (entry::ManyOperands<T>)
      call.operands.push_back({.kind = TraceArg::Kind::List, .access = tapir::detail::access_of<T>(any)});
    else call.operands.push_back(operand_of(params));
  });
  return call;
}

}  // namespace tapir::inline v0::ir
