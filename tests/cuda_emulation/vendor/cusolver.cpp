// cuSOLVER's functions and those of cuBLAS for batches, under the real vendor/solver.cpp: LAPACK's rules, in place, on column-major matrices
// on the stream of the handle. What they leave undefined becomes NaN, work space too.
#include <cusolverDn.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "../runtime.h"
#include "host_call.h"

using namespace tapir;
using cuda_emulation::Fault, cuda_kernels::HostCall, cuda_kernels::device_view;

struct cublasContext {
  int device;
  cudaStream_t stream = nullptr;
};
struct cusolverDnContext : cublasContext {};

namespace {

[[noreturn]] void fault(const char* call, const std::string& why) { throw Fault("[" + std::string(call) + "] " + why); }

auto& live = *new std::unordered_map<const void*, cublasContext*>;  // handles, of both libraries
bool is_live(const void* handle) {
  const std::lock_guard lock(cuda_emulation::runtime);
  return live.count(handle) > 0;
}
/// False where the library cannot be started: it allocates memory then.
template <class H> bool create(H** to) {
  const std::lock_guard lock(cuda_emulation::runtime);
  if (!to || cuda_emulation::current_device() < 0 || cuda_emulation::refuse_in_capture() != cudaSuccess) return false;
  *to = new H{};
  (*to)->device = cuda_emulation::current_device();
  live[*to] = *to;
  return true;
}
template <class H> bool destroy(H* handle) {
  const std::lock_guard lock(cuda_emulation::runtime);
  if (!live.erase(handle)) return false;
  delete handle;
  return true;
}
/// work(call) on the handle's stream.
template <class F> void run(const char* name, const cublasContext& h, F work) {
  {
    const std::lock_guard lock(cuda_emulation::runtime);
    if (h.device != cuda_emulation::current_device())
      fault(name, "the handle is of another device than the current one");
    const cuda_emulation::Stream* s = cuda_emulation::stream_of(h.stream);
    if (!s || s->device != h.device) fault(name, "the handle's stream is not one of its device");
  }
  cuda_kernels::host_call(name, Device(DeviceType::CUDA, int8_t(h.device)), h.stream, std::move(work));
}
void check_space(const char* call, int size, int wanted) {
  if (size < wanted)
    fault(call, "expected a work space of " + std::to_string(wanted) + " elements, as its _bufferSize says, got " +
                    std::to_string(size));
}

/// A column-major matrix, or by t() its transpose.
template <class T> struct Matrix {
  T* data;
  int64_t row, column;
  T& operator()(int64_t i, int64_t j) const { return data[i * row + j * column]; }
  Matrix t() const { return {data, column, row}; }
};
template <class T> Matrix<T> matrix(HostCall& call, T* data, int64_t m, int64_t n, int64_t ld, bool written = true) {
  const size_t bytes = m && n ? size_t((n - 1) * ld + m) * sizeof(T) : 0;
  if (written) call.writes(data, bytes);
  else call.reads(data, bytes);
  return {data, 1, ld};
}
/// The work space of a call: lost.
template <class T> void spoil(HostCall& call, T* space, int64_t n) {
  call.writes(space, size_t(n) * sizeof(T));
  std::fill_n(space, n, std::numeric_limits<T>::quiet_NaN());
}
template <class T> void spoil(Matrix<T> a, int64_t m, int64_t n) {
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < m; ++i) a(i, j) = std::numeric_limits<T>::quiet_NaN();
}
int* numbers(HostCall& call, int* to, int64_t n) {
  call.writes(to, size_t(n) * sizeof(int));
  return to;
}
/// The addresses of a batch, which lie in device memory.
template <class T> std::vector<T*> addresses(HostCall& call, T* const* list, int batch) {
  call.reads(list, size_t(batch) * sizeof(T*));
  return {list, list + batch};
}

