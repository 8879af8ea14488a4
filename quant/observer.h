#pragma once
#include "../nn/module.h"

// Observers watch the values that pass, and choose a scale and a zero point for them: PyTorch's four, with its results.
namespace tapir::inline v0::quant {

/// MinMax: the range of all that was seen. MovingAverage: of what was seen lately. Histogram: the range that costs the least squared error.
/// PerChannel: one range for each element of axis 0.
enum class Range : uint8_t { MinMax, MovingAverage, Histogram, PerChannel };
struct ObserverOptions {
  Range range = Range::Histogram;
  DType dtype = kUInt8;                 // or int8
  bool symmetric = false;               // the zero point is 0 of int8, 128 of uint8
  double averaging_constant = 0.01;     // of MovingAverage
  int64_t bins = 2048;                  // of Histogram
  double eps = 1.1920928955078125e-07;  // the least scale
};
/// q = round(x / scale) + zero_point: float32 and int32, 0-dim or (n) of PerChannel.
struct QuantizationParams {
  Tensor scale, zero_point;
};

/// Buffers: min_val and max_val, inf and -inf at first, and the histogram. ValueError for values that are NaN.
struct Observer : nn::Module {
  ObserverOptions options;
  Buffer min_val, max_val, histogram;
  explicit Observer(const ObserverOptions& options = {});
  /// Watches x and returns it.
  Tensor forward(const Tensor& x);
  bool has_seen();
  /// ValueError where nothing was seen.
  QuantizationParams calculate_qparams();
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(options, min_val, max_val, histogram)

 private:
  void add_to_histogram(const Tensor& x, const Tensor& low, const Tensor& high);
};

}  // namespace tapir::inline v0::quant
