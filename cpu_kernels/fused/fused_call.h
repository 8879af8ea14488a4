#pragma once
// What every way to run a fused call needs: its steps with their kernels, and where its operands are.
#include "../../core/fused.h"
#include "../pointwise/elementwise.h"
#include "fused_registers.h"

namespace tapir::inline v0::cpu {
/// A view along the joint dimensions.
struct FusedOperand {
  char* data = nullptr;
  int64_t size = 0;  // of an element
  Space space{1};
  bool flat = false, constant = true;
  bool stream = false;  // an output that is written past the caches
};

/// A step as it will run, and its value.
struct FusedValue {
  LoopKernel kernel = nullptr;
  Converter convert = nullptr;
  int64_t size = 0;
  int slot = -1;
  int last = -1;          // the step that reads it for the last time
  int output = -1;        // computed right in that output's memory, where it lies without gaps
  bool fixed = false;     // a slot of its own: it is filled once, or once a row
  bool released = false;  // its slot may hold another one
  int block_first = -1;   // where a run of steps in registers begins among the plans, ...
  int block_last = -1;    // ... and the last of these steps
  bool copied = false;    // an input that is stored elsewhere and overwritten itself
  bool words = false;     // of Keep: random words, which every step that reads it compares with a limit
};

/// What steps in registers read or write around them.
struct BlockPlan {
  BlockStep::Run run = nullptr;
  int value = -1;     // that the memory holds
  int output = -1;    // or the output
  int row = -1;       // the value whose number of the row, or tile, is the other operand
  int mask = -1;      // the value that Where chooses by, ...
  int32_t limit = 0;  // ... and from what on, if that is words
  int sums = -1;      // the value that is reduced: in the memory are its partial results
  float number = 0;
};
inline constexpr int kBlockSteps = 4 * kFusedSteps;

union FusedNumbers {
  UnaryParams unary;
  BinaryParams binary;
  TernaryParams ternary;
  int32_t limit;  // of Where by words
  FusedNumbers() {}
};

/// Elements that are made when they are needed: a call of few steps should not pay for many.
template <class T, int kMost> struct Few {
  T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
  const T& operator[](int i) const { return reinterpret_cast<const T*>(bytes)[i]; }
  void make(int n) {
    for (int i = 0; i < n; ++i) new (bytes + size_t(i) * sizeof(T)) T;
  }
  alignas(T) unsigned char bytes[kMost * sizeof(T)];
};

/// Bytes behind the elements of a slot: words begin at a multiple of 4.
inline constexpr int64_t kSlotEnd = 64;
inline constexpr int64_t kLargeCall = int64_t(1) << 18;  // elements

class FusedCall {
 protected:
  ~FusedCall() = default;
  explicit FusedCall(const entry::Fused& c);
  FusedOperand& input_of(int load) { return operands_[outputs_ + steps_[load].operand[0]]; }
  const FusedOperand& input_of(int load) const { return operands_[outputs_ + steps_[load].operand[0]]; }
  /// Is the call larger than the caches of a core? Only then is it worth the while to fetch ahead.
  bool is_large() const { return operands_[0].space.numel >= kLargeCall; }
  bool computes(int i) const {
    return values_[i].last >= 0 && steps_[i].kind != FusedKind::Load && steps_[i].kind != FusedKind::Number;
  }
  /// Step i, which computes from other values alone, for elements [from, n) of what lies at `at`.
  void run_step(int i, int64_t from, int64_t n, char* const* at) const;
  /// What Keep, step i, says of elements [flat, flat + n), as dropout.cpp draws it. A run of steps in registers has it made before it begins,
  /// hence it has a slot that no other value shares.
  void keep(int i, int64_t flat, int64_t n, char** at) const;

  /// Finds runs of at least so many steps that are done in registers.
  void plan_registers(int least);
  /// Is a value there before any step of a run?
  virtual bool is_ready(int i) const = 0;
  /// Is a value one number along a row, or a tile?
  virtual bool is_row_number(int) const { return false; }
  /// Has step i a function for registers?
  bool has_block(int i) const {
    const int first = steps_[i].operand[0];  // of Where: it is an array
    return block_function(steps_[i], Other::Memory, false) &&
           (steps_[i].arity() < 3 || (steps_[first].kind != FusedKind::Number && !is_row_number(first)));
  }
  /// May a later value have the slot of operand x once step i has run? Not that of a mask, which has other elements than what a run of
  /// steps in registers goes on with.
  bool frees(int i, int x) const { return values_[x].size == values_[i].size || !has_block(i); }
  /// May blocks be written there past the caches?
  virtual bool streams(const FusedOperand& out) const = 0;

  int count_, outputs_, inputs_;
  bool ordered_ = false;   // positions are asked for
  int64_t cost_ = 0;       // of an element, in additions
  int64_t computing_ = 0;  // steps
  Few<FusedOperand, kFusedOutputs + kFusedInputs> operands_;
  Few<FusedStep, kFusedSteps> steps_;
  Few<FusedValue, kFusedSteps> values_;
  Few<FusedNumbers, kFusedSteps> numbers_;
  Few<BlockPlan, kBlockSteps> plans_;
  int planned_ = 0;

 private:
  void find_words();
  void choose_kernels();
  bool goes_in_registers(int i) const;
  void plan_run(int first, int last);
  void plan_step(int i, int& newest);
  void plan_saves(int i, int last);
};

}  // namespace tapir::inline v0::cpu