// ---- LAPACK; the result is `info`
/// Of the lower triangle: a = l l^T.
template <class T> int cholesky(Matrix<T> a, int n) {
  for (int j = 0; j < n; ++j) {
    T d = a(j, j);
    for (int k = 0; k < j; ++k) d -= a(j, k) * a(j, k);
    if (!(d > 0)) return j + 1;
    a(j, j) = std::sqrt(d);
    for (int i = j + 1; i < n; ++i) {
      T sum = a(i, j);
      for (int k = 0; k < j; ++k) sum -= a(i, k) * a(j, k);
      a(i, j) = sum / a(j, j);
    }
  }
  return 0;
}
template <class T> int lu(Matrix<T> a, int m, int n, int* pivots) {
  int info = 0;
  for (int j = 0; j < std::min(m, n); ++j) {
    int at = j;
    for (int i = j + 1; i < m; ++i)
      if (std::abs(a(i, j)) > std::abs(a(at, j))) at = i;
    if (pivots) pivots[j] = at + 1;
    else at = j;
    for (int k = 0; k < n && at != j; ++k) std::swap(a(j, k), a(at, k));
    if (a(j, j) == 0) {
      info = info ? info : j + 1;
      continue;
    }
    for (int i = j + 1; i < m; ++i) a(i, j) /= a(j, j);
    for (int k = j + 1; k < n; ++k)
      for (int i = j + 1; i < m; ++i) a(i, k) -= a(i, j) * a(j, k);
  }
  return info;
}
/// b becomes a^-1 alpha b.
template <class T> void solve(Matrix<T> a, Matrix<T> b, int m, int n, bool lower, bool unit, T alpha) {
  for (int c = 0; c < n; ++c)
    for (int step = 0; step < m; ++step) {
      const int i = lower ? step : m - 1 - step;
      T sum = alpha * b(i, c);
      for (int k = lower ? 0 : i + 1; k < (lower ? i : m); ++k) sum -= a(i, k) * b(k, c);
      b(i, c) = unit ? sum : sum / a(i, i);
    }
}
/// (1 - tau v v^T) on columns [first, n), v = (0, ..., 1, a(k + 1.., k)).
template <class T> void reflect(Matrix<T> a, Matrix<T> v, T tau, int k, int m, int first, int n) {
  for (int j = first; j < n; ++j) {
    T dot = a(k, j);
    for (int i = k + 1; i < m; ++i) dot += v(i, k) * a(i, j);
    a(k, j) -= tau * dot;
    for (int i = k + 1; i < m; ++i) a(i, j) -= tau * dot * v(i, k);
  }
}
template <class T> void qr(Matrix<T> a, int m, int n, T* tau) {
  for (int k = 0; k < std::min(m, n); ++k) {
    T rest = 0;
    for (int i = k + 1; i < m; ++i) rest = std::hypot(rest, a(i, k));
    tau[k] = 0;
    if (rest == 0) continue;
    const T head = a(k, k), norm = -std::copysign(std::hypot(head, rest), head);
    tau[k] = (norm - head) / norm;
    for (int i = k + 1; i < m; ++i) a(i, k) /= head - norm;
    a(k, k) = norm;
    reflect(a, a, tau[k], k, m, k + 1, n);
  }
}
/// The first n columns of the product of k reflections, in place.
template <class T> void make_q(Matrix<T> a, int m, int n, int k, const T* tau) {
  for (int j = k; j < n; ++j)
    for (int i = 0; i < m; ++i) a(i, j) = T(i == j);
  for (int j = k; j-- > 0;) {
    reflect(a, a, tau[j], j, m, j + 1, n);
    for (int i = 0; i < j; ++i) a(i, j) = 0;
    a(j, j) = 1 - tau[j];
    for (int i = j + 1; i < m; ++i) a(i, j) *= -tau[j];
  }
}

/// Eigenvalues and singular values are the CPU's kernels' to find, from a dense copy of `a`, which is lost.
template <class T> constexpr DType kType = sizeof(T) == 8 ? kFloat64 : kFloat32;
template <class T> TensorView view(Matrix<T> a, int64_t m, int64_t n) {
  return device_view(kCPU, a.data, kType<T>, {m, n}, {a.row, a.column});
}
template <class T> TensorView vector(HostCall& call, T* data, int64_t n) {
  return call.write(device_view(kCPU, data, kType<T>, {n}, {1}));
}
template <class T>
int decompose(std::initializer_list<TensorView> outs, Matrix<T> a, int m, int n, const LinalgParams& params) {
  std::vector<T> copy(size_t(m) * size_t(n));
  const Matrix<T> from{copy.data(), 1, m};
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) from(i, j) = a(i, j);
  spoil(a, m, n);
  Context& c = context(kCPU);
  const TensorView in = view(from, m, n);
  built_in_backend(DeviceType::CPU)->linalg(c, {outs, {in}, params});
  return c.error.set ? int(c.error.value) : 0;
}

