#pragma once
#include "../core/trace_call.h"
#include "program.h"

namespace tapir::inline v0::ir {

/// Parameters as the last operand of a call.
template <class P> Operand operand_of(const P& params) {
  std::vector<TraceArg> args;
  detail::flatten(args, params);
  return {.kind = TraceArg::Kind::Bytes, .bytes = args[0].bytes, .op = args[0].op, .op_name = args[0].op_name};
}

}  // namespace tapir::inline v0::ir
