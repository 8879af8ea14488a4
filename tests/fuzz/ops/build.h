// The tensors of a call.
#pragma once
#include <span>

#include "call.h"

namespace ops_fuzz {

enum class Layouts : uint8_t { AsDrawn, Contiguous };

struct Built {
  List x;       // the inputs
  List leaves;  // that a gradient comes to; undefined where input k wants none
  List memory;  // the storage of each input; undefined where it has none of its own
  std::vector<std::vector<char>> before;
  /// Which input's memory is not as it was, but for `except` (-1: none may differ); -1 where all is.
  int changed(int except = -1) const;
};
/// Contiguous: each input a copy of its own, where one tensor stands twice too.
Built build(const Call& call, Device device = kCPU, Layouts layouts = Layouts::AsDrawn);

/// The elements of the input's storage, as host memory.
std::vector<char> storage_of(const Call& call, size_t k);
/// The input's elements in row-major order.
std::vector<char> elements_of(const Call& call, size_t k);

}  // namespace ops_fuzz
