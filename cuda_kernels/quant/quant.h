#pragma once
#include "../../core/math.h"
#include "../kernels.h"

// Note [Quantized products on a GPU]
// Float activations: few rows by a kernel that reads the weights 16 bytes at a time, once for 8 rows, and widens them in registers
// (quant_few.cu); more rows by matmul() with weights that were widened to the activations' dtype, a piece of them at a time that fits the
// second cache. That way moves 5 bytes for a weight of 8 bits (9 in float32), as long as 24 rows take the arithmetic of the first on an H100.
// Activations of 8 bits (quant_activations.cu): stored as q - 128 in int8, with which the sums are those of q by
// sum (q - z) w = sum (q - 128) w - (z - 128) sum w, in int32, as exact as the CPU's. Few rows by products of four bytes
// (quant_few.cu), more, and convolutions, by tensor cores (quant_tiles.cu), whose tiles must be enough for the device.
namespace tapir::inline v0::cuda_kernels {

/// y (m, n) = x (m, k) w^T + bias, or GELU by tanh of that: rows of x and of w lie k elements apart, those of y anyhow.
struct QuantProduct {
  int64_t m, n, k, bits, group;
  const void *x, *w;
  const float *scale, *bias;  // (n, k / group), (n) or null
  void* y;
  int64_t y_row, y_column;
  DType dtype;  // of x and y: float32 or 16 bits
  bool gelu = false;
};
inline constexpr int64_t kQuantFew = 24;  // rows
/// With a norm: its rows are x, as of few_rows_norm_product(). False, and nothing done, where they cannot be made.
bool quant_few_rows(Context& ctx, const QuantProduct& p, const entry::NormMatmul* norm = nullptr);
/// Rows [first, first + rows) of w as numbers of p.dtype.
void widen_weights(Context& ctx, const QuantProduct& p, int64_t first, int64_t rows, void* to);

/// Activations in 8 bits: rows of `stride` bytes, a multiple of 16, q - 128 of each, 0 behind the last element.
struct QuantRows {
  int8_t* data;
  int64_t stride;
};
/// What becomes of sums of (q - 128) w: (sum - (zero - 128) sum of w) scale w_scale[j] + bias[j], where row i has scale[i scale_step] and
/// zero[i scale_step].
struct QuantFinish {
  const float* scale = nullptr;
  const int32_t* zero = nullptr;
  int64_t scale_step = 0;
  const float *w_scale = nullptr, *bias = nullptr;
  void* y = nullptr;
  DType dtype = kFloat32;
};
/// x (m, k) by the range of each row, or by x_scale and x_zero where there are any.
QuantRows quantize_rows(Context& ctx, const QuantProduct& p, V x_scale, V x_zero, QuantFinish& finish);
/// An image with borders, (n, spatial..., groups, channels): `channels` of a group, a multiple of 16.
struct QuantImage {
  int64_t n = 0, size[3] = {1, 1, 1}, padding[3] = {}, groups = 1;  // size: without borders
  int64_t inner = 0, channels = 0;                                  // inner: of these, so many are there

  TAPIR_HD int64_t padded(int d) const { return size[d] + 2 * padding[d]; }
  TAPIR_HD int64_t pixels() const { return padded(0) * padded(1) * padded(2); }  // of one
};
/// x (N, C, spatial...) in float32 with any strides.
void quantize_image(Context& ctx, V x, const QuantImage& image, const float* scale, const int32_t* zero, int8_t* to);
/// w (o, inner, positions) as (o, positions, channels), zeros behind `inner`.
const int8_t* arrange_weights(Context& ctx, const char* op, const void* w, int64_t o, int64_t inner, int64_t positions,
                              int64_t channels);

/// An element's place by the four coordinates (n, spatial...) of a row of the product.
struct QuantPlaces {
  int64_t strides[4] = {};
};
/// Sums over `positions` in x times `channels` neighbours. Row i of the product is a place of the result; i's coordinates are those of
/// sizes (.., out[0], out[1], out[2]).
struct QuantTiles {
  int64_t m = 0, n = 0, k = 0;              // of a group; k = positions channels
  int64_t groups = 1, group_step = 0;       // bytes of x from a group to the next
  const int8_t *x = nullptr, *w = nullptr;  // w: (groups n, k)
  int64_t out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, channels = 0;
  QuantPlaces from = {}, to = {};  // of x, in bytes; of y, in elements
  int64_t step[3] = {},
          y_column = 0;  // bytes of x from a position of the kernel to the next; from a column of y to the next
  QuantFinish finish = {};
};
void quant_tiles(Context& ctx, const char* op, const QuantTiles& p);
/// Has a product of so many rows tiles for the whole device, or too many rows for the other way?
bool suits_quant_tiles(Device device, int64_t m, int64_t n);
/// The same for one group and one position, rows k apart; made for few.
void quant_few_integers(Context& ctx, const QuantTiles& p);

}  // namespace tapir::inline v0::cuda_kernels
