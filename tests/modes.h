#pragma once
// Process-wide modes that a test changes and leaves as they were.
#include <tapir/core/denormals.h>
#include <tapir/core/parallel.h>

namespace tapir_tests {

struct ThreadCount {
  explicit ThreadCount(int n) : before(tapir::get_num_threads()) { tapir::set_num_threads(n); }
  ~ThreadCount() { tapir::set_num_threads(before); }
  int before;
};
struct FlushDenormal {
  explicit FlushDenormal(bool on) : before(tapir::get_flush_denormal()) { tapir::set_flush_denormal(on); }
  ~FlushDenormal() { tapir::set_flush_denormal(before); }
  bool before;
};

}  // namespace tapir_tests
