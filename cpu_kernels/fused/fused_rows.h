#pragma once
#include "fused_call.h"

namespace tapir::inline v0::cpu {

// Note [Fused rows]
// A call whose steps reduce goes over whole rows: a tile is one or several of them. A value is one number for all, one number for each
// row (side by side), or of the elements. A step runs over the widest of its operands; a row's number that meets elements is first
// written out along its row. Where rows are whole blocks, cheap steps and the sums behind them go row by row in registers (Note [Steps in
// registers]), and a row's number is one for the block. Tiles and the order of sums depend on shapes alone.
class FusedRows : FusedCall {
 public:
  explicit FusedRows(const entry::Fused& c);
  void run(Context& context) const;

 private:
  enum class Extent : uint8_t { One, Row, Full };
  /// Where an operand is, and what of it changes.
  struct Lie {
    Space rows{1};           // its first dimensions
    bool dense = false;      // a row lies in one piece
    bool of_rows = false;    // one number a row
    bool every_row = false;  // all rows are one
  };
  struct Place {
    Extent extent = Extent::Full;
    int slot = -1, wide = -1;  // wide: a row's number along its row
    bool kept = false;         // filled once
  };
  struct Thread {
    char* buffer;
    float* partial;         // results of a reduction, of each step
    char* at[kFusedSteps];  // where a value is
    BlockStep blocks[kBlockSteps];
    Fetcher fetcher;
  };
  void lay(int k, const TensorView& v, const TensorView& first, int64_t row_dims);
  Extent extent_of(int i) const;
  bool in_place(int load) const;
  void place_outputs();
  void place_values();
  char* slot(int slot, const Thread& t) const { return t.buffer + slot * slot_bytes_; }
  /// Bytes of one number for each row of a tile.
  int64_t row_bytes() const { return (step_ * kMaxElementSize + 63) / 64 * 64; }
  char* target(int i, int64_t row, const Thread& t) const;
  void fill(int i, Thread& t) const;
  void load(int i, int64_t row, int64_t rows, Thread& t) const;
  void widen(int i, int64_t rows, Thread& t) const;
  void reduce(int i, int64_t rows, Thread& t) const;
  void compute(int i, int64_t row, int64_t rows, Thread& t) const;
  void store(const FusedStep& s, int64_t row, int64_t rows, const Thread& t) const;
  bool is_ready(int i) const override;
  bool is_row_number(int i) const override { return places_[i].extent == Extent::Row; }
  bool streams(const FusedOperand& out) const override;
  bool in_registers(int i) const;
  void run_in_registers(int first, int64_t row, int64_t rows, Thread& t) const;
  void fetch(int64_t row, Fetcher& fetcher) const;
  void run_tile(int64_t row, int64_t rows, Thread& t) const;
  /// The value where it has a number for each element.
  char* elements(int i, const Thread& t) const { return places_[i].wide >= 0 ? slot(places_[i].wide, t) : t.at[i]; }

  int64_t row_ = 1, rows_ = 1;  // elements of a row; how many there are
  int64_t step_ = 1;            // rows of a tile
  int64_t slot_bytes_ = 0;
  int slots_ = 0;
  bool streamed_[kFusedOutputs] = {};  // by steps in registers
  int of_rows_ = 0;                    // values that are one number a row
  Few<Lie, kFusedOutputs + kFusedInputs> lies_;
  Few<Place, kFusedSteps> places_;
};

}  // namespace tapir::inline v0::cpu
