#include "dnn.h"

#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "../../core/error.h"

// cuDNN: descriptors and the choice of an algorithm are made once per signature and kept. The choice is the library's own first guess, or,
// with cudnn_benchmark, the fastest of all in a trial.
namespace tapir::inline v0::cuda_kernels::dnn {
namespace {

void check_dnn(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    fail(ErrorKind::Runtime, "[conv] cuDNN {}: {}", int64_t(cudnnGetVersion()), cudnnGetErrorString(status));
}

constexpr size_t kTrialWorkspace = size_t(256) << 20;

struct Request {
  Pass pass;
  TensorView x, w, y;
  ConvParams params;
  bool channels_last, deterministic, tf32, benchmark;
};

struct Signature {
  int64_t words[32] = {};
  bool operator<(const Signature& o) const { return std::memcmp(words, o.words, sizeof(words)) < 0; }
};

Signature signature(Device device, const Request& r) {
  Signature s;
  int64_t* to = s.words;
  *to++ = int64_t(device.index) | int64_t(r.pass) << 8 | int64_t(r.x.dtype) << 16 | int64_t(r.channels_last) << 24 |
          int64_t(r.deterministic) << 25 | int64_t(r.tf32) << 26 | int64_t(r.benchmark) << 27;
  *to++ = r.params.spatial, *to++ = r.params.groups;
  for (const TensorView* v : {&r.x, &r.w, &r.y}) to = std::copy_n(v->sizes, v->rank, to);
  for (int64_t d = 0; d < r.params.spatial; ++d)
    *to++ = r.params.stride[d], *to++ = r.params.padding[d], *to++ = r.params.dilation[d];
  return s;
}

cudnnDataType_t type_of(DType dtype) {
  return dtype == kFloat32   ? CUDNN_DATA_FLOAT
         : dtype == kFloat64 ? CUDNN_DATA_DOUBLE
         : dtype == kFloat16 ? CUDNN_DATA_HALF
                             : CUDNN_DATA_BFLOAT16;
}

struct Plan {
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;
  int algorithm = -1;  // of the pass's own enum; -1: there is none
  size_t workspace = 0;
};

/// The library wants two or three spatial axes: one becomes (1, n).
int to_extents(V v, int (&out)[5]) {
  int rank = 0;
  for (int64_t d = 0; d < v.rank; ++d) {
    if (d == 2 && v.rank == 3) out[rank++] = 1;
    out[rank++] = int(v.sizes[d]);
  }
  return rank;
}

cudnnTensorDescriptor_t image(V v, bool channels_last) {
  int extents[5], strides[5];
  const int rank = to_extents(v, extents);
  int64_t step = 1;
  if (channels_last) strides[1] = 1, step = extents[1];
  for (int d = rank; d-- > 0;)
    if (!channels_last || d != 1) strides[d] = int(step), step *= extents[d];
  cudnnTensorDescriptor_t t = nullptr;
  check_dnn(cudnnCreateTensorDescriptor(&t));
  check_dnn(cudnnSetTensorNdDescriptor(t, type_of(v.dtype), rank, extents, strides));
  return t;
}

void describe(Plan& plan, const Request& r) {
  const ConvParams& p = r.params;
  plan.x = image(r.x, r.channels_last), plan.y = image(r.y, r.channels_last);
  int extents[5];
  const int rank = to_extents(r.w, extents);
  check_dnn(cudnnCreateFilterDescriptor(&plan.w));
  check_dnn(cudnnSetFilterNdDescriptor(plan.w, type_of(r.w.dtype),
                                       r.channels_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW, rank, extents));
  int padding[3] = {0, 0, 0}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  const int64_t shift = p.spatial == 1 ? 1 : 0;
  for (int64_t d = 0; d < p.spatial; ++d) {
    padding[d + shift] = int(p.padding[d]), stride[d + shift] = int(p.stride[d]);
    dilation[d + shift] = int(p.dilation[d]);
  }
  const cudnnDataType_t compute = r.x.dtype == kFloat64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  check_dnn(cudnnCreateConvolutionDescriptor(&plan.conv));
  check_dnn(cudnnSetConvolutionNdDescriptor(plan.conv, rank - 2, padding, stride, dilation, CUDNN_CROSS_CORRELATION,
                                            compute));
  check_dnn(cudnnSetConvolutionGroupCount(plan.conv, int(p.groups)));
  const bool half = r.x.dtype == kFloat16 || r.x.dtype == kBFloat16;
  check_dnn(cudnnSetConvolutionMathType(plan.conv, half     ? CUDNN_TENSOR_OP_MATH
                                                   : r.tf32 ? CUDNN_DEFAULT_MATH
                                                            : CUDNN_FMA_MATH));
}

/// The first of the library's proposals, fastest first, that may be used.
template <class Perf> void choose(Plan& plan, const Request& r, const Perf* found, int count) {
  for (int i = 0; i < count; ++i) {
    if (found[i].status != CUDNN_STATUS_SUCCESS) continue;
    if (r.deterministic && found[i].determinism != CUDNN_DETERMINISTIC) continue;
    plan.algorithm = int(found[i].algo), plan.workspace = found[i].memory;
    if (r.x.dtype == kFloat32 && !r.tf32) return;  // full precision stays asked for
    check_dnn(cudnnSetConvolutionMathType(plan.conv, found[i].mathType));
    return;
  }
}

/// Asks by `guess(count, results)`, or by `trial(count, results, workspace, bytes)`; none where the library says "not supported".
template <class Perf, class Guess, class Trial>
void ask(Context& ctx, Plan& plan, const Request& r, Guess guess, Trial trial) {
  constexpr int kMost = 16;
  Perf found[kMost];
  int count = 0;
  void* space = nullptr;
  try {
    if (r.benchmark) space = ctx.scratch(int64_t(kTrialWorkspace));
  } catch (const OutOfMemoryError&) {  // no room for trials: the guess serves
  }
  const cudnnStatus_t status = space ? trial(&count, found, space, kTrialWorkspace) : guess(&count, found);
  if (status == CUDNN_STATUS_SUCCESS) choose(plan, r, found, count);
}

void find_algorithm(Context& ctx, cudnnHandle_t h, Plan& p, const Request& r) {
  constexpr int kMost = 16;
  void *const x = r.x.data, *const w = r.w.data, *const y = r.y.data;
  const auto memory = [&](cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) p.algorithm = -1;
  };
  if (r.pass == Pass::Forward) {
    ask<cudnnConvolutionFwdAlgoPerf_t>(
        ctx, p, r,
        [&](int* n, auto* to) {
          return cudnnGetConvolutionForwardAlgorithm_v7(h, p.x, p.w, p.conv, p.y, kMost, n, to);
        },
        [&](int* n, auto* to, void* space, size_t bytes) {
          return cudnnFindConvolutionForwardAlgorithmEx(h, p.x, x, p.w, w, p.conv, p.y, y, kMost, n, to, space, bytes);
        });
    if (p.algorithm >= 0)
      memory(cudnnGetConvolutionForwardWorkspaceSize(h, p.x, p.w, p.conv, p.y, cudnnConvolutionFwdAlgo_t(p.algorithm),
                                                     &p.workspace));
  } else if (r.pass == Pass::BackwardData) {
    ask<cudnnConvolutionBwdDataAlgoPerf_t>(
        ctx, p, r,
        [&](int* n, auto* to) {
          return cudnnGetConvolutionBackwardDataAlgorithm_v7(h, p.w, p.y, p.conv, p.x, kMost, n, to);
        },
        [&](int* n, auto* to, void* space, size_t bytes) {
          return cudnnFindConvolutionBackwardDataAlgorithmEx(h, p.w, w, p.y, y, p.conv, p.x, x, kMost, n, to, space,
                                                             bytes);
        });
    if (p.algorithm >= 0)
      memory(cudnnGetConvolutionBackwardDataWorkspaceSize(h, p.w, p.y, p.conv, p.x,
                                                          cudnnConvolutionBwdDataAlgo_t(p.algorithm), &p.workspace));
  } else {
    ask<cudnnConvolutionBwdFilterAlgoPerf_t>(
        ctx, p, r,
        [&](int* n, auto* to) {
          return cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, p.x, p.y, p.conv, p.w, kMost, n, to);
        },
        [&](int* n, auto* to, void* space, size_t bytes) {
          return cudnnFindConvolutionBackwardFilterAlgorithmEx(h, p.x, x, p.y, y, p.conv, p.w, w, kMost, n, to, space,
                                                               bytes);
        });
    if (p.algorithm >= 0)
      memory(cudnnGetConvolutionBackwardFilterWorkspaceSize(
          h, p.x, p.y, p.conv, p.w, cudnnConvolutionBwdFilterAlgo_t(p.algorithm), &p.workspace));
  }
}

