// Quantization. Scales are powers of two, so that no rounding hangs on the dtype.
#include <algorithm>
#include <cmath>

#include "case.h"

namespace op_cases {
namespace {

double round_even(double x) { return std::nearbyint(x); }
double quantized(double x, double scale, double zero, double low, double high) { return std::clamp(round_even(x / scale) + zero, low, high); }
/// Each element of x[0], with the scale and zero point of its place along `axis`.
Array by_channel(const Array& x, size_t axis, double low, double high, bool back) {
  return make(x.shape, [&](const Dims& i) {
    const double scale = 0.25 * double(i[int64_t(axis)] + 1), zero = double(2 * i[int64_t(axis)]);
    const double q = quantized(x.at(i), scale, zero, low, high);
    return back ? (q - zero) * scale : q;
  });
}
/// Scales 0.25, 0.5, ... and zero points 0, 2, ... of n channels, where x is.
Tensor scales(const Tensor& x, int64_t n) { return (arange(1, n + 1).to(kFloat32) * 0.25).to(x.device()); }
Tensor zeros_of(const Tensor& x, int64_t n) { return (arange(0, n) * 2).to(kInt32).to(x.device()); }
Tensor number(const Tensor& x, double v) { return full({}, v, {.dtype = kFloat32, .device = x.device()}); }
Tensor whole(const Tensor& x, int64_t v) { return full({}, v, {.dtype = kInt32, .device = x.device()}); }
/// A weight (O, K) of small integers.
Tensor weight(const Tensor& x, Shape shape) {
  const int64_t n = empty(shape, {.dtype = kInt8}).numel();  // refuses shapes that nothing holds
  return (remainder(arange(0, n) * 37, 251) - 125).to(kInt8).view(shape).to(x.device());
}
Tensor packed(const Tensor& x, int64_t rows, int64_t columns) {
  return pack_int4((remainder(arange(0, empty({rows, columns}, {.dtype = kInt8}).numel()) * 7, 16) - 8).to(kInt8).view({rows, columns})).to(x.device());
}
double weight_at(int64_t i) { return double(i * 37 % 251 - 125); }
double packed_at(int64_t i) { return double(i * 7 % 16 - 8); }

/// x[0] (..., K) times a weight (n, K): w(j, k) with its scale.
template <class W> Array product(const Array& x, int64_t n, W&& w) {
  Shape shape = x.shape;
  const int64_t k = shape.back(), rank = shape.size();
  shape[rank - 1] = n;
  return make(shape, [&](const Dims& i) {
    Dims at = i;
    double sum = 0;
    for (int64_t c = 0; c < k; ++c) at[rank - 1] = c, sum += x.at(at) * w(i[rank - 1], c);
    return sum;
  });
}

/// x as its E4M3 numbers and their scale would have it.
Array in_float8(const Array& x) {
  double amax = 0;
  for (const double v : x.v) amax = std::max(amax, std::abs(v));
  const float scale = amax == 0 ? 1.0f : float(amax) / 448;
  return make(x.shape, [&](const Dims& i) {
    const double v = double(float(x.at(i)) / scale), unit = v == 0 ? 1 : std::ldexp(1.0, std::max(std::ilogb(v), -6) - 3);
    return std::clamp(round_even(v / unit) * unit, -448.0, 448.0) * double(scale);
  });
}

}  // namespace

void quantize_cases(Table& table) {
  CASE(quantize_per_tensor, quantize_per_tensor(x[0], 0.125, 3, kInt8))
      .on("(2,3,4) | (0,3) | () | (70)")
      .gives(Gives::Other)
      .no_gradient()
      .finite_only()
      .EXPECT(make(x[0].shape, [&](const Dims& i) { return quantized(x[0].at(i), 0.125, 3, -128, 127); }));
  CASE(quantize_per_tensor, quantize_per_tensor(x[0], 0.0078125, 100, kUInt8))
      .on("(2,3,4) | (33)")
      .gives(Gives::Other)
      .no_gradient()
      .finite_only()
      .EXPECT(make(x[0].shape, [&](const Dims& i) { return quantized(x[0].at(i), 0.0078125, 100, 0, 255); }));
  CASE(quantize_per_channel, quantize_per_channel(x[0], scales(x[0], 3), zeros_of(x[0], 3), 1, kInt8))
      .on("(2,3,4) | (0,3) | (5,3)")
      .gives(Gives::Other)
      .no_gradient()
      .finite_only()
      .within(8)
      .EXPECT(by_channel(x[0], 1, -128, 127, false));
  CASE(dequantize, dequantize(x[0], 0.5, 3))
      .on("(2,3,4) | (0,3) | ()")
      .of(set_of({kInt8, kUInt8, kInt32}))
      .gives(Gives::Other)
      .in({{.low = 0, .high = 100}})
      .EXPECT(make(x[0].shape, [&](const Dims& i) { return 0.5 * (x[0].at(i) - 3); }));
  CASE(dequantize_per_channel, dequantize_per_channel(x[0], scales(x[0], 3), zeros_of(x[0], 3), -2))
      .on("(2,3,4) | (0,3,1)")
      .of(set_of({kInt8, kUInt8, kInt32}))
      .gives(Gives::Other)
      .in({{.low = 0, .high = 100}})
      .EXPECT(make(x[0].shape, [&](const Dims& i) { return 0.25 * double(i[1] + 1) * (x[0].at(i) - double(2 * i[1])); }));
  CASE(fake_quantize_per_tensor_affine, fake_quantize_per_tensor_affine(x[0], 0.125, 3, -8, 20))
      .on("(2,3,4) | (0,3) | ()")
      .no_gradient()
      .finite_only()
      .EXPECT(make(x[0].shape, [&](const Dims& i) { return (quantized(x[0].at(i), 0.125, 3, -8, 20) - 3) * 0.125; }));
  CASE(fake_quantize_per_channel_affine, fake_quantize_per_channel_affine(x[0], scales(x[0], 3), zeros_of(x[0], 3), 1, -8, 20))
      .on("(2,3,4) | (0,3)")
      .no_gradient()
      .finite_only()
      .EXPECT(by_channel(x[0], 1, -8, 20, true));

  CASE(pack_int4, pack_int4(x[0]))
      .on("(3,4) | (0,2) | (2,3,6)")
      .of(set_of({kInt8}))
      .gives(Gives::Other)
      .in({{.low = -8, .high = 7}})
      .EXPECT(make(
          [&] {
            Shape s = x[0].shape;
            s[s.size() - 1] /= 2;
            return s;
          }(),
          [&](const Dims& i) {
            Dims at = i;
            const int64_t last = i.size() - 1;
            at[last] = 2 * i[last];
            const double low = x[0].at(at);
            at[last] += 1;
            return low + 8 + 16 * (x[0].at(at) + 8);
          }));
  CASE(unpack_int4, unpack_int4(x[0]))
      .on("(3,4) | (0,2) | (5)")
      .of(set_of({kUInt8}))
      .gives(Gives::Other)
      .in({{.low = 0, .high = 255}})
      .EXPECT(make(
          [&] {
            Shape s = x[0].shape;
            s[s.size() - 1] *= 2;
            return s;
          }(),
          [&](const Dims& i) {
            Dims at = i;
            const int64_t last = i.size() - 1;
            at[last] = i[last] / 2;
            const auto byte = int(x[0].at(at));
            return double(i[last] % 2 ? byte >> 4 : byte & 15) - 8;
          }));
  CASE(dequantize_weight, dequantize_weight(weight(x[0], {3, 8}), x[0]))
      .on("(3) | (3,2)")
      .of(set_of({kFloat32}))
      .no_gradient()
      .finite_only()
      .EXPECT(make({3, 8}, [&](const Dims& i) {
        const double scale = x[0].shape.size() == 1 ? x[0].at({i[0]}) : x[0].at({i[0], i[1] / 4});
        return scale * weight_at(i[0] * 8 + i[1]);
      }));

  // Float activations.
  CASE(quantized_linear, quantized_linear(x[0], weight(x[0], {5, 7}), scales(x[0], 5), {.bias = x[1].to(kFloat32)}))
      .on("(2,3,7) (5) | (0,7) (5) | (7) (5) | (12,7) (5)")
      .of(set_of({kFloat32, kFloat16, kBFloat16}))
      .finite_only()
      .no_gradient()
      .within(64)
      .EXPECT([&] {
        Array y = product(x[0], 5, [](int64_t j, int64_t k) { return 0.25 * double(j + 1) * weight_at(j * 7 + k); });
        return make(y.shape, [&](const Dims& i) { return y.at(i) + x[1].at({i[i.size() - 1]}); });
      }());
  CASE(quantized_linear, quantized_linear(x[0], weight(x[0], {6, 96}), (ones({6, 3}) * 0.5).to(x[0].device())))
      .on("(1,96) | (3,96) | (20,96)")
      .of(set_of({kFloat32}))
      .finite_only()
      .within(256)
      .EXPECT(product(x[0], 6, [](int64_t j, int64_t k) { return 0.5 * weight_at(j * 96 + k); }))
      .no_gradient();
  CASE(quantized_linear, quantized_linear(x[0], packed(x[0], 6, 128), (ones({6, 4}) * 0.5).to(x[0].device()), {.bits = 4}))
      .on("(1,128) | (5,128) | (20,128)")
      .of(set_of({kFloat32}))
      .finite_only()
      .within(256)
      .no_gradient()
      .EXPECT(product(x[0], 6, [](int64_t j, int64_t k) { return 0.5 * packed_at(j * 128 + k); }));
  // Activations of 8 bits: by a known range, and each row by its own.
  CASE(quantized_linear,
       quantized_linear(x[0], weight(x[0], {5, 70}), scales(x[0], 5), {.input_scale = number(x[0], 0.03125), .input_zero_point = whole(x[0], 120)}))
      .on("(1,70) | (6,70) | (2,0,70)")
      .of(set_of({kFloat32}))
      .finite_only()
      .no_gradient()
      .within(64)
      .EXPECT(product(make(x[0].shape, [&](const Dims& i) { return (quantized(x[0].at(i), 0.03125, 120, 0, 255) - 120) * 0.03125; }), 5,
                      [](int64_t j, int64_t k) { return 0.25 * double(j + 1) * weight_at(j * 70 + k); }));
  CASE(quantized_linear, quantized_linear(x[0], weight(x[0], {5, 70}), scales(x[0], 5), {.dynamic = true}))
      .on("(1,70) | (6,70)")
      .of(set_of({kFloat32}))
      .finite_only()
      .no_gradient()
      .must([](const List& x, const Tensor& y) -> std::string {
        const Tensor exact = linear(x[0].to(kFloat64), dequantize_weight(weight(x[0], {5, 70}), scales(x[0], 5)).to(kFloat64));
        const double off = amax(abs(y.to(kFloat64) - exact)).item(), most = 0.5 * 6.1 / 255 * 70 * 125 * 1.25;
        return off <= most ? "" : "off by " + std::to_string(off);
      });
  CASE(float8_linear, float8_linear(x[0], x[1], x[2]))
      .on("(32,16) (32,16) (32) | (2,3,7) (5,7) (5) | (0,16) (16,16) (16) | (16) (16,16) (16) | (4,0) (3,0) (3)")
      .of(set_of({kFloat32, kFloat16, kBFloat16}))
      .finite_only()
      .no_gradient()
      .within(64)
      .EXPECT([&] {
        const Array w = in_float8(x[1]);
        const Array y = product(in_float8(x[0]), x[2].shape[0], [&](int64_t j, int64_t k) { return w.at({j, k}); });
        return make(y.shape, [&](const Dims& i) { return y.at(i) + x[2].at({i[i.size() - 1]}); });
      }());
  CASE(quantized_conv, quantized_conv(x[0], weight(x[0], {4, 3, 3, 3}), scales(x[0], 4), number(x[0], 0.03125), whole(x[0], 110), x[1].to(kFloat32),
                                      {.stride = 2, .padding = 1}))
      .on("(2,3,7,6) (4) | (3,5,5) (4) | (0,3,5,5) (4)")
      .of(set_of({kFloat32}))
      .finite_only()
      .no_gradient()
      .must([](const List& x, const Tensor& y) -> std::string {
        const Tensor q = dequantize(quantize_per_tensor(x[0], 0.03125, 110, kUInt8), 0.03125, 110).to(kFloat64);
        const Tensor w = (weight(x[0], {4, 3, 3, 3}).to(kFloat64) * scales(x[0], 4).to(kFloat64).view({4, 1, 1, 1}));
        const Tensor exact = conv2d(q, w, x[1].to(kFloat64), {.stride = 2, .padding = 1});
        if (!(y.shape() == exact.shape())) return "another shape";
        const double off = y.numel() ? amax(abs(y.to(kFloat64) - exact)).item() : 0;
        return off <= 1e-3 ? "" : "off by " + std::to_string(off);
      });
}

}  // namespace op_cases
