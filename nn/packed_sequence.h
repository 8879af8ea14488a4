#pragma once
#include <optional>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0::nn {

/// Sequences of different lengths, the longest first, stored step by step without padding.
struct PackedSequence {
  Tensor data;         // (sum of lengths, ...): the rows of step 0, then those of step 1, ...
  Tensor batch_sizes;  // rows of each step: int64 on the host
  Tensor sorted_indices = {}, unsorted_indices = {};  // of the sequences, int64; undefined where they came sorted
};

struct PackOptions {
  bool batch_first = false;
  bool enforce_sorted =
      true;  // the lengths must not grow; else sequences are sorted, and put back by pad_packed_sequence
};
/// Padded sequences (T, B, ...), or (B, T, ...), packed. ValueError for lengths that are not in [1, T], of the wrong number or order.
PackedSequence pack_padded_sequence(const Tensor& padded, const std::vector<int64_t>& lengths,
                                    const PackOptions& options = {});
/// The same of lengths (B), integers on the host.
PackedSequence pack_padded_sequence(const Tensor& padded, const Tensor& lengths, const PackOptions& options = {});
/// Sequences (T_i, ...) packed.
PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted = true);

struct PadOptions {
  bool batch_first = false;
  double padding_value = 0;
  std::optional<int64_t> total_length = {};  // instead of the longest one
};
struct PaddedSequence {
  Tensor padded;  // (T, B, ...), or (B, T, ...)
  std::vector<int64_t> lengths;
};
/// The inverse of pack_padded_sequence.
PaddedSequence pad_packed_sequence(const PackedSequence& packed, const PadOptions& options = {});
/// Sequences (T_i, ...) as one tensor (T, B, ...), or (B, T, ...).
Tensor pad_sequence(const std::vector<Tensor>& sequences, const PadOptions& options = {});

}  // namespace tapir::inline v0::nn