cudnnStatus_t execute(Context& ctx, cudnnHandle_t h, const Plan& p, const Request& r) {
  const double wide[] = {1, 0};
  const float narrow[] = {1, 0};
  const bool is_wide = r.x.dtype == kFloat64;
  const void* const one = is_wide ? static_cast<const void*>(wide) : narrow;
  const void* const zero = is_wide ? static_cast<const void*>(wide + 1) : narrow + 1;
  void* const space = p.workspace ? ctx.scratch(int64_t(p.workspace)) : nullptr;
  if (r.pass == Pass::Forward)
    return cudnnConvolutionForward(h, one, p.x, r.x.data, p.w, r.w.data, p.conv, cudnnConvolutionFwdAlgo_t(p.algorithm),
                                   space, p.workspace, zero, p.y, r.y.data);
  if (r.pass == Pass::BackwardData)
    return cudnnConvolutionBackwardData(h, one, p.w, r.w.data, p.y, r.y.data, p.conv,
                                        cudnnConvolutionBwdDataAlgo_t(p.algorithm), space, p.workspace, zero, p.x,
                                        r.x.data);
  return cudnnConvolutionBackwardFilter(h, one, p.x, r.x.data, p.y, r.y.data, p.conv,
                                        cudnnConvolutionBwdFilterAlgo_t(p.algorithm), space, p.workspace, zero, p.w,
                                        r.w.data);
}

