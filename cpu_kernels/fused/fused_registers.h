#pragma once
// Note [Steps in registers]
// One loop for each step, over a tile, stores and loads every value: for an addition that is most of its time, and more than the memory
// behind it takes. Cheap steps on float32 that follow each other run over a block instead, whose newest value stays in vector registers:
// each step is a function that takes the block as arguments and jumps to the next one. Other operands come from memory or are one number;
// a value that is wanted later is stored. Nothing but single IEEE operations is done so, hence the bits are those of the loops.
#include <algorithm>
#include <cstdint>

#include "../../core/fused.h"
#include "../vec.h"

namespace tapir::inline v0::cpu {

using Vector = float __attribute__((vector_size(kVectorBytes)));
inline constexpr int64_t kBlock = 8 * kLanes<float>;  // elements

/// A step of a block, or what is done around it.
struct BlockStep {
  using Run = void (*)(const BlockStep*, int64_t at, Vector, Vector, Vector, Vector, Vector, Vector, Vector, Vector);
  Run run;
  float* memory;     // the other operand, or the target, of element 0
  float number;      // the other operand
  int32_t limit;     // from what on Where by words chooses its first operand
  const char* mask;  // what Where chooses by
};

/// Where a step's other operand is.
enum class Other : uint8_t { Memory, Number, Same };

/// The function of a Unary, Binary or Where step of float32, whose newest value is its first operand (swapped: its second one); null where
/// the step has none.
BlockStep::Run block_function(const FusedStep& step, Other other, bool swapped);
/// ... and of Where, which chooses by bytes or by words.
BlockStep::Run block_where(Other other, bool swapped, bool words);
BlockStep::Run block_load();    // the newest value is what lies in memory
BlockStep::Run block_number();  // ... or a number
BlockStep::Run block_save();    // it is stored
BlockStep::Run block_stream();  // ... past the caches: memory + at must be aligned to 64 bytes
/// What reduces it, into a vector of partial results at `memory`, which begins with block_start(): Sum or Max, NaN wins.
BlockStep::Run block_reduce(ReduceOp op);
float block_start(ReduceOp op);
BlockStep::Run block_end();

/// The inputs of the next tile, which come while this one is computed.
class Fetcher {
 public:
  void add(const char* from, int64_t count, int64_t size) { stretches_[count_++] = {from, from + count * size, size}; }
  /// Asks for so many elements more of each.
  void move(int64_t elements) {
    for (int i = 0; i < count_; ++i) {
      Stretch& s = stretches_[i];
      const char* const to = std::min(s.from + elements * s.size, s.end);
      for (; s.from < to; s.from += 64) __builtin_prefetch(s.from);
    }
  }
  void clear() { count_ = 0; }

 private:
  struct Stretch {
    const char *from, *end;
    int64_t size;
  };
  Stretch stretches_[kFusedInputs];
  int count_ = 0;
};

/// Runs the steps, of which block_end() is the last, for elements [0, n) in whole blocks; how many elements that were. For each block
/// so many elements of the next tile are fetched.
int64_t run_blocks(const BlockStep* steps, int64_t n, Fetcher& fetcher, int64_t fetched);

}  // namespace tapir::inline v0::cpu
