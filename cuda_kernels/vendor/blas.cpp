#include "blas.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "../../core/choices.h"
#include "../../core/error.h"
#include "../runtime/graphs.h"
#include "libraries.h"

// cuBLASLt: descriptors and the library's choice of kernel are made once per signature (10 to 100 us) and kept. The choice is the library's
// first proposal or, with cudnn_benchmark, the fastest of several in a trial, which is kept on disk too (Note [Choices kept on disk]). What it refuses is counted for library_report().
namespace tapir::inline v0::cuda_kernels::blas {
namespace {

void check_blas(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(ErrorKind::Runtime, "[matmul] cuBLASLt: {}", cublasLtGetStatusString(status));
}

cudaDataType_t type_of(DType dtype) {
  return dtype == kFloat32 ? CUDA_R_32F : dtype == kFloat64 ? CUDA_R_64F : dtype == kFloat16 ? CUDA_R_16F : CUDA_R_16BF;
}

cudaDataType_t type_of(Float8 format) { return format == Float8::E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2; }
cudaDataType_t type_of_a(const Product& p) { return p.float8.a_scale ? type_of(p.float8.a) : type_of(p.dtype); }
cudaDataType_t type_of_b(const Product& p) { return p.float8.a_scale ? type_of(p.float8.b) : type_of(p.dtype); }

/// The largest power of two, up to 256, that divides the address.
int64_t alignment(const void* p) {
  const auto at = uintptr_t(p) | 256;
  return int64_t(at & (~at + 1));
}

/// All that the choice of a kernel depends on, as words: compared as such.
struct Signature {
  int64_t words[24] = {};  // the first one: the device's number
  bool operator<(const Signature& o) const { return std::memcmp(words, o.words, sizeof(words)) < 0; }
};

Signature signature(Device device, const Product& p, bool tf32, bool tried) {
  int64_t flags = int64_t(p.dtype) | int64_t(p.widens) << 20 | int64_t(tf32) << 8 | int64_t(p.bias != nullptr) << 9 |
                  int64_t(p.beta != 0) << 10;
  flags |= int64_t(p.a.column == 1) << 11 | int64_t(p.b.column == 1) << 12 | int64_t(tried) << 16;
  flags |= int64_t(p.sums && p.sums_b) << 17 | int64_t(p.sums != nullptr) << 13 | int64_t(p.gelu) << 14 |
           int64_t(p.before.data != nullptr) << 18;
  flags |= int64_t(p.float8.a_scale != nullptr) << 21 | int64_t(p.float8.a) << 22 | int64_t(p.float8.b) << 23;
  Signature s;
  int64_t* to = s.words;
  for (const int64_t v : {int64_t(device.index), flags, p.batch, p.m, p.n, p.k}) *to++ = v;
  for (const Matrix* x : {&p.a, &p.b, &p.c, &p.out})
    for (const int64_t v : {x->batch, std::max(x->row, x->column), alignment(x->data)}) *to++ = v;
  *to++ = alignment(p.sums ? p.sums : p.bias);
  *to++ = alignment(p.before.data), *to = p.before.row;
  return s;
}

constexpr size_t kWorkspace = size_t(32) << 20;

struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};
  bool found = false;
  std::string why;  // not
  Tally* tally = nullptr;
};

template <class T> void set(cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t what, T value) {
  check_blas(cublasLtMatmulDescSetAttribute(to, what, &value, sizeof(value)));
}
template <class T> void set(cublasLtMatrixLayout_t to, cublasLtMatrixLayoutAttribute_t what, T value) {
  check_blas(cublasLtMatrixLayoutSetAttribute(to, what, &value, sizeof(value)));
}
template <class T> void set(cublasLtMatmulPreference_t to, cublasLtMatmulPreferenceAttributes_t what, T value) {
  check_blas(cublasLtMatmulPreferenceSetAttribute(to, what, &value, sizeof(value)));
}