/// Never destroyed: convolutions may run until the program's last line.
struct Plans {
  std::mutex mutex;
  cudnnHandle_t handles[kMaxDevices] = {};
  std::map<Signature, Plan> plans;
};

}  // namespace

bool conv(Context& ctx, Pass pass, V x, V w, V y, const ConvParams& params, bool channels_last) {
  for (const TensorView* v : {&x, &w, &y})
    if (v->numel() > INT32_MAX) return false;  // the library's strides are int
  static auto* const plans = new Plans;
  const bool tf32 = x.dtype == kFloat32 && settings->cudnn_allow_tf32.load(std::memory_order_relaxed);
  const bool benchmark = settings->cudnn_benchmark.load(std::memory_order_relaxed);
  const Request r{pass, x, w, y, params, channels_last, ctx.deterministic, tf32, benchmark};
  const OnDevice on(ctx.device);
  std::lock_guard lock(plans->mutex);  // a handle means one stream at a time
  cudnnHandle_t& handle = plans->handles[ctx.device.index];
  if (!handle) check_dnn(cudnnCreate(&handle));
  check_dnn(cudnnSetStream(handle, stream_of(ctx)));
  const Signature key = signature(ctx.device, r);
  auto it = plans->plans.find(key);
  if (it == plans->plans.end()) {
    Plan made;
    describe(made, r), find_algorithm(ctx, handle, made, r);
    it = plans->plans.emplace(key, made).first;
  }
  Plan& plan = it->second;
  if (plan.algorithm < 0) return false;
  const cudnnStatus_t status = execute(ctx, handle, plan, r);
  if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) {
    plan.algorithm = -1;
    return false;
  }
  check_dnn(status);
  return true;
}

}  // namespace tapir::inline v0::cuda_kernels::dnn
