// cuBLASLt's functions, under the real vendor/blas.cpp. Descriptors are decoded, what the library demands of a call is demanded, and a
// product is computed by the rules of column-major matrices from the descriptors alone. Where the library's page documents a status for
// something legitimate (no kernel, a workspace too small), the status is given; a call that contradicts itself is a Fault, also where the
// library would only say CUBLAS_STATUS_INVALID_VALUE: our own code may answer that by another way, and nobody would see.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../count.h"
#include "../runtime.h"
#include "host_call.h"

using namespace tapir;
using cuda_emulation::Fault, cuda_kernels::HostCall, cuda_kernels::device_view;

struct cublasLtContext {
  int device;
};

namespace {

struct Layout {
  cudaDataType_t type;
  int64_t rows, columns, ld;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;
  void *bias = nullptr, *aux = nullptr;
  int64_t aux_ld = 0;
  const void *a_scale = nullptr, *b_scale = nullptr;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments[4] = {256, 256, 256, 256};  // A, B, C, D
};
constexpr uint64_t kVectorAlignment = 16, kWorkspaceAlignment = 256;  // of bias, row sums and auxiliary matrices

[[noreturn]] void fault(std::string_view call, const std::string& why) {
  throw Fault("[" + std::string(call) + "] " + why);
}
std::string text(auto number) { return std::to_string(number); }

// ---- descriptors and handles: what lives
auto& live = *new std::unordered_set<const void*>;
template <class Opaque, class Inside> struct Object : Opaque { Inside inside; };
template <class Opaque, class Inside> cublasStatus_t create(Opaque** to, const Inside& inside) {
  if (!to) return CUBLAS_STATUS_INVALID_VALUE;
  const std::lock_guard lock(cuda_emulation::runtime);
  auto* const made = new Object<Opaque, Inside>{{}, inside};
  live.insert(*to = made);
  return CUBLAS_STATUS_SUCCESS;
}
template <class Inside, class Opaque> Inside& inside(std::string_view call, Opaque* of) {
  const std::lock_guard lock(cuda_emulation::runtime);
  if (!live.count(of)) fault(call, "expected a live descriptor");
  return static_cast<Object<Opaque, Inside>*>(of)->inside;
}
template <class Inside, class Opaque> cublasStatus_t destroy(std::string_view call, Opaque* of) {
  if (!of) return CUBLAS_STATUS_SUCCESS;
  inside<Inside>(call, of);
  const std::lock_guard lock(cuda_emulation::runtime);
  live.erase(of);
  delete static_cast<Object<Opaque, Inside>*>(of);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t store(T& to, const void* value, size_t bytes) {
  if (!value || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
[[noreturn]] void no_attribute(std::string_view call, int number) {
  fault(call, "attribute " + text(number) + " is not one that this stand-in knows");
}
/// A handle is its device's, and works where that is the current one.
cublasStatus_t check_handle(std::string_view call, cublasLtHandle_t handle) {
  const std::lock_guard lock(cuda_emulation::runtime);
  if (!handle || !live.count(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (handle->device != cuda_emulation::current_device())
    fault(call, "the handle is of device " + text(handle->device) + ", the current one is " +
                    text(cuda_emulation::current_device()));
  return CUBLAS_STATUS_SUCCESS;
}

// ---- a call, decoded
/// D = alpha op(A) op(B) + beta C and an epilogue: D is m x n, op(A) m x k, op(B) k x n, all column-major.
struct Problem {
  std::string_view call;
  Operation op;
  Layout a{}, b{}, c{}, d{};
  int64_t m = 0, n = 0, k = 0;
  bool has(uint32_t bit) const { return op.epilogue & bit; }
  bool sums_a() const { return op.epilogue == CUBLASLT_EPILOGUE_BGRADA; }
  bool sums_b() const { return op.epilogue == CUBLASLT_EPILOGUE_BGRADB; }
  bool has_vector() const { return has(CUBLASLT_EPILOGUE_BIAS) || sums_a() || sums_b(); }
  bool has_aux() const { return has(128); }  // GELU_AUX, GELU_AUX_BIAS, DGELU
  bool reads_aux() const { return op.epilogue == CUBLASLT_EPILOGUE_DGELU; }
};

bool is_float8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
DType element_of(cudaDataType_t type) {
  return is_float8(type)      ? kUInt8
         : type == CUDA_R_32F ? kFloat32
         : type == CUDA_R_64F ? kFloat64
         : type == CUDA_R_16F ? kFloat16
                              : kBFloat16;
}
uint64_t alignment_of(const void* p) { return uint64_t(1) << std::countr_zero(uintptr_t(p) | 256); }

void check_layout(std::string_view call, const char* which, const Layout& x, const Layout& d, bool operand) {
  const std::string name = std::string(which) + ": ";
  if (x.rows < 1 || x.columns < 1) fault(call, name + text(x.rows) + " x " + text(x.columns) + " has no elements");
  if (x.ld < x.rows)
    fault(call, name + "expected a leading dimension of " + text(x.rows) + " rows or more, got " + text(x.ld));
  if (x.batch < 1 || x.batch != d.batch)
    fault(call, name + "expected a batch of " + text(d.batch) + " as D's, got " + text(x.batch));
  const bool widened = operand && ((d.type == CUDA_R_32F && (x.type == CUDA_R_16F || x.type == CUDA_R_16BF)) ||
                                   (is_float8(x.type) && d.type != CUDA_R_64F));
  if (x.type != d.type && !widened) fault(call, name + "expected D's type, got " + text(int(x.type)));
}
void check_shape(const Problem& p, const char* which, const Layout& x, bool turned, int64_t rows, int64_t columns) {
  const int64_t r = turned ? x.columns : x.rows, c = turned ? x.rows : x.columns;
  if (r != rows || c != columns)
    fault(p.call, std::string(which) + ": expected " + text(rows) + " x " + text(columns) + ", got " + text(r) + " x " +
                      text(c));
}
/// Do two elements share a place? Matrices of a batch may lie between each other's columns.
bool overlaps(const Layout& x) {
  std::pair<int64_t, int64_t> steps[] = {{1, x.rows}, {x.ld, x.columns}, {x.stride, x.batch}};
  std::sort(std::begin(steps), std::end(steps));
  int64_t last = 0;
  for (const auto& [stride, extent] : steps) {
    if (extent > 1 && stride <= last) return true;
    last += (extent - 1) * stride;
  }
  return false;
}
bool types_agree(const Operation& op, cudaDataType_t type) {
  switch (op.compute) {
    case CUBLAS_COMPUTE_64F: return type == CUDA_R_64F && op.scale == CUDA_R_64F;
    case CUBLAS_COMPUTE_32F_FAST_TF32: return type == CUDA_R_32F && op.scale == CUDA_R_32F;
    case CUBLAS_COMPUTE_32F: return type != CUDA_R_64F && op.scale == CUDA_R_32F;
  }
  return false;
}
void check_vector(const Problem& p, const char* what, const void* vector) {
  if (!vector) fault(p.call, std::string("the epilogue wants a pointer to ") + what);
  if (alignment_of(vector) < kVectorAlignment)
    fault(p.call,
          std::string(what) + ": expected an address aligned to 16 bytes, got one to " + text(alignment_of(vector)));
}
void check_epilogue(const Problem& p) {
  constexpr uint32_t kKnown[] = {
      CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_GELU,
      CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
      CUBLASLT_EPILOGUE_BGRADA,    CUBLASLT_EPILOGUE_BGRADB,   CUBLASLT_EPILOGUE_DGELU};
  if (std::find(std::begin(kKnown), std::end(kKnown), p.op.epilogue) == std::end(kKnown))
    fault(p.call, "epilogue " + text(p.op.epilogue) + " is not one that this stand-in knows");
  if (p.op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p.d.type == CUDA_R_64F)
    fault(p.call, "no epilogue is supported for CUDA_R_64F");
  if (p.has_vector()) check_vector(p, "the bias or its gradient", p.op.bias);
  else if (p.op.bias) fault(p.call, "a bias is set that epilogue " + text(p.op.epilogue) + " does not look at");
  if (p.has_vector() && p.op.bias_type != -1 && p.op.bias_type != p.d.type)
    fault(p.call, "expected a bias of D's type, got " + text(p.op.bias_type));
  if (p.has_aux()) check_vector(p, "the auxiliary matrix", p.op.aux);
  else if (p.op.aux) fault(p.call, "a matrix is set that epilogue " + text(p.op.epilogue) + " does not look at");
  if (p.has_aux() && (p.op.aux_ld < p.d.rows || p.op.aux_ld % 8 != 0))
    fault(p.call, "the auxiliary matrix: expected a leading dimension of " + text(p.d.rows) +
                      " rows or more, a multiple of 8, got " + text(p.op.aux_ld));
  if ((p.has_aux() || p.sums_a() || p.sums_b()) && p.d.batch > 1)
    fault(p.call, "the epilogue writes one vector or matrix for a batch of " + text(p.d.batch));
}

/// What this stand-in has of products of 8-bit floats.
void check_float8(const Problem& p) {
  if (!p.op.a_scale || !p.op.b_scale) fault(p.call, "8-bit floats: expected a scale of A and of B");
  if (p.has_vector() && p.d.type == CUDA_R_32F) fault(p.call, "8-bit floats: a bias of a result of 32 bits has 16");
  if (p.op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p.op.epilogue != CUBLASLT_EPILOGUE_BIAS)
    fault(p.call, "8-bit floats: epilogue " + text(p.op.epilogue) + " is not one that this stand-in knows");
  if (p.d.batch > 1 || p.a.ld != p.a.rows || p.b.ld != p.b.rows)
    fault(p.call, "8-bit floats: this stand-in knows one product of matrices without gaps");
}

Problem decode(std::string_view call, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  Problem p{call, inside<Operation>(call, op)};
  p.a = inside<Layout>(call, a), p.b = inside<Layout>(call, b);
  p.c = inside<Layout>(call, c), p.d = inside<Layout>(call, d);
  check_layout(call, "A", p.a, p.d, true), check_layout(call, "B", p.b, p.d, true);
  check_layout(call, "C", p.c, p.d, false), check_layout(call, "D", p.d, p.d, false);
  if (p.a.type != p.b.type && !(is_float8(p.a.type) && is_float8(p.b.type)))
    fault(call, "A and B: expected one type, got " + text(p.a.type) + " and " + text(p.b.type));
  const bool turn_a = p.op.transa != CUBLAS_OP_N, turn_b = p.op.transb != CUBLAS_OP_N;
  p.m = p.d.rows, p.n = p.d.columns, p.k = turn_a ? p.a.rows : p.a.columns;
  check_shape(p, "op(A)", p.a, turn_a, p.m, p.k), check_shape(p, "op(B)", p.b, turn_b, p.k, p.n);
  check_shape(p, "C", p.c, false, p.m, p.n);
  if (overlaps(p.d)) fault(call, "D: the matrices of the batch overlap");
  if (!types_agree(p.op, p.d.type))
    fault(call, "compute type " + text(int(p.op.compute)) + " with scale type " + text(int(p.op.scale)) +
                    " and matrices of type " + text(int(p.d.type)) + " is not supported");
  check_epilogue(p);
  if (is_float8(p.a.type)) check_float8(p);
  else if (p.op.a_scale || p.op.b_scale) fault(call, "a scale is set for a matrix that is not of 8-bit floats");
  return p;
}
/// Does the device have products of 8-bit floats, and of these formats, orders and sizes?
bool has_float8(const Problem& p) {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda_emulation::current_device());
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda_emulation::current_device());
  const bool formats = p.a.type == CUDA_R_8F_E4M3 || p.b.type == CUDA_R_8F_E4M3;
  const bool turned = p.op.transa == CUBLAS_OP_T && p.op.transb == CUBLAS_OP_N;
  const bool sizes = p.m % 16 == 0 && p.k % 16 == 0 && p.a.ld % 16 == 0 && p.b.ld % 16 == 0 &&
                     p.d.ld * size_of(element_of(p.d.type)) % 16 == 0;
  return 10 * major + minor >= 89 && formats && turned && sizes && p.op.compute == CUBLAS_COMPUTE_32F;
}

// ---- algorithms
/// What an algorithm holds: it may be kept as text and come back in another process.
struct Choice {
  uint64_t magic = 0x7a9141b1a5, problem = 0, workspace = 0, number = 0;
  uint8_t alignments[8] = {};  // of A, B, C, D, the vector and the auxiliary matrix, as powers of 2
  uint64_t sum = 0;
};
static_assert(sizeof(Choice) <= sizeof(cublasLtMatmulAlgo_t));
enum Proposal { Split, Small, RefusesToRun, Refused, kProposals };

uint64_t hash(const uint64_t* words, size_t n) {
  uint64_t h = 0xcbf29ce484222325;
  for (size_t i = 0; i < n; ++i) h = (h ^ words[i]) * 0x100000001b3, h ^= h >> 29;
  return h;
}
uint64_t hash_of(const Problem& p) {
  std::vector<uint64_t> words{uint64_t(p.op.compute), uint64_t(p.op.scale), uint64_t(p.op.transa),
                              uint64_t(p.op.transb),  p.op.epilogue,        uint64_t(p.op.aux_ld)};
  for (const Layout* x : {&p.a, &p.b, &p.c, &p.d})
    for (const int64_t w : {int64_t(x->type), x->rows, x->columns, x->ld, int64_t(x->batch), x->stride})
      words.push_back(uint64_t(w));
  return hash(words.data(), words.size());
}
uint64_t sum_of(Choice c) {
  c.sum = 0;
  uint64_t words[sizeof(Choice) / 8];
  std::memcpy(words, &c, sizeof c);
  return hash(words, std::size(words));
}
/// False where it is none of ours.
bool read(const cublasLtMatmulAlgo_t* algo, Choice& to) {
  if (!algo) return false;
  std::memcpy(&to, algo->data, sizeof to);
  return to.magic == Choice().magic && to.sum == sum_of(to) && to.number < kProposals;
}
/// TAPIR_EMULATED_BLAS: what the heuristic refuses: `refuse` all, `refuse-epilogues` those.
bool refuses(const Problem& p) {
  const char* const wish = std::getenv("TAPIR_EMULATED_BLAS");
  if (!wish) return false;
  const bool extra = p.op.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  return std::string_view(wish) == "refuse" || (extra && std::string_view(wish) == "refuse-epilogues");
}
uint64_t workspace_of(Proposal proposal, const Problem& p) {
  if (proposal == Small) return 512;
  return proposal == Split && p.m * p.n * p.k >= 1 << 15 ? 1 << 16 : 0;
}

// ---- the product
struct Operands {
  const void *a, *b, *c;
  void *d, *workspace;
  size_t workspace_bytes;
  double alpha, beta;
};

/// The transpose of a column-major matrix is row-major, which the CPU's kernels like best; `turned` gives the matrix itself.
TensorView transposed(const Layout& x, const void* data, bool turned = false) {
  int64_t rows = x.columns, columns = x.rows, row = x.ld, column = 1;
  if (turned) std::swap(rows, columns), std::swap(row, column);
  const DType dtype = element_of(x.type);
  if (x.batch == 1) return device_view(kCPU, data, dtype, {rows, columns}, {row, column});
  return device_view(kCPU, data, dtype, {x.batch, rows, columns}, {x.stride, row, column});
}
/// In float32. `tf32`: as tensor cores read it, 10 bits of the fraction. `room` holds the result.
TensorView widened(Context& host, TensorView v, std::vector<float>& room, bool tf32 = false) {
  const TensorView from = v;
  room.resize(size_t(v.numel()));
  v.data = room.data(), v.dtype = kFloat32;
  for (int64_t d = v.rank, step = 1; d-- > 0; step *= v.sizes[d]) v.strides[d] = step;
  built_in_backend(DeviceType::CPU)->copy(host, {v, from});
  for (float& x : room)
    if (tf32 && std::isfinite(x)) x = std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & ~0x1fffu);
  return v;
}
/// c.out = (c.a c.b) gelu'(c.before), rounded once.
void multiply_by_gelu_gradient(const BackendTable& host, Context& ctx, entry::Matmul c) {
  std::vector<float> room_out, room_before;
  const TensorView to = c.out;
  c.out = widened(ctx, to, room_out), c.before = widened(ctx, c.before, room_before);
  c.params.finish = MatmulFinish::GeluTanhGrad;
  host.matmul(ctx, c);
  host.copy(ctx, {to, c.out});
}
/// D^T = a_scale b_scale B^T A + bias, by the CPU's kernel.
void multiply_float8(HostCall& call, const Problem& p, const Operands& x) {
  const auto scale = [&](const void* at) { return call.read(device_view(kCPU, at, kFloat32, {}, {})); };
  const auto format = [](cudaDataType_t type) { return type == CUDA_R_8F_E4M3 ? Float8::E4M3 : Float8::E5M2; };
  entry::Float8Matmul c{.out = call.write(transposed(p.d, x.d)),
                        .a = call.read(transposed(p.b, x.b)),
                        .a_scale = scale(p.op.b_scale),
                        .b = call.read(transposed(p.a, x.a)),
                        .b_scale = scale(p.op.a_scale),
                        .params = {format(p.b.type), format(p.a.type)}};
  if (p.has_vector()) c.bias = call.read(device_view(kCPU, p.op.bias, element_of(p.d.type), {p.m}, {1}));
  if (x.alpha != 1 || x.beta != 0) fault(p.call, "8-bit floats: this stand-in knows alpha 1 and beta 0");
  if (call.counted("matmul float8", 2.0 * double(p.m) * double(p.n) * double(p.k),
                   tapir::format("({}, {}) by ({}, {})", p.n, p.k, p.k, p.m)))
    return;
  built_in_backend(DeviceType::CPU)->float8_matmul(context(kCPU), c);
}
/// D^T = alpha op(B)^T op(A)^T + beta C^T
void multiply(HostCall& call, const Problem& p, const Operands& x) {
  if (x.workspace_bytes && !cuda_emulation::counting()) {
    call.writes(x.workspace, x.workspace_bytes);
    std::memset(x.workspace, 0xff, x.workspace_bytes);
  }
  if (is_float8(p.a.type)) return multiply_float8(call, p, x);
  const BackendTable& host = *built_in_backend(DeviceType::CPU);
  Context& c = context(kCPU);
  TensorView b = call.read(transposed(p.b, x.b, p.op.transb != CUBLAS_OP_N)),
             a = call.read(transposed(p.a, x.a, p.op.transa != CUBLAS_OP_N)), bias, aux, sums_a;
  const TensorView out = call.write(transposed(p.d, x.d));
  TensorView start;
  if (x.beta != 0) start = call.read(transposed(p.c, x.c));
  const DType dtype = element_of(p.d.type);
  if (p.has(CUBLASLT_EPILOGUE_BIAS)) bias = call.read(device_view(kCPU, p.op.bias, dtype, {p.m}, {1}));
  if (p.sums_a()) sums_a = call.write(device_view(kCPU, p.op.bias, dtype, {1, p.m}, {p.m, 1}));
  if (p.sums_b()) aux = call.write(device_view(kCPU, p.op.bias, dtype, {p.n}, {1}));
  if (p.has_aux()) aux = device_view(kCPU, p.op.aux, dtype, {p.n, p.m}, {p.op.aux_ld, 1});
  if (p.has_aux()) aux = p.reads_aux() ? call.read(aux) : call.write(aux);
  if (call.counted(tapir::format("matmul {}", element_of(p.a.type)),
                   2.0 * p.d.batch * double(p.m) * double(p.n) * double(p.k),
                   tapir::format("{} of ({}, {}) by ({}, {})", p.d.batch, p.n, p.k, p.k, p.m)))
    return;
  if (start.defined() && x.c != x.d) host.copy(c, {out, start});
  MatmulParams params{.alpha = x.alpha, .beta = x.beta};
  if (p.has(CUBLASLT_EPILOGUE_GELU)) params.finish = MatmulFinish::GeluTanh;
  std::vector<float> room_a, room_b, room;
  const bool tf32 = p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32, widens = a.dtype != dtype;
  if (tf32 || widens || p.reads_aux()) a = widened(c, a, room_a, tf32), b = widened(c, b, room_b, tf32);
  if (p.reads_aux()) return multiply_by_gelu_gradient(host, c, {out, b, a, {}, {}, aux, params});
  host.matmul(c, {out, b, a, bias, aux, {}, params});
  if (p.sums_a()) host.reduce(c, {sums_a, a, {.op = ReduceOp::Sum, .dims = 1}});
}

double scalar(const Problem& p, const void* at) {
  return p.op.scale == CUDA_R_64F ? *static_cast<const double*>(at) : double(*static_cast<const float*>(at));
}
struct Range {
  uintptr_t begin, end;
  Range(const Layout& x, const void* data) : begin(uintptr_t(data)) {
    const int64_t last = (x.batch - 1) * x.stride + (x.columns - 1) * x.ld + x.rows;
    end = begin + uintptr_t(last * size_of(element_of(x.type)));
  }
  bool meets(const Range& o) const { return begin < o.end && o.begin < end; }
};
bool same(const Layout& x, const Layout& y) { return x.ld == y.ld && (x.batch == 1 || x.stride == y.stride); }

/// What only a call knows: addresses.
void check_addresses(const Problem& p, const Choice& choice, const Operands& x) {
  const void* const all[] = {x.a, x.b, x.c, x.d, p.has_vector() ? p.op.bias : nullptr, p.op.aux};
  const char* const names[] = {"A", "B", "C", "D", "the bias or its gradient", "the auxiliary matrix"};
  for (int i = 0; i < 6; ++i) {
    if (i < 4 && !all[i]) fault(p.call, std::string(names[i]) + ": expected an address, got none");
    if (all[i] && alignment_of(all[i]) < uint64_t(1) << choice.alignments[i])
      fault(p.call, std::string(names[i]) + ": the algorithm was chosen for addresses aligned to " +
                        text(1 << choice.alignments[i]) + " bytes, got one to " + text(alignment_of(all[i])));
  }
  const Range d(p.d, x.d);
  if (d.meets({p.a, x.a}) || d.meets({p.b, x.b})) fault(p.call, "D lies on A or B");
  if (x.beta != 0 && !(x.c == x.d && same(p.c, p.d)) && d.meets({p.c, x.c}))
    fault(p.call, "D lies on C in another layout");
  if (choice.workspace && uintptr_t(x.workspace) % kWorkspaceAlignment != 0)
    fault(p.call, "expected a workspace aligned to 256 bytes");
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* to) {
  const std::lock_guard lock(cuda_emulation::runtime);
  if (!to) return CUBLAS_STATUS_INVALID_VALUE;
  if (cuda_emulation::current_device() < 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (cuda_emulation::refuse_in_capture() != cudaSuccess) return CUBLAS_STATUS_ALLOC_FAILED;  // it allocates
  live.insert(*to = new cublasLtContext{cuda_emulation::current_device()});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const std::lock_guard lock(cuda_emulation::runtime);
  if (!live.erase(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasGetStatusString(status); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  return create(to, Layout{type, int64_t(rows), int64_t(columns), ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return destroy<Layout>(__func__, l); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t what,
                                                const void* value, size_t bytes) {
  Layout& x = inside<Layout>(__func__, l);
  switch (what) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return store(x.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return store(x.stride, value, bytes);
  }
  no_attribute(__func__, what);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* to, cublasComputeType_t compute, cudaDataType_t scale) {
  return create(to, Operation{compute, scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t op) { return destroy<Operation>(__func__, op); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t bytes) {
  Operation& x = inside<Operation>(__func__, op);
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return store(x.transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return store(x.transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return store(x.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return store(x.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return store(x.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return store(x.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return store(x.aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return store(x.a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return store(x.b_scale, value, bytes);
  }
  no_attribute(__func__, what);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* to) { return create(to, Preference()); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  return destroy<Preference>(__func__, p);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what, const void* value,
                                                    size_t bytes) {
  Preference& x = inside<Preference>(__func__, p);
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return store(x.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return store(x.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return store(x.alignments[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return store(x.alignments[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return store(x.alignments[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return store(x.alignments[3], value, bytes);
  }
  no_attribute(__func__, what);
}

/// The last of four would not run here, the third one says so only when it is run.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  if (const cublasStatus_t s = check_handle(__func__, handle); s != CUBLAS_STATUS_SUCCESS) return s;
  if (most < 1 || !results || !count) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem p = decode(__func__, op, a, b, c, d);
  const Preference wish = inside<Preference>(__func__, preference);
  *count = 0;
  const bool of_16_bytes = std::all_of(wish.alignments, wish.alignments + 4, [](uint32_t a) { return a >= 16; });
  if (refuses(p) || (is_float8(p.a.type) && !(has_float8(p) && of_16_bytes))) return CUBLAS_STATUS_NOT_SUPPORTED;
  Choice choice;
  choice.problem = hash_of(p);
  for (int i = 0; i < 4; ++i) {
    const uint32_t bytes = wish.alignments[i];
    if (!std::has_single_bit(bytes) || bytes < size_of(element_of((i < 2 ? p.a : p.d).type)))
      fault(__func__, "expected an alignment of whole elements, got " + text(bytes));
    choice.alignments[i] = uint8_t(std::countr_zero(bytes));
  }
  if (p.has_vector()) choice.alignments[4] = uint8_t(std::countr_zero(alignment_of(p.op.bias)));
  if (p.has_aux()) choice.alignments[5] = uint8_t(std::countr_zero(alignment_of(p.op.aux)));
  for (int i = 0; i < kProposals && *count < most; ++i) {
    choice.number = uint64_t(i), choice.workspace = workspace_of(Proposal(i), p);
    if (choice.workspace > wish.workspace) continue;
    if (choice.workspace && !(wish.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) continue;
    choice.sum = sum_of(choice);
    cublasLtMatmulHeuristicResult_t& r = results[(*count)++];
    r = {};
    r.workspaceSize = choice.workspace;
    r.state = i == Refused ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    if (r.state == CUBLAS_STATUS_SUCCESS) std::memcpy(r.algo.data, &choice, sizeof choice);
  }
  return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
  if (const cublasStatus_t s = check_handle(__func__, handle); s != CUBLAS_STATUS_SUCCESS) return s;
  const Problem p = decode(__func__, op, a, b, c, d);
  Choice choice;
  if (!result || !read(algo, choice) || choice.problem != hash_of(p)) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = choice.workspace, result->state = CUBLAS_STATUS_SUCCESS, result->wavesCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t bytes, cudaStream_t stream) {
  if (const cublasStatus_t s = check_handle(__func__, handle); s != CUBLAS_STATUS_SUCCESS) return s;
  if (!alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem p = decode(__func__, op, a_layout, b_layout, c_layout, d_layout);
  Choice choice;
  if (!read(algo, choice)) fault(__func__, "expected an algorithm that the heuristic gave");
  if (choice.problem != hash_of(p)) fault(__func__, "the algorithm was chosen for other descriptors");
  if (bytes < choice.workspace) return CUBLAS_STATUS_INVALID_VALUE;
  const Operands x{a, b, c, d, workspace, choice.workspace, scalar(p, alpha), scalar(p, beta)};
  check_addresses(p, choice, x);
  {
    const std::lock_guard lock(cuda_emulation::runtime);
    const cuda_emulation::Stream* s = cuda_emulation::stream_of(stream);
    if (!s || s->device != handle->device)
      fault(__func__, "expected a stream of device " + text(handle->device) + ", as the handle");
  }
  if (choice.number == RefusesToRun) return CUBLAS_STATUS_NOT_SUPPORTED;
  cuda_kernels::host_call("cublasLtMatmul", Device(DeviceType::CUDA, int8_t(handle->device)), stream,
                          [p, x](HostCall& call) { multiply(call, p, x); });
  return CUBLAS_STATUS_SUCCESS;
}
