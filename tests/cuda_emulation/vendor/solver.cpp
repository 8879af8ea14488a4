#include "../../../cuda_kernels/vendor/solver.h"

#include <utility>
#include <vector>

#include "host_call.h"

namespace tapir::inline v0::cuda_kernels::solver {
namespace {

TensorView view(const Context& ctx, const Matrices& m) {
  return device_view(ctx.device, m.data, m.dtype, {m.batch, m.rows, m.columns}, {m.rows * m.columns, 1, m.rows});
}
TensorView vectors(const Context& ctx, const void* data, DType dtype, int64_t batch, int64_t n) {
  return device_view(ctx.device, data, dtype, {batch, n}, {n, 1});
}
/// A tensor on the host of that shape, column by column: the kernels do not work in place.
Tensor host_copy(const Matrices& m) {
  Tensor t = empty({m.batch, m.columns, m.rows}, {.dtype = m.dtype});
  std::copy_n(static_cast<const char*>(m.data), m.batch * m.bytes(), static_cast<char*>(t.data_ptr()));
  return t;
}
TensorView matrices(const Tensor& t) {
  TensorView v(t);
  std::swap(v.sizes[1], v.sizes[2]), std::swap(v.strides[1], v.strides[2]);
  return v;
}
/// The number of the first bad matrix is all that the CPU's kernels tell.
void run(std::initializer_list<TensorView> outs, std::initializer_list<TensorView> ins, const LinalgParams& p,
         int* info = nullptr) {
  Context& c = context(kCPU);
  built_in_backend(DeviceType::CPU)->linalg(c, {outs.begin(), outs.size()}, {ins.begin(), ins.size()}, p);
  if (info && c.error.set) info[c.error.position] = int(c.error.value);
}

}  // namespace

void cholesky(Context& ctx, const Matrices& a, bool upper, int* info) {
  HostCall call("solver::cholesky", ctx);
  const TensorView to = call.write(view(ctx, a)),
                   bad = call.write(device_view(ctx.device, info, kInt32, {a.batch}, {1}));
  const Tensor from = host_copy(a);
  run({to, bad}, {matrices(from)}, {.op = LinalgOp::Cholesky, .upper = upper});
  call.end();
}

void lu(Context& ctx, const Matrices& a, int* pivots, int* info) {
  HostCall call("solver::lu", ctx);
  const TensorView to = call.write(view(ctx, a));
  call.write(vectors(ctx, pivots, kInt32, a.batch, a.rows)), call.write(vectors(ctx, info, kInt32, 1, a.batch));
  std::fill_n(info, a.batch, 0);
  const Tensor from = host_copy(a), order = empty({a.batch, a.rows}, {.dtype = kInt32}),
               sign = empty({a.batch}, {.dtype = a.dtype});
  run({to, order, sign}, {matrices(from)}, {LinalgOp::Lu}, info);
  for (int64_t b = 0; b < a.batch; ++b) {  // the order of the rows, told as swaps
    std::vector<int> wanted(size_t(a.rows)), rows(wanted.size());
    for (int64_t i = 0; i < a.rows; ++i)
      wanted[size_t(order.data<int32_t>()[b * a.rows + i])] = int(i), rows[size_t(i)] = int(i);
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t at = size_t(std::find(rows.begin() + int64_t(i), rows.end(), wanted[i]) - rows.begin());
      std::swap(rows[i], rows[at]);
      pivots[b * a.rows + int64_t(i)] = int(at) + 1;
    }
  }
  call.end();
}

void solve_triangle(Context& ctx, const Matrices& a, const Matrices& b, bool upper, bool transpose, bool unit) {
  HostCall call("solver::solve_triangle", ctx);
  TensorView triangle = call.read(view(ctx, a));
  const TensorView to = call.write(view(ctx, b));
  if (transpose) {
    std::swap(triangle.strides[1], triangle.strides[2]);
    upper = !upper;
  }
  const Tensor from = host_copy(b);
  run({to}, {triangle, matrices(from)}, {.op = LinalgOp::TriangularSolve, .upper = upper, .unit = unit});
  call.end();
}

void qr(Context& ctx, const Matrices& a, const Matrices& q) {
  HostCall call("solver::qr", ctx);
  const Tensor from = (call.write(view(ctx, a)), host_copy(a));
  TensorView r = view(ctx, a), to;
  r.device = kCPU;
  if (q.data) to = call.write(view(ctx, q));
  const bool complete = q.data && q.columns == a.rows;
  if (!complete) r.sizes[1] = std::min(a.rows, a.columns);
  run({to, r}, {matrices(from)}, {LinalgOp::Qr});
  call.end();
}

void eigh(Context& ctx, const Matrices& a, bool upper, bool wanted, void* values, int* info) {
  HostCall call("solver::eigh", ctx);
  const TensorView to = call.write(view(ctx, a)), w = call.write(vectors(ctx, values, a.dtype, a.batch, a.rows));
  call.write(vectors(ctx, info, kInt32, 1, a.batch));
  std::fill_n(info, a.batch, 0);
  const Tensor from = host_copy(a);
  run({w, wanted ? to : TensorView()}, {matrices(from)}, {.op = LinalgOp::Eigh, .upper = upper}, info);
  call.end();
}

void svd(Context& ctx, const Matrices& a, void* s, const Matrices& u, const Matrices& vt, int* info) {
  HostCall call("solver::svd", ctx);
  const TensorView from = call.read(view(ctx, a)), values = call.write(vectors(ctx, s, a.dtype, a.batch, a.columns));
  call.write(vectors(ctx, info, kInt32, 1, a.batch));
  std::fill_n(info, a.batch, 0);
  const TensorView left = u.data ? call.write(view(ctx, u)) : TensorView(),
                   right = vt.data ? call.write(view(ctx, vt)) : TensorView();
  run({values, left, right}, {from}, {LinalgOp::Svd}, info);
  call.end();
}

}  // namespace tapir::inline v0::cuda_kernels::solver
