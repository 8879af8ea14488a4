#include "dims.h"

#include "error.h"

namespace tapir::inline v0 {

std::string Dims::str() const {
  std::string s = "(";
  for (int64_t i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string(values_[i]);
  return s + (rank_ == 1 ? ",)" : ")");
}

void fail_rank(int64_t rank) {
  fail(ErrorKind::Value, "[Shape] expected at most {} dimensions, got {}", kMaxRank, rank);
}

}  // namespace tapir::inline v0
