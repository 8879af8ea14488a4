#pragma once
#include "../dnn.h"
#include "library.h"

namespace tapir::inline v0::cpu::dnn {

/// A convolution of its own, and where its operands begin in those of the whole, in elements.
struct ConvPiece {
  ConvShape shape;
  int64_t x = 0, w = 0, y = 0, o = 0;  // o: the first output channel
  int64_t part = 0;                    // of a weight gradient: the sum it belongs to
};

/// Note [Pieces by shape]. Of a forward or data pass: images, rows and channels of the result. Of a weight gradient: its output channels, and
/// images, whose gradients are then added.
class ConvPieces {
 public:
  /// turned: of c's weight, O and C are swapped in memory.
  ConvPieces(const Conv& c, bool turned);
  int64_t count() const { return images_.count * rows_.count * channels_.count; }
  int64_t parts() const { return sums_ ? images_.count : 1; }
  bool cuts_channels() const { return channels_.count > 1; }
  ConvPiece piece(int64_t i) const {
    return piece(i / channels_.count / rows_.count, i / channels_.count % rows_.count, i % channels_.count);
  }
  /// A piece that most others are like.
  ConvPiece common() const { return piece(0, rows_.count / 2, 0); }
  /// Calls f with a piece of every shape there is, until it answers false.
  template <class F> bool each_shape(F&& f) const;

 private:
  ConvPiece piece(int64_t image, int64_t row, int64_t channel) const;
  void cut_result(double work);
  void cut_weight(double work);
  void cut_rows(int64_t first, int64_t count, ConvPiece& p) const;

  const ConvShape s_;
  const ConvPass pass_;
  const bool x_last_, w_last_, y_last_, turned_, sums_;
  Cut images_, rows_, channels_;
};

template <class F> bool ConvPieces::each_shape(F&& f) const {
  for (int64_t i = 0; i < images_.count; i += images_.to_last())
    for (int64_t r = 0; r < rows_.count; ++r)
      for (int64_t c = 0; c < channels_.count; c += channels_.to_last())
        if (!f(piece(i, r, c))) return false;
  return true;
}

}  // namespace tapir::inline v0::cpu::dnn
