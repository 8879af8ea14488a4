#pragma once
#include <optional>

#include "fused_call.h"

namespace tapir::inline v0::cpu {

// Note [Fused tiles]
// The steps run one after the other over a tile, each by the loop of the eager kernel, so that every result is bit by bit that of the
// calls they stand for. Values live in slots of a buffer that stays in the first-level cache, and a slot is taken again once its value
// was read for the last time; what lies in memory without gaps is read there, and written there by the step that makes it.

inline constexpr int64_t kBufferBytes = 160 * 1024;
inline constexpr int64_t kWidth = 2048;    // elements of a tile
inline constexpr int64_t kShortRow = 512;  // elements: to gather several rows costs less than to run all steps for each

class FusedTiles : FusedCall {
 public:
  explicit FusedTiles(const entry::Fused& c);
  void run() const;

 private:
  struct Thread {
    alignas(64) char buffer[kBufferBytes + kFusedSteps * kSlotEnd];
    char* at[kFusedSteps];              // where a value is
    const char* repeated[kFusedSteps];  // the element that it is all along the tile
    BlockStep blocks[kBlockSteps];
    int64_t streamed[kFusedOutputs];  // elements of the tile that steps in registers wrote there
    Fetcher fetcher;
  };
  void join_dimensions(const entry::Fused& c);
  void place_values();
  void cut(int64_t width);
  bool in_memory(const FusedOperand& o) const {
    return o.flat || (tiles_->by_row && o.space.inner_stride(0) == o.size);
  }
  char* place(const FusedOperand& o, int64_t flat) const {
    return o.data + (o.flat ? flat * o.size : o.space.offset(0, flat));
  }
  bool repeats(const FusedOperand& o) const { return o.constant || (tiles_->by_row && o.space.inner_stride(0) == 0); }
  char* slot(int i, Thread& t) const { return t.buffer + values_[i].slot * slot_bytes_; }
  void fill_array(int i, Thread& t) const;
  void fill_arrays(const FusedStep& s, Thread& t) const;
  void load(int i, int64_t flat, int64_t n, Thread& t) const;
  void store(const FusedStep& s, int64_t flat, int64_t n, Thread& t) const;
  bool is_ready(int i) const override;
  bool is_row_number(int i) const override { return steps_[i].kind == FusedKind::Load && values_[i].fixed; }
  bool streams(const FusedOperand& out) const override;
  void run_in_registers(int i, int64_t flat, int64_t n, Thread& t) const;
  void run_tile(int64_t flat, int64_t n, Thread& t) const;
  void fetch(int64_t flat, int64_t n, Fetcher& fetcher) const;

  int64_t slot_bytes_ = 0, filled_ = 0;
  std::optional<Tiles> tiles_;
};

}  // namespace tapir::inline v0::cpu