/// A matrix in BLAS's words, where columns come first: our rows are its columns, a transposed one is plain.
cublasLtMatrixLayout_t layout(const Product& p, const Matrix& x, int64_t rows, int64_t columns, cudaDataType_t type) {
  if (x.column != 1) std::swap(rows, columns);
  cublasLtMatrixLayout_t l = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&l, type, uint64_t(columns), uint64_t(rows), x.column == 1 ? x.row : x.column));
  set(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(p.batch));
  set(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t(x.batch));
  return l;
}

/// Our a, whose rows are summed, is the library's B; our b its A.
cublasLtEpilogue_t epilogue_of(const Product& p) {
  if (p.sums) return p.sums_b ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
  if (p.gelu == Gelu::Gradient) return CUBLASLT_EPILOGUE_DGELU;
  if (p.gelu == Gelu::None) return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (p.before.data) return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}
/// What a plan is told at each call.
void set_pointers(const Plan& plan, const Product& p) {
  const void* const vector = p.sums ? p.sums : p.bias;
  if (vector) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  if (p.before.data) set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.before.data);
  if (!p.float8.a_scale) return;
  set(plan.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(p.float8.b_scale));
  set(plan.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(p.float8.a_scale));
}

/// Row-major out = a b is column-major out^T = b^T a^T: the library's first operand is our b.
Plan make_plan(const Product& p, bool tf32) {
  const bool wide = p.dtype == kFloat64;
  const cublasComputeType_t compute = wide   ? CUBLAS_COMPUTE_64F
                                      : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                             : CUBLAS_COMPUTE_32F;
  Plan plan;
  check_blas(cublasLtMatmulDescCreate(&plan.operation, compute, wide ? CUDA_R_64F : CUDA_R_32F));
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, p.b.column == 1 ? CUBLAS_OP_N : CUBLAS_OP_T);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, p.a.column == 1 ? CUBLAS_OP_N : CUBLAS_OP_T);
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
  if (p.bias || p.sums) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(type_of(p.out_dtype())));
  if (p.before.data) set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.before.row);
  set_pointers(plan, p);
  plan.a = layout(p, p.b, p.k, p.n, type_of_b(p)), plan.b = layout(p, p.a, p.m, p.k, type_of_a(p));
  const cudaDataType_t to = type_of(p.out_dtype());
  plan.c = layout(p, p.c, p.m, p.n, to), plan.d = layout(p, p.out, p.m, p.n, to);
  return plan;
}

constexpr int kMostTried = 8, kRuns = 3;

/// The library's proposals, the one that it takes for the fastest first.
int propose(cublasLtHandle_t handle, Plan& plan, const Product& p, cublasLtMatmulHeuristicResult_t* found, int most) {
  cublasLtMatmulPreference_t wish = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&wish));
  set(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(alignment(p.b.data)));
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(alignment(p.a.data)));
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(alignment(p.c.data)));
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(alignment(p.out.data)));
  if (p.dtype == kFloat16 || p.dtype == kBFloat16)  // partial sums stay in float32
    set(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, plan.operation, plan.a, plan.b, plan.c, plan.d, wish, most, found, &count);
  cublasLtMatmulPreferenceDestroy(wish);
  const bool extra = p.sums || p.gelu != Gelu::None || p.widens ||
                     p.float8.a_scale;  // may be refused in any way: there is another way
  if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED && !extra) check_blas(status);
  plan.why = status == CUBLAS_STATUS_SUCCESS ? "no algorithm" : cublasLtGetStatusString(status);
  if (status != CUBLAS_STATUS_SUCCESS) return 0;
  return int(std::remove_if(found, found + count, [](const auto& f) { return f.state != CUBLAS_STATUS_SUCCESS; }) -
             found);
}

