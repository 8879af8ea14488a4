#include "../../../cuda_kernels/vendor/blas.h"

#include "host_call.h"

namespace tapir::inline v0::cuda_kernels::blas {

bool product(Context& ctx, const Product& p) {
  host_call("blas::product", ctx, [p, device = ctx.device](HostCall& call) {
    const auto view = [&](const Matrix& x, int64_t rows, int64_t columns) {
      if (p.row_sums || p.gelu) return device_view(device, x.data, p.dtype, {rows, columns}, {x.row, x.column});
      return device_view(device, x.data, p.dtype, {p.batch, rows, columns}, {x.batch, x.row, x.column});
    };
    const TensorView a = call.read(view(p.a, p.m, p.k)), b = call.read(view(p.b, p.k, p.n));
    const TensorView out = call.write(view(p.out, p.m, p.n));
    MatmulParams params{.alpha = p.alpha};
    TensorView bias;
    if (p.beta != 0 && p.c.data == p.out.data) params.beta = p.beta, call.read(view(p.out, p.m, p.n));
    else if (p.beta != 0) bias = call.read(view(p.c, p.m, p.n));
    if (p.bias) bias = call.read(device_view(device, p.bias, p.dtype, {p.n}, {1}));
    TensorView aux;
    if (p.row_sums) aux = call.write(device_view(device, p.row_sums, p.dtype, {p.m}, {1}));
    if (p.before.data)
      aux = call.write(device_view(device, p.before.data, p.dtype, {p.m, p.n}, {p.before.row, p.before.column}));
    if (p.gelu) params.finish = MatmulFinish::GeluTanh;
    const double operations = 2.0 * double(p.batch) * double(p.m) * double(p.n) * double(p.k);
    if (call.counted(tapir::format("matmul {}", p.dtype), operations,
                     tapir::format("{} of ({}, {}) by ({}, {})", p.batch, p.m, p.k, p.k, p.n)))
      return;
    built_in_backend(DeviceType::CPU)->matmul(context(kCPU), out, a, b, bias, aux, params);
  });
  return true;
}

}  // namespace tapir::inline v0::cuda_kernels::blas
