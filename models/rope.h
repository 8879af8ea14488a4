#pragma once
#include <optional>
#include <vector>

#include "../core/tensor.h"

// Rotary position embeddings, and how they are stretched for texts longer than those of the training. Su et al. 2021, arXiv 2104.09864.
namespace tapir::inline v0::models {

/// Linear: Chen et al. 2023, arXiv 2306.15595. Dynamic (NTK) and Yarn: Peng et al. 2023, arXiv 2309.00071. Llama3: Dubey et al. 2024,
/// arXiv 2407.21783. LongRope: Ding et al. 2024, arXiv 2402.13753.
enum class RopeType : uint8_t { Default, Linear, Dynamic, Yarn, Llama3, LongRope };

/// "rope_scaling" of Hugging Face's config.json, under its names.
struct RopeScaling {
  RopeType rope_type = RopeType::Default;
  std::optional<double> factor = {};  // at least 1. Yarn, LongRope; none: max_position_embeddings / original
  std::optional<int64_t> original_max_position_embeddings =
      {};  // Yarn, Llama3, LongRope; none: max_position_embeddings, which is the one of Dynamic
  std::optional<double> low_freq_factor = {}, high_freq_factor = {};  // Llama3
  std::optional<double> attention_factor = {};                        // Yarn, LongRope; none: as the papers have it
  double beta_fast = 32, beta_slow = 1;                               // Yarn: turns within the original length
  std::optional<double> mscale = {}, mscale_all_dim = {};             // Yarn
  bool truncate = true;                                               // Yarn: the ramp begins and ends at whole indices
  std::vector<double> short_factor = {}, long_factor = {};            // LongRope: one for each frequency
};

/// Cosines and sines (T, D) of the angles of positions.
struct RotaryTable {
  Tensor cos, sin;
  /// Rotates pairs (x_i, x_(i + D/2)) of (B, H, T, D).
  Tensor rotate(const Tensor& x) const;
};

// Note [The length of a text]
// Dynamic and LongRope choose the frequencies by the length of the text so far, which is the last position and one more. It is computed
// from the positions, on the device, so that decoding stays one program for all positions. What a cache holds already stays as it was
// rotated. As in transformers; but there Dynamic also remembers longer texts of earlier calls, until one is shorter than
// max_position_embeddings, and here a text's result is its own.

/// The frequencies of heads of `depth` elements.
struct RotaryEmbedding {
  RopeScaling scaling;
  double theta;
  int64_t depth, max_position_embeddings;
  /// ValueError for numbers that are missing or out of range.
  RotaryEmbedding(const RopeScaling& scaling, double theta, int64_t depth, int64_t max_position_embeddings);
  /// The most tokens that it is made for: factor times the original length where that is more; of Dynamic no end.
  int64_t max_length() const;
  /// What cosines and sines are multiplied by.
  double attention_factor() const;
  /// float64 (D/2): radians per position, in a text of `length` (0-dim, integer) tokens.
  Tensor inv_freq(const Tensor& length) const;
  /// positions: integers (T), the last one the highest.
  RotaryTable table(const Tensor& positions, DType dtype) const;

 private:
  double original() const;
  double factor() const;
  std::vector<double> stretch(bool long_text) const;
};

}  // namespace tapir::inline v0::models