cublasStatus_t run(Context& ctx, cublasLtHandle_t handle, const Plan& plan, const Product& p, void* workspace) {
  const float alpha = float(p.alpha), beta = float(p.beta);
  const bool wide = p.dtype == kFloat64;
  return cublasLtMatmul(handle, plan.operation, wide ? static_cast<const void*>(&p.alpha) : &alpha, p.b.data, plan.a,
                        p.a.data, plan.b, wide ? static_cast<const void*>(&p.beta) : &beta, p.c.data, plan.c,
                        p.out.data, plan.d, &plan.choice.algo, workspace, plan.choice.workspaceSize, stream_of(ctx));
}

/// Milliseconds of a few products, -1 where the library refuses. Waits.
float time_of(Context& ctx, cublasLtHandle_t handle, const Plan& plan, const Product& p, void* workspace,
              const cudaEvent_t (&events)[2]) {
  if (run(ctx, handle, plan, p, workspace) != CUBLAS_STATUS_SUCCESS) return -1;
  check_cuda(cudaEventRecord(events[0], stream_of(ctx)), "matmul");
  for (int i = 0; i < kRuns; ++i)
    if (run(ctx, handle, plan, p, workspace) != CUBLAS_STATUS_SUCCESS) return -1;
  check_cuda(cudaEventRecord(events[1], stream_of(ctx)), "matmul");
  count_host_wait();
  check_cuda(cudaEventSynchronize(events[1]), "matmul");
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, events[0], events[1]), "matmul");
  return ms;
}

/// The fastest proposal on the product's own operands, whose result it leaves. False where there was nothing to try, or no room.
bool choose_by_trial(Context& ctx, cublasLtHandle_t handle, Plan& plan, const Product& p) {
  cublasLtMatmulHeuristicResult_t found[kMostTried];
  const int count = propose(handle, plan, p, found, kMostTried);
  plan.found = count > 0;
  if (count > 0) plan.choice = found[0];
  if (count < 2) return false;
  void* workspace = nullptr;
  try {
    workspace = ctx.scratch(int64_t(kWorkspace));
  } catch (const OutOfMemoryError&) {  // no room for trials: the first proposal serves
    return false;
  }
  cudaEvent_t events[2];
  for (cudaEvent_t& e : events) check_cuda(cudaEventCreate(&e), "matmul");
  float best = -1;
  Plan tried = plan;
  for (int i = 0; i < count; ++i) {
    tried.choice = found[i];
    const float ms = time_of(ctx, handle, tried, p, workspace, events);
    if (ms >= 0 && (best < 0 || ms < best)) best = ms, plan.choice = found[i];
  }
  for (const cudaEvent_t e : events) cudaEventDestroy(e);
  return best >= 0;
}

// A choice as text: the library's own words for an algorithm, which it can read again in the same version.
std::string text_of(const cublasLtMatmulAlgo_t& algo) {
  std::string text;
  char word[20];
  for (const uint64_t w : algo.data)
    std::snprintf(word, sizeof(word), "%016llx", static_cast<unsigned long long>(w)), text += word;
  return text;
}
bool from_text(const std::string& text, cublasLtMatmulAlgo_t& algo) {
  constexpr size_t kDigits = 16;
  if (text.size() != kDigits * std::size(algo.data) || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  for (size_t i = 0; i < std::size(algo.data); ++i)
    algo.data[i] = std::stoull(text.substr(i * kDigits, kDigits), nullptr, 16);
  return true;
}
std::string key_of(Device device, const Signature& s) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, device.index), "matmul");
  std::string words = "matmul";
  for (size_t i = 1; i < std::size(s.words); ++i) words += ' ' + std::to_string(s.words[i]);
  return choice_key(properties.name, "cublasLt", int64_t(cublasLtGetVersion()), words);
}

