#pragma once
#include <span>
#include <string>
#include <vector>

#include "trace.h"

namespace tapir::inline v0::detail {

/// The memory that a call's views see, copied to the host; overlapping views share a block.
class Snapshot {
 public:
  /// Copies what the views see now.
  Snapshot(const BackendTable& table, std::span<const TraceArg> args);
  /// Every floating element that a view sees, and every number, is finite.
  bool all_finite() const;
  /// Writes the call into `dir` as case `number`; RuntimeError when it cannot.
  void write(const std::string& dir, int64_t number, const char* entry, Device device, const std::string& reason) const;

 private:
  struct Block {
    const char *begin, *end;
    DType dtype;
    Device device;
    std::vector<char> bytes;
  };
  void add(const TensorView& v);
  const Block& block_of(const TensorView& v) const;
  size_t index_of(const TensorView& v) const;
  std::string json_of(const TensorView& v, int64_t number) const;
  std::string json_of(const TraceArg& arg, int64_t number) const;
  void write_blocks(const std::string& path, int64_t number) const;

  std::span<const TraceArg> args_;
  std::vector<Block> blocks_;
};

/// Calls f for each view among the arguments.
template <class F> void for_views(std::span<const TraceArg> args, F f) {
  for (const TraceArg& a : args) {
    if (a.kind == TraceArg::Kind::View) f(a.view);
    if (a.kind == TraceArg::Kind::List)
      for (const TensorView& v : a.list) f(v);
  }
}

}  // namespace tapir::inline v0::detail