// ---- the calls, of both types
enum Which { Potrf = 3, Getrf = 7, Geqrf = 16, Orgqr = 11, Syevd = 33, Gesvd = 21 };
/// Elements of work space: other ones for each function and size.
int space_of(Which which, int m, int n) { return m + 3 * n + int(which); }
cusolverStatus_t give_size(const void* handle, bool valid, int* size, Which which, int m, int n) {
  if (!is_live(handle)) return CUSOLVER_STATUS_NOT_INITIALIZED;
  if (!valid || !size) return CUSOLVER_STATUS_INVALID_VALUE;
  *size = space_of(which, m, n);
  return CUSOLVER_STATUS_SUCCESS;
}
bool fits(int m, int n, int ld) { return m >= 0 && n >= 0 && ld >= std::max(1, m); }
template <class F> cusolverStatus_t solver_call(const char* name, cusolverDnHandle_t handle, bool valid, F work) {
  if (!is_live(handle)) return CUSOLVER_STATUS_NOT_INITIALIZED;
  if (!valid) return CUSOLVER_STATUS_INVALID_VALUE;
  run(name, *handle, std::move(work));
  return CUSOLVER_STATUS_SUCCESS;
}
template <class F> cublasStatus_t blas_call(const char* name, cublasHandle_t handle, bool valid, F work) {
  if (!is_live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!valid) return CUBLAS_STATUS_INVALID_VALUE;
  run(name, *handle, std::move(work));
  return CUBLAS_STATUS_SUCCESS;
}

