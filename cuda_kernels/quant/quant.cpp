// Products with quantized weights: operands as the kernels take them, and which one that is.
#include "quant.h"
#include "../../core/norm_matmul.h"
#include "../matmul/matmul.h"

#include <algorithm>

#include "../runtime/device.h"
#include "../stage.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int64_t kWidened =
    int64_t(16) << 20;  // bytes of weights that a product reads while the second cache has them

TensorView matrix(void* data, DType dtype, int64_t rows, int64_t columns, int64_t row, int64_t column, Device device) {
  TensorView v(Scalar(0), dtype);
  v.is_scalar = false, v.data = data, v.device = device, v.rank = 2;
  v.sizes[0] = rows, v.sizes[1] = columns, v.strides[0] = row, v.strides[1] = column;
  return v;
}

/// By matmul(), columns that fit the cache at a time.
void many_rows(Context& ctx, const QuantProduct& p, V x, V y, V bias) {
  const int64_t size = size_of(p.dtype), most = std::max<int64_t>(kWidened / (p.k * size) / 64 * 64, 64),
                width = std::min(p.n, most);
  void* const room = ctx.scratch(width * p.k * size);
  for (int64_t first = 0; first < p.n; first += width) {
    const int64_t columns = std::min(width, p.n - first);
    widen_weights(ctx, p, first, columns, room);
    TensorView out = y, add = bias;
    out.data = y.as<char>() + first * y.strides[1] * size, out.sizes[1] = columns;
    if (bias.defined()) add.data = bias.as<char>() + first * bias.strides[0] * size, add.sizes[0] = columns;
    matmul(ctx, {.out = out,
                 .a = x,
                 .b = matrix(room, p.dtype, p.k, columns, 1, p.k, y.device),
                 .bias = add,
                 .params = {.finish = p.gelu ? MatmulFinish::GeluTanh : MatmulFinish::None}});
  }
}

void float_product(Context& ctx, const QuantProduct& p, V x, V y, V bias) {
  if (p.m <= kQuantFew) return void(quant_few_rows(ctx, p));
  TensorView add = bias;
  if (bias.defined() && bias.dtype != p.dtype) {
    add.data = ctx.scratch(p.n * size_of(p.dtype)), add.dtype = p.dtype, add.strides[0] = 1;
    copy(ctx, {add, bias});
  }
  many_rows(ctx, p, x, y, add);
}

void integer_product(Context& ctx, const QuantProduct& p, V x_scale, V x_zero) {
  QuantTiles t{.m = p.m, .n = p.n, .y_column = p.y_column};
  t.finish = {.w_scale = p.scale, .bias = p.bias, .y = p.y, .dtype = p.dtype};
  const QuantRows rows = quantize_rows(ctx, p, x_scale, x_zero, t.finish);
  t.k = t.channels = rows.stride, t.x = rows.data, t.from.strides[0] = rows.stride, t.to.strides[0] = p.y_row;
  t.w = arrange_weights(ctx, "quant_matmul", p.w, p.n, p.k, 1, t.k);
  code_version(ctx.device) >= 75 && suits_quant_tiles(ctx.device, t.m, t.n) ? quant_tiles(ctx, "quant_matmul", t)
                                                                            : quant_few_integers(ctx, t);
}

QuantProduct product_of(Context& ctx, V y, void* x, int64_t k, V w, V scale, V bias, int64_t bits, int64_t group,
                        MatmulFinish finish) {
  return {y.sizes[0],
          y.sizes[1],
          k,
          bits,
          group,
          x,
          in_row_major(ctx, w).data,
          static_cast<const float*>(staged(ctx, scale).data),
          static_cast<const float*>(staged(ctx, bias).data),
          y.data,
          y.strides[0],
          y.strides[1],
          y.dtype,
          finish == MatmulFinish::GeluTanh};
}

}  // namespace

void quant_matmul(Context& ctx, const entry::QuantMatmul& c) {
  const TensorView& y = c.y;
  if (y.numel() == 0) return;
  const int64_t k = c.x.sizes[1];
  const bool floats = c.params.op == QuantOp::WeightOnly;
  if (k == 0) {
    if (c.bias.defined()) copy(ctx, {y, TensorView(c.bias).expand(y.shape())});
    else fill(ctx, {y, Scalar(0)});
  } else {
    TensorView x = in_row_major(ctx, c.x);
    if (reinterpret_cast<uintptr_t>(x.data) % 16 != 0) {
      TensorView aligned = x;
      aligned.data = ctx.scratch(x.numel() * size_of(x.dtype));
      copy(ctx, {aligned, x});
      x = aligned;
    }
    const QuantProduct p =
        product_of(ctx, y, x.data, k, c.w, c.w_scale, c.bias, c.params.bits, c.params.group, c.params.finish);
    floats ? float_product(ctx, p, x, y, c.bias) : integer_product(ctx, p, c.x_scale, c.x_zero);
  }
  if (c.params.finish == MatmulFinish::GeluTanh && (k == 0 || !floats)) unary(ctx, {y, y, {UnaryOp::Gelu, 1}});
}

/// norm_matmul() with a quantized weight by one kernel. False where operands do not lie as it wants them.
static bool quant_norm_product(Context& ctx, const entry::NormMatmul& c) {
  if (c.out.numel() == 0 || c.x.numel() == 0) return false;
  const QuantProduct p = product_of(ctx, c.out, nullptr, c.x.sizes[1], c.b, c.b_scale, c.bias, c.params.bits,
                                    c.params.group, c.params.finish);
  return quant_few_rows(ctx, p, &c);
}

void norm_matmul(Context& ctx, const entry::NormMatmul& c) {
  if (c.b_scale.defined() ? quant_norm_product(ctx, c) : few_rows_norm_product(ctx, c)) return;
  tapir::detail::norm_matmul_by_calls(ctx, c);
}

}  // namespace tapir::inline v0::cuda_kernels
