#include "solver.h"

#include <cublas_v2.h>
#include <cusolverDn.h>

#include <mutex>
#include <vector>

#include "../../core/error.h"
#include "../runtime/graphs.h"
#include "libraries.h"

// cuSOLVER, and cuBLAS for triangles: batched where the library has a batched form, else one matrix after the other.
namespace tapir::inline v0::cuda_kernels::solver {
namespace {

void check_solver(cusolverStatus_t status) {
  if (status != CUSOLVER_STATUS_SUCCESS) [[unlikely]]
    fail(ErrorKind::Runtime, "[linalg] cuSOLVER: status {}", int(status));
}
void check_blas(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(ErrorKind::Runtime, "[linalg] cuBLAS: {}", cublasGetStatusString(status));
}

template <class T> struct Api;
template <> struct Api<float> {
  static constexpr auto potrf = cusolverDnSpotrf;
  static constexpr auto potrf_size = cusolverDnSpotrf_bufferSize;
  static constexpr auto potrf_batched = cusolverDnSpotrfBatched;
  static constexpr auto getrf = cusolverDnSgetrf;
  static constexpr auto getrf_size = cusolverDnSgetrf_bufferSize;
  static constexpr auto getrf_batched = cublasSgetrfBatched;
  static constexpr auto trsm_batched = cublasStrsmBatched;
  static constexpr auto geqrf = cusolverDnSgeqrf;
  static constexpr auto geqrf_size = cusolverDnSgeqrf_bufferSize;
  static constexpr auto orgqr = cusolverDnSorgqr;
  static constexpr auto orgqr_size = cusolverDnSorgqr_bufferSize;
  static constexpr auto syevd = cusolverDnSsyevd;
  static constexpr auto syevd_size = cusolverDnSsyevd_bufferSize;
  static constexpr auto gesvd = cusolverDnSgesvd;
  static constexpr auto gesvd_size = cusolverDnSgesvd_bufferSize;
};
template <> struct Api<double> {
  static constexpr auto potrf = cusolverDnDpotrf;
  static constexpr auto potrf_size = cusolverDnDpotrf_bufferSize;
  static constexpr auto potrf_batched = cusolverDnDpotrfBatched;
  static constexpr auto getrf = cusolverDnDgetrf;
  static constexpr auto getrf_size = cusolverDnDgetrf_bufferSize;
  static constexpr auto getrf_batched = cublasDgetrfBatched;
  static constexpr auto trsm_batched = cublasDtrsmBatched;
  static constexpr auto geqrf = cusolverDnDgeqrf;
  static constexpr auto geqrf_size = cusolverDnDgeqrf_bufferSize;
  static constexpr auto orgqr = cusolverDnDorgqr;
  static constexpr auto orgqr_size = cusolverDnDorgqr_bufferSize;
  static constexpr auto syevd = cusolverDnDsyevd;
  static constexpr auto syevd_size = cusolverDnDsyevd_bufferSize;
  static constexpr auto gesvd = cusolverDnDgesvd;
  static constexpr auto gesvd_size = cusolverDnDgesvd_bufferSize;
};

/// The libraries' handles of a device, set to the context's stream while this lives; never destroyed.
class Libraries {
 public:
  explicit Libraries(const Context& ctx) : on_(ctx.device), lock_(all().mutex), h_(all().of[ctx.device.index]) {
    for (const Vendor v : {Vendor::Cublas, Vendor::Cusolver})
      check_runtime(why_not(v).empty(), "[linalg] expected cuBLAS and cuSOLVER, got {}", why_not(v));
    if (!h_.solver || !h_.blas) refuse_capture("linalg");
    if (!h_.solver) check_solver(cusolverDnCreate(&h_.solver));
    if (!h_.blas) check_blas(cublasCreate(&h_.blas));
    check_solver(cusolverDnSetStream(h_.solver, stream_of(ctx)));
    check_blas(cublasSetStream(h_.blas, stream_of(ctx)));
  }
  operator cusolverDnHandle_t() const { return h_.solver; }
  cublasHandle_t blas() const { return h_.blas; }