/// What an earlier trial found, else a trial, unless the product adds to its own result, which would then grow.
void choose(Context& ctx, cublasLtHandle_t handle, Plan& plan, const Product& p, const Signature& s, bool trial) {
  if (!trial) {
    plan.found = propose(handle, plan, p, &plan.choice, 1) > 0;
    return;
  }
  const std::string key = key_of(ctx.device, s);
  plan.found = from_text(kept_choices().find(key), plan.choice.algo) &&
               cublasLtMatmulAlgoCheck(handle, plan.operation, plan.a, plan.b, plan.c, plan.d, &plan.choice.algo,
                                       &plan.choice) == CUBLAS_STATUS_SUCCESS &&
               plan.choice.workspaceSize <= kWorkspace;
  if (plan.found) return;
  if (choose_by_trial(ctx, handle, plan, p)) kept_choices().keep(key, text_of(plan.choice.algo));
}

const char* name_of(Float8 format) { return format == Float8::E4M3 ? "float8_e4m3" : "float8_e5m2"; }
/// A product, for people.
std::string call_of(const Product& p, bool tf32) {
  const auto side = [](const Matrix& x) { return x.column == 1 ? "" : "^T"; };
  return tapir::format(
      "matmul {}{}{}{} ({}, {}){} x ({}, {}){}, batch {}{}{}{}{}, alpha {}, beta {}, aligned to {}, {}, {}",
      p.float8.a_scale ? tapir::format("{} x {} to ", name_of(p.float8.a), name_of(p.float8.b)) : "", p.dtype,
      p.widens ? tapir::format(" to {}", p.out_dtype()) : "", tf32 ? " by TF32" : "", p.m, p.k, side(p.a), p.k, p.n,
      side(p.b), p.batch, p.bias ? " + bias" : "",
      p.gelu == Gelu::None      ? ""
      : p.gelu == Gelu::Forward ? ", gelu"
                                : ", its gradient",
      p.before.data ? " with its operand" : "",
      !p.sums    ? ""
      : p.sums_b ? ", sums of columns"
                 : ", sums of rows",
      p.alpha, p.beta, alignment(p.a.data), alignment(p.b.data), alignment(p.out.data));
}

/// Never destroyed: products may be asked for by destructors after main.
struct Plans {
  std::mutex mutex;
  cublasLtHandle_t handles[kMaxDevices] = {};
  std::map<Signature, Plan> plans;
};

}  // namespace

bool product(Context& ctx, const Product& given) {
  static auto* const plans = new Plans;
  if (given.batch > INT32_MAX) return false;
  Product p = given;
  if (p.beta == 0) p.c = p.out;
  const OnDevice on(ctx.device);
  const bool tf32 =
      p.dtype == kFloat32 && !p.float8.a_scale && settings->matmul_allow_tf32.load(std::memory_order_relaxed);
  std::lock_guard lock(plans->mutex);  // a plan holds addresses of the call between these lines
  cublasLtHandle_t& handle = plans->handles[ctx.device.index];
  if (!handle) refuse_capture("matmul"), check_blas(cublasLtCreate(&handle));
  bool tuned = (ctx.autotune || settings->cudnn_benchmark.load(std::memory_order_relaxed)) &&
               !(p.beta != 0 && p.c.data == p.out.data);
  Signature key = signature(ctx.device, p, tf32, tuned);
  auto it = plans->plans.find(key);
  if (it == plans->plans.end() && tuned && is_captured(ctx)) {  // a trial waits
    key = signature(ctx.device, p, tf32, tuned = false);
    it = plans->plans.find(key);
  }
  if (it == plans->plans.end()) {
    Plan made = make_plan(p, tf32);
    choose(ctx, handle, made, p, key, tuned);
    made.tally = &tally_of(Vendor::CublasLt, call_of(p, tf32));
    it = plans->plans.emplace(key, made).first;
  }
  const Plan& plan = it->second;
  if (!plan.found) return count_refusal(*plan.tally, plan.why), false;
  set_pointers(plan, p);
  const size_t bytes = plan.choice.workspaceSize;
  check_blas(run(ctx, handle, plan, p, bytes ? ctx.scratch(int64_t(bytes)) : nullptr));
  return ++plan.tally->served, true;
}

}  // namespace tapir::inline v0::cuda_kernels::blas