template <class T> cusolverStatus_t potrf(const char* name, cusolverDnHandle_t h, cublasFillMode_t fill, int n, T* a,
                                          int lda, T* space, int size, int* info) {
  check_space(name, size, space_of(Potrf, n, n));
  return solver_call(name, h, fits(n, n, lda), [=](HostCall& call) {
    spoil(call, space, size);
    const Matrix<T> x = matrix(call, a, n, n, lda);
    *numbers(call, info, 1) = cholesky(fill == CUBLAS_FILL_MODE_UPPER ? x.t() : x, n);
  });
}
/// The other triangle is work space.
template <class T> cusolverStatus_t potrf_batched(const char* name, cusolverDnHandle_t h, cublasFillMode_t fill, int n,
                                                  T** list, int lda, int* info, int batch) {
  return solver_call(name, h, fits(n, n, lda) && batch >= 0, [=](HostCall& call) {
    numbers(call, info, batch);
    const std::vector<T*> all = addresses(call, list, batch);
    for (int b = 0; b < batch; ++b) {
      const Matrix<T> x = matrix(call, all[size_t(b)], n, n, lda), a = fill == CUBLAS_FILL_MODE_UPPER ? x.t() : x;
      for (int j = 1; j < n; ++j) spoil(Matrix<T>{&a(0, j), a.row, a.column}, j, 1);
      info[b] = cholesky(a, n);
    }
  });
}
template <class T> cusolverStatus_t getrf(const char* name, cusolverDnHandle_t h, int m, int n, T* a, int lda, T* space,
                                          int* pivots, int* info) {
  return solver_call(name, h, fits(m, n, lda), [=](HostCall& call) {
    spoil(call, space, space_of(Getrf, m, n));
    const Matrix<T> x = matrix(call, a, m, n, lda);
    if (pivots) numbers(call, pivots, std::min(m, n));
    *numbers(call, info, 1) = lu(x, m, n, pivots);
  });
}
template <class T> cublasStatus_t getrf_batched(const char* name, cublasHandle_t h, int n, T* const* list, int lda,
                                                int* pivots, int* info, int batch) {
  return blas_call(name, h, fits(n, n, lda) && batch >= 0, [=](HostCall& call) {
    numbers(call, info, batch);
    if (pivots) numbers(call, pivots, int64_t(batch) * n);
    const std::vector<T*> all = addresses(call, list, batch);
    for (int b = 0; b < batch; ++b)
      info[b] = lu(matrix(call, all[size_t(b)], n, n, lda), n, n, pivots ? pivots + int64_t(b) * n : nullptr);
  });
}
template <class T> cublasStatus_t trsm_batched(const char* name, cublasHandle_t h, cublasSideMode_t side,
                                               cublasFillMode_t fill, cublasOperation_t op, cublasDiagType_t diagonal,
                                               int m, int n, const T* alpha, const T* const* a, int lda, T* const* b,
                                               int ldb, int batch) {
  if (side != CUBLAS_SIDE_LEFT) fault(name, "this stand-in only knows triangles on the left");
  const bool turned = op != CUBLAS_OP_N, lower = (fill == CUBLAS_FILL_MODE_LOWER) != turned;
  return blas_call(
      name, h, fits(m, m, lda) && fits(m, n, ldb) && batch >= 0 && alpha, [=, factor = *alpha](HostCall& call) {
        const std::vector<const T*> triangles = addresses(call, a, batch);
        const std::vector<T*> all = addresses(call, b, batch);
        for (size_t i = 0; i < all.size(); ++i) {
          const Matrix<T> x = matrix(call, const_cast<T*>(triangles[i]), m, m, lda, false);
          solve(turned ? x.t() : x, matrix(call, all[i], m, n, ldb), m, n, lower, diagonal == CUBLAS_DIAG_UNIT, factor);
        }
      });
}
template <class T> cusolverStatus_t geqrf(const char* name, cusolverDnHandle_t h, int m, int n, T* a, int lda, T* tau,
                                          T* space, int size, int* info) {
  check_space(name, size, space_of(Geqrf, m, n));
  return solver_call(name, h, fits(m, n, lda), [=](HostCall& call) {
    spoil(call, space, size);
    const Matrix<T> x = matrix(call, a, m, n, lda);
    call.writes(tau, size_t(std::min(m, n)) * sizeof(T));
    qr(x, m, n, tau);
    *numbers(call, info, 1) = 0;
  });
}
template <class T> cusolverStatus_t orgqr(const char* name, cusolverDnHandle_t h, int m, int n, int k, T* a, int lda,
                                          const T* tau, T* space, int size, int* info) {
  check_space(name, size, space_of(Orgqr, m, n));
  return solver_call(name, h, fits(m, n, lda) && k >= 0 && k <= n && n <= m, [=](HostCall& call) {
    spoil(call, space, size);
    const Matrix<T> x = matrix(call, a, m, n, lda);
    call.reads(tau, size_t(k) * sizeof(T));
    make_q(x, m, n, k, tau);
    *numbers(call, info, 1) = 0;
  });
}
template <class T> cusolverStatus_t syevd(const char* name, cusolverDnHandle_t h, cusolverEigMode_t mode,
                                          cublasFillMode_t fill, int n, T* a, int lda, T* w, T* space, int size,
                                          int* info) {
  check_space(name, size, space_of(Syevd, n, n));
  return solver_call(name, h, fits(n, n, lda), [=](HostCall& call) {
    spoil(call, space, size);
    const Matrix<T> x = matrix(call, a, n, n, lda);
    const TensorView vectors = mode == CUSOLVER_EIG_MODE_VECTOR ? view(x, n, n) : TensorView();
    const LinalgParams params{.op = LinalgOp::Eigh, .upper = fill == CUBLAS_FILL_MODE_UPPER};
    *numbers(call, info, 1) = decompose({vector(call, w, n), vectors}, x, n, n, params);
  });
}
/// Wants rows >= columns; gives V^T.
template <class T> cusolverStatus_t gesvd(const char* name, cusolverDnHandle_t h, signed char left, signed char right,
                                          int m, int n, T* a, int lda, T* s, T* u, int ldu, T* vt, int ldvt, T* space,
                                          int size, T* rest, int* info) {
  check_space(name, size, space_of(Gesvd, m, n));
  const bool none = left == 'N' && right == 'N', both = (left == 'A' || left == 'S') && (right == 'A' || right == 'S');
  if (!none && !both) fault(name, "this stand-in only knows all vectors or none");
  const bool valid = fits(m, n, lda) && m >= n && fits(m, n, ldu) && fits(n, n, ldvt);
  return solver_call(name, h, valid, [=](HostCall& call) {
    spoil(call, space, size), spoil(call, rest, std::min(m, n) - 1);
    const Matrix<T> x = matrix(call, a, m, n, lda);
    TensorView us, vts;
    const int columns = left == 'A' ? m : n;
    if (both) us = view(matrix(call, u, m, columns, ldu), m, columns), vts = view(matrix(call, vt, n, n, ldvt), n, n);
    *numbers(call, info, 1) = decompose({vector(call, s, n), us, vts}, x, m, n, {.op = LinalgOp::Svd});
  });
}

}  // namespace

cublasStatus_t cublasCreate_v2(cublasHandle_t* to) {
  return create(to) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
  return destroy(h) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
  if (!is_live(h)) return CUBLAS_STATUS_NOT_INITIALIZED;
  h->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t status) {
#define EMULATED_TEXT(name, value) \
  if (status == name) return #name;
  EMULATED_BLAS_STATUS(EMULATED_TEXT)
  return "unknown status";
}
cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* to) {
  return create(to) ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_NOT_INITIALIZED;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t h) {
  return destroy(h) ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_NOT_INITIALIZED;
}
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t h, cudaStream_t stream) {
  if (!is_live(h)) return CUSOLVER_STATUS_NOT_INITIALIZED;
  h->stream = stream;
  return CUSOLVER_STATUS_SUCCESS;
}