 private:
  struct Handles {
    cusolverDnHandle_t solver = nullptr;
    cublasHandle_t blas = nullptr;
  };
  struct All {
    std::mutex mutex;
    Handles of[kMaxDevices];
  };
  static All& all() {
    static All* const a = new All;
    return *a;
  }
  OnDevice on_;
  std::lock_guard<std::mutex> lock_;
  Handles& h_;
};

template <class F> void for_type(DType dtype, F&& f) {
  if (dtype == kFloat64) f.template operator()<double>();
  else f.template operator()<float>();
}
cublasFillMode_t fill_of(bool upper) { return upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER; }

/// The addresses of the matrices, in device memory.
template <class T> T** addresses(Context& ctx, const Matrices& a) {
  std::vector<void*> list(size_t(a.batch));
  for (int64_t i = 0; i < a.batch; ++i) list[size_t(i)] = a.at(i);
  T** const there = ctx.scratch_of<T*>(a.batch);
  copy_bytes(there, ctx.device, list.data(), kCPU, a.batch * int64_t(sizeof(T*)), ctx.stream);
  return there;
}

}  // namespace

void cholesky(Context& ctx, const Matrices& a, bool upper, int* info) {
  const Libraries h(ctx);
  const int n = int(a.rows);
  for_type(a.dtype, [&]<class T>() {
    if (a.batch > 1)
      return check_solver(Api<T>::potrf_batched(h, fill_of(upper), n, addresses<T>(ctx, a), n, info, int(a.batch)));
    int size = 0;
    T* const x = static_cast<T*>(a.data);
    check_solver(Api<T>::potrf_size(h, fill_of(upper), n, x, n, &size));
    check_solver(Api<T>::potrf(h, fill_of(upper), n, x, n, ctx.scratch_of<T>(size), size, info));
  });
}

void lu(Context& ctx, const Matrices& a, int* pivots, int* info) {
  constexpr int64_t kBatched = 256;  // above, one after the other keeps the device busy too
  const Libraries h(ctx);
  const int n = int(a.rows);
  for_type(a.dtype, [&]<class T>() {
    if (a.batch > 1 && n <= kBatched)
      return check_blas(Api<T>::getrf_batched(h.blas(), n, addresses<T>(ctx, a), n, pivots, info, int(a.batch)));
    int size = 0;
    check_solver(Api<T>::getrf_size(h, n, n, static_cast<T*>(a.data), n, &size));
    T* const space = ctx.scratch_of<T>(size);
    for (int64_t i = 0; i < a.batch; ++i)
      check_solver(Api<T>::getrf(h, n, n, static_cast<T*>(a.at(i)), n, space, pivots + i * n, info + i));
  });
}

void solve_triangle(Context& ctx, const Matrices& a, const Matrices& b, bool upper, bool transpose, bool unit) {
  const Libraries h(ctx);
  for_type(a.dtype, [&]<class T>() {
    const T one = 1;
    check_blas(Api<T>::trsm_batched(h.blas(), CUBLAS_SIDE_LEFT, fill_of(upper), transpose ? CUBLAS_OP_T : CUBLAS_OP_N,
                                    unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT, int(b.rows), int(b.columns), &one,
                                    addresses<T>(ctx, a), int(a.rows), addresses<T>(ctx, b), int(b.rows),
                                    int(a.batch)));
  });
}

void qr(Context& ctx, const Matrices& a, const Matrices& q) {
  const Libraries h(ctx);
  const int m = int(a.rows), n = int(a.columns), k = std::min(m, n), columns = int(q.columns);
  int* const info = ctx.scratch_of<int>(1);  // only says whether arguments are valid
  for_type(a.dtype, [&]<class T>() {
    T* const tau = ctx.scratch_of<T>(k);
    int size = 0, q_size = 0;
    check_solver(Api<T>::geqrf_size(h, m, n, static_cast<T*>(a.data), m, &size));
    if (q.data) check_solver(Api<T>::orgqr_size(h, m, columns, k, static_cast<T*>(q.data), m, tau, &q_size));
    size = std::max(size, q_size);
    T* const space = ctx.scratch_of<T>(size);
    for (int64_t i = 0; i < a.batch; ++i) {
      T* const x = static_cast<T*>(a.at(i));
      check_solver(Api<T>::geqrf(h, m, n, x, m, tau, space, size, info));
      if (!q.data) continue;
      T* const to = static_cast<T*>(q.at(i));  // the reflectors are made into columns in place
      check_cuda(cudaMemcpyAsync(to, x, size_t(m) * size_t(k) * sizeof(T), cudaMemcpyDeviceToDevice, stream_of(ctx)),
                 "linalg");
      check_solver(Api<T>::orgqr(h, m, columns, k, to, m, tau, space, size, info));
    }
  });
}

void eigh(Context& ctx, const Matrices& a, bool upper, bool vectors, void* values, int* info) {
  const Libraries h(ctx);
  const int n = int(a.rows);
  const cusolverEigMode_t mode = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  for_type(a.dtype, [&]<class T>() {
    T* const w = static_cast<T*>(values);
    int size = 0;
    check_solver(Api<T>::syevd_size(h, mode, fill_of(upper), n, static_cast<T*>(a.data), n, w, &size));
    T* const space = ctx.scratch_of<T>(size);
    for (int64_t i = 0; i < a.batch; ++i)
      check_solver(
          Api<T>::syevd(h, mode, fill_of(upper), n, static_cast<T*>(a.at(i)), n, w + i * n, space, size, info + i));
  });
}

void svd(Context& ctx, const Matrices& a, void* s, const Matrices& u, const Matrices& vt, int* info) {
  const Libraries h(ctx);
  const int m = int(a.rows), n = int(a.columns);
  const signed char left = !u.data ? 'N' : u.columns == a.rows ? 'A' : 'S', right = vt.data ? 'A' : 'N';
  for_type(a.dtype, [&]<class T>() {
    int size = 0;
    check_solver(Api<T>::gesvd_size(h, m, n, &size));
    T *const space = ctx.scratch_of<T>(size), *const rest = ctx.scratch_of<T>(n);
    for (int64_t i = 0; i < a.batch; ++i)
      check_solver(Api<T>::gesvd(h, left, right, m, n, static_cast<T*>(a.at(i)), m, static_cast<T*>(s) + i * n,
                                 static_cast<T*>(u.data ? u.at(i) : nullptr), m,
                                 static_cast<T*>(vt.data ? vt.at(i) : nullptr), n, space, size, rest, info + i));
  });
}

}  // namespace tapir::inline v0::cuda_kernels::solver
