#pragma once
#include <string>

#include "../core/backend.h"
#include "../core/strided_matrix.h"

// The small functions behind which a library may stand: onednn/ has oneDNN, own/ nothing but this library's own kernels. Which of
// the two folders is built is CMake's choice. Each answers false where it has no good kernel; the caller then uses ours.
namespace tapir::inline v0::cpu::dnn {

/// Name and version of the library; "no library" without one.
std::string library();

using Matrix = StridedMatrix;
/// out = alpha a b + beta out + bias, of any strides; false where the library may not have out's.
/// dtype float32, or bfloat16 where has_bfloat16(); bias: n numbers of float32 or null (then alpha must be 1 where it is not).
struct Gemm {
  DType dtype = kFloat32;
  bool by_shape = false;  // the same bits for any number of threads
  int64_t batch = 1, m = 0, n = 0, k = 0;
  Matrix a, b, out;
  const float* bias = nullptr;
  float alpha = 1, beta = 0;
};
bool gemm(Context& ctx, const Gemm& g);

/// Whether bfloat16 has instructions of its own here. Elsewhere it is computed in float32, which is five times faster.
bool has_bfloat16();
/// Whether the library multiplies matrices of bfloat16 by AMX.
bool has_amx();

enum class ConvPass : uint8_t { Forward, BackwardData, BackwardWeight };
/// Sizes of a convolution; extents behind `spatial` are 1.
struct ConvShape {
  int64_t n = 0, c = 0, o = 0, groups = 1, spatial = 2;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, padding[3] = {}, dilation[3] = {1, 1, 1};
};
/// A dense operand in (N, C, spatial...) or channels-last order; the weight's N and C are O and C / groups.
struct Image {
  void* data = nullptr;
  bool channels_last = false;
};
/// One pass: what it computes is written (y; x; w), the rest read. bias, of a forward pass alone: float32 or null.
struct Conv {
  ConvPass pass;
  DType dtype = kFloat32;
  bool by_shape = false;  // the same bits for any number of threads
  ConvShape shape;
  Image x, w, y;
  float* bias = nullptr;
};
bool conv(Context& ctx, const Conv& c);

/// y = multiply[o] (x * w - zero[o]) + bias[o] without padding: x uint8 and y float32 channels-last, w int8 (O, C / groups, spatial...).
struct QuantConv {
  ConvShape shape;
  void *x, *w, *y;
  float* multiply;
  const int32_t* zero;  // what a sum is where all of x is 0
  float* bias;          // or null
};
bool quant_conv(Context& ctx, const QuantConv& c);

}  // namespace tapir::inline v0::cpu::dnn
