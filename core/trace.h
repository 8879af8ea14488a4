#pragma once
// Note [Tracing]
// TAPIR_LOG=ops prints a line per kernel call; TAPIR_DUMP=dir writes the operands of a call that throws, meets a bad value, or makes
// the first NaN or infinity of finite operands. Both are one more table: each of its entries looks at its arguments, calls the real entry,
// and looks again. Without the variables load_backend() never hands that table out, and nothing costs anything.
// A dumped call is a line of JSON, <n>.jsonl, and the memory of its operands before the call, <n>.safetensors:
//   {"name": "matmul/0", "entry": "matmul", "device": "cpu", "reason": "...", "args": [...]}
// with an argument being null (absent), {"tensor": key, "dtype", "shape", "strides", "offset"} (a view of the 1-d tensor of that key; views
// of one key share memory), {"number": text, "kind", "dtype"}, a list of these, or {"bytes": hex} (parameters).
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend.h"

namespace tapir::inline v0 {

/// One argument of a kernel call: a view, a list of views, or the bytes of its parameters.
struct TraceArg {
  enum class Kind : uint8_t { View, List, Bytes };
  Kind kind = Kind::View;
  entry::Access access = entry::Access::Read;
  TensorView view = {};
  std::vector<TensorView> list = {};
  std::string bytes = {};
  int op = -1;  // Bytes: the operation, where the parameters have one
  const char* op_name = "";
  bool finite = true;  // Bytes: false for a number that is not
};

/// `real`, or a table before it that does what the environment asks. One of each kind of device.
const BackendTable& traced(const BackendTable& real, DeviceType type);
/// The same, asked for by hand; an empty `dump` is none. Not while another thread computes.
const BackendTable& make_traced(const BackendTable& real, DeviceType type, bool log, const std::string& dump);
/// Calls an entry with arguments as they were dumped; ValueError when they do not fit it.
void call_entry(const BackendTable& table, entry::Id id, Context& ctx, std::span<const TraceArg> args);
void call_entry(const BackendTable& table, std::string_view name, Context& ctx, std::span<const TraceArg> args);

}  // namespace tapir::inline v0