#define EMULATED_SOLVER(S, T)                                                                                          \
  cublasStatus_t cublas##S##getrfBatched(cublasHandle_t h, int n, T* const a[], int lda, int* pivots, int* info,       \
                                         int batch) {                                                                  \
    return getrf_batched<T>(__func__, h, n, a, lda, pivots, info, batch);                                              \
  }                                                                                                                    \
  cublasStatus_t cublas##S##trsmBatched(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t fill,                \
                                        cublasOperation_t op, cublasDiagType_t diagonal, int m, int n, const T* alpha, \
                                        const T* const a[], int lda, T* const b[], int ldb, int batch) {               \
    return trsm_batched<T>(__func__, h, side, fill, op, diagonal, m, n, alpha, a, lda, b, ldb, batch);                 \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##potrf_bufferSize(cusolverDnHandle_t h, cublasFillMode_t, int n, T*, int lda,         \
                                                   int* size) {                                                        \
    return give_size(h, fits(n, n, lda), size, Potrf, n, n);                                                           \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##potrf(cusolverDnHandle_t h, cublasFillMode_t fill, int n, T* a, int lda, T* space,   \
                                        int size, int* info) {                                                         \
    return potrf<T>(__func__, h, fill, n, a, lda, space, size, info);                                                  \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##potrfBatched(cusolverDnHandle_t h, cublasFillMode_t fill, int n, T* a[], int lda,    \
                                               int* info, int batch) {                                                 \
    return potrf_batched<T>(__func__, h, fill, n, a, lda, info, batch);                                                \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##getrf_bufferSize(cusolverDnHandle_t h, int m, int n, T*, int lda, int* size) {       \
    return give_size(h, fits(m, n, lda), size, Getrf, m, n);                                                           \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##getrf(cusolverDnHandle_t h, int m, int n, T* a, int lda, T* space, int* pivots,      \
                                        int* info) {                                                                   \
    return getrf<T>(__func__, h, m, n, a, lda, space, pivots, info);                                                   \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##geqrf_bufferSize(cusolverDnHandle_t h, int m, int n, T*, int lda, int* size) {       \
    return give_size(h, fits(m, n, lda), size, Geqrf, m, n);                                                           \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##geqrf(cusolverDnHandle_t h, int m, int n, T* a, int lda, T* tau, T* space, int size, \
                                        int* info) {                                                                   \
    return geqrf<T>(__func__, h, m, n, a, lda, tau, space, size, info);                                                \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##orgqr_bufferSize(cusolverDnHandle_t h, int m, int n, int k, const T*, int lda,       \
                                                   const T*, int* size) {                                              \
    return give_size(h, fits(m, n, lda) && k >= 0 && k <= n && n <= m, size, Orgqr, m, n);                             \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##orgqr(cusolverDnHandle_t h, int m, int n, int k, T* a, int lda, const T* tau,        \
                                        T* space, int size, int* info) {                                               \
    return orgqr<T>(__func__, h, m, n, k, a, lda, tau, space, size, info);                                             \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##syevd_bufferSize(cusolverDnHandle_t h, cusolverEigMode_t, cublasFillMode_t, int n,   \
                                                   const T*, int lda, const T*, int* size) {                           \
    return give_size(h, fits(n, n, lda), size, Syevd, n, n);                                                           \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##syevd(cusolverDnHandle_t h, cusolverEigMode_t mode, cublasFillMode_t fill, int n,    \
                                        T* a, int lda, T* w, T* space, int size, int* info) {                          \
    return syevd<T>(__func__, h, mode, fill, n, a, lda, w, space, size, info);                                         \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##gesvd_bufferSize(cusolverDnHandle_t h, int m, int n, int* size) {                    \
    return give_size(h, m >= n && n >= 0, size, Gesvd, m, n);                                                          \
  }                                                                                                                    \
  cusolverStatus_t cusolverDn##S##gesvd(cusolverDnHandle_t h, signed char left, signed char right, int m, int n, T* a, \
                                        int lda, T* s, T* u, int ldu, T* vt, int ldvt, T* space, int size, T* rest,    \
                                        int* info) {                                                                   \
    return gesvd<T>(__func__, h, left, right, m, n, a, lda, s, u, ldu, vt, ldvt, space, size, rest, info);             \
  }
EMULATED_SOLVER(S, float)
EMULATED_SOLVER(D, double)
