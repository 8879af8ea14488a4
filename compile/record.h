#pragma once
// Note [Recording a program]
// While a Recording lives, this thread's kernel tables are its own: each entry runs the real one, so results are right at once, and
// writes the call down. Births and deaths of memory pass through the table too. What the host would have to look at cannot be replayed
// and ends in a ValueError: item(), to_vector(), operations whose result's shape depends on values.
// Fresh memory that is read before a kernel wrote it was filled by the host (tensor({1, 2})): its bytes become a Constant.
#include <span>

#include "program.h"

namespace tapir::inline v0::ir {

struct Recorder;  // record.cpp

/// Writes down what this thread computes until finish() or the end of the scope. ValueError where one is alive already.
class Recording {
 public:
  /// The inputs need no mark to be read; they are those that a replay may exchange.
  explicit Recording(std::span<const Tensor> inputs = {});
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  /// The program so far; recording ends.
  Program finish(std::span<const Tensor> outputs = {});

 private:
  void stop() noexcept;
  Recorder* recorder_;
};

}  // namespace tapir::inline v0::ir
