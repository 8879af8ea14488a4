// Note [cuDNN graphs]
// A call is a graph of one operation, described with NVIDIA's cudnn-frontend and made into an execution plan by one of cuDNN's engines. Plans
// are made once per signature (everything that the plan depends on) and kept for good, those that could not be made too, so that
// the answer "no" costs a look-up. The first engine that its heuristics name and that builds is taken; with cudnn_benchmark the first kTried
// are timed, and the fastest one's name is kept on disk (core/choices.h). Of the engines are left out:
//   - under use_deterministic_algorithms(), those that may give other results in another run,
//   - for float32, those that convert to 16 bits; without cudnn_allow_tf32 also those that use tensor cores, and
//   - those that want too large a workspace.
// Whatever the library or the frontend says no to, by status or exception, is false to the caller, who has kernels of his own; it is counted,
// with the library's words, for library_report(). An engine that fails when it runs gives way to the next one.
#include "dnn.h"
#include "../../core/choices.h"

#define CUDNN_FRONTEND_SKIP_JSON_LIB  // nothing is serialized; the headers are slow enough: this file alone includes them
#include <cudnn_frontend.h>

#include <bit>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "../runtime/graphs.h"
#include "libraries.h"

namespace tapir::inline v0::cuda_kernels::dnn {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using Place = std::shared_ptr<fe::graph::Tensor_attributes>;  // a tensor of a graph
using Extents = std::vector<int64_t>;

constexpr int64_t kMostWorkspace = int64_t(2) << 30;
constexpr int64_t kTried = 10;  // plans that a trial times
constexpr int kTimes = 4;       // how often each, the first time not counted
constexpr int64_t kUnplanned = -1;

/// Everything that a plan depends on, as numbers.
class Signature {
 public:
  void add(int64_t word) {
    if (count_ < kMost) words_[count_] = word;
    ++count_;
  }
  void add(V v) {
    add(v.rank);
    for (int64_t d = 0; d < v.rank; ++d) add(v.sizes[d]), add(v.strides[d]);
  }
  bool fits() const { return count_ <= kMost; }
  bool operator==(const Signature& o) const {
    return count_ == o.count_ && std::memcmp(words_, o.words_, size_t(count_) * sizeof(int64_t)) == 0;
  }
  size_t hash() const {
    uint64_t h = 0xcbf29ce484222325;
    for (int i = 0; i < count_; ++i) h = (h ^ uint64_t(words_[i])) * 0x9e3779b97f4a7c15, h ^= h >> 29;
    return h;
  }
  std::string text() const {
    std::string s;
    for (int i = 0; i < count_; ++i) s += (i ? " " : "") + std::to_string(words_[i]);
    return s;
  }

 private:
  static constexpr int kMost = 96;
  int count_ = 0;
  int64_t words_[kMost];
};

struct Request {
  const char* name;
  DType dtype;
  bool deterministic, tf32, benchmark;
  Signature signature;  // without the device

  Request(const Context& ctx, const char* name, DType dtype, int64_t kind)
      : name(name), dtype(dtype), deterministic(ctx.deterministic),
        tf32(dtype == kFloat32 && settings->cudnn_allow_tf32.load(std::memory_order_relaxed)),
        benchmark(ctx.autotune || settings->cudnn_benchmark.load(std::memory_order_relaxed)) {
    signature.add(kind), signature.add(int64_t(dtype));
    signature.add(int64_t(deterministic) | int64_t(tf32) << 1 | int64_t(benchmark) << 2);
  }
};

/// Keeps the words of the first step that the library refuses, since the last one that went well.
struct Steps {
  std::string why;
  bool bad(fe::error_t e) {
    if (e.is_bad() && why.empty()) {
      char words[512] = "";
      cudnnGetLastErrorString(words, sizeof words);
      why = e.get_message() + (*words ? std::string(" (") + words + ')' : "");
    }
    return e.is_bad();
  }
};

struct Plan {
  std::unique_ptr<Graph> graph;  // null: there is no kernel for it
  int64_t index = kUnplanned, workspace = 0;
  Steps steps;  // why not, where there is none
  Tally* tally = nullptr;
};

/// An operand of the call, by the number of its tensor in the graph; null where the graph has none.
struct Operand {
  int64_t number;
  const void* data;
};
using Operands = std::initializer_list<Operand>;
bool execute(cudnnHandle_t handle, Plan& plan, int64_t index, Operands operands, void* space) {
  std::unordered_map<int64_t, void*>
      pointers;  // a new one for each run: frontends of 1.14 leave pointers of their own in it
  for (const Operand& o : operands)
    if (o.data) pointers.emplace(o.number, const_cast<void*>(o.data));
  return !plan.steps.bad(plan.graph->execute_plan_at_index(handle, pointers, space, index));
}

fe::DataType_t type_of(DType dtype) {
  return dtype == kFloat32   ? fe::DataType_t::FLOAT
         : dtype == kFloat64 ? fe::DataType_t::DOUBLE
         : dtype == kFloat16 ? fe::DataType_t::HALF
                             : fe::DataType_t::BFLOAT16;
}

// ---- choosing a plan ----

/// Set by tests/cudnn_plans, which makes plans for a device that is not here, without a handle.
void (*describe_device)(Graph&) = nullptr;

/// The graph with all its engines named and the unwanted ones left out; null where there is none.
template <class Describe>
std::unique_ptr<Graph> graph_of(cudnnHandle_t handle, const Request& r, const Describe& describe, Steps& steps) {
  auto graph = std::make_unique<Graph>();
  const fe::DataType_t compute = r.dtype == kFloat64 ? fe::DataType_t::DOUBLE : fe::DataType_t::FLOAT;
  if (describe_device) describe_device(*graph);
  graph->set_io_data_type(type_of(r.dtype)).set_intermediate_data_type(compute).set_compute_data_type(compute);
  describe(*graph);
  if (steps.bad(graph->validate()) || steps.bad(graph->build_operation_graph(handle)) ||
      steps.bad(graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK})))
    return nullptr;
  std::vector<fe::NumericalNote_t> unwanted;
  if (r.deterministic) unwanted.push_back(fe::NumericalNote_t::NONDETERMINISTIC);
  if (r.dtype == kFloat32) unwanted.push_back(fe::NumericalNote_t::DOWN_CONVERT_INPUTS);
  if (r.dtype == kFloat32 && !r.tf32) unwanted.push_back(fe::NumericalNote_t::TENSOR_CORE);
  graph->deselect_numeric_notes(unwanted);
  graph->deselect_workspace_greater_than(kMostWorkspace);
  return graph;
}

/// Makes plan number `index` ready; its workspace in bytes, or kUnplanned.
int64_t prepare(Plan& plan, int64_t index) {
  int64_t bytes = 0;
  if (plan.steps.bad(plan.graph->build_plan_at_index(index)) ||
      plan.steps.bad(plan.graph->get_workspace_size_plan_at_index(index, bytes)) || bytes > kMostWorkspace)
    return kUnplanned;
  return bytes;
}

/// The plan of that name, or, where it is empty, the first from number `first` on that can be made.
bool choose(Plan& plan, const std::string& wanted, int64_t first = 0) {
  for (int64_t i = first; i < plan.graph->get_execution_plan_count(); ++i) {
    std::string name;
    if (!wanted.empty() && (plan.graph->get_plan_name_at_index(i, name).is_bad() || name != wanted)) continue;
    const int64_t bytes = prepare(plan, i);
    if (bytes == kUnplanned) continue;
    plan.index = i, plan.workspace = bytes;
    plan.steps.why.clear();
    return true;
  }
  return false;
}

/// Runs the plan by attempt(plan): false, or an error, makes the next engine the plan, as long as there is one and `others` may follow.
template <class Attempt> bool attempt_in_turn(Plan& plan, bool others, const Attempt& attempt) {
  while (plan.graph) {
    try {
      if (attempt(plan)) return true;
    } catch (const RuntimeError&) {
      throw;  // ours: out of memory, an error of the device
    } catch (const std::exception& e) {
      plan.steps.why = e.what();
    }
    if (!others) return false;
    if (!choose(plan, "", plan.index + 1)) plan.graph.reset();
  }
  return false;
}

struct Timer {
  cudaEvent_t start = nullptr, end = nullptr;
  Timer() { check_cuda(cudaEventCreate(&start), "cudnn"), check_cuda(cudaEventCreate(&end), "cudnn"); }
  ~Timer() { cudaEventDestroy(start), cudaEventDestroy(end); }
  Timer(const Timer&) = delete;
};

/// The best time of some runs, in milliseconds; infinity where one fails.
float time_of(Context& ctx, cudnnHandle_t handle, Plan& plan, int64_t index, Operands operands, void* space) {
  const Timer timer;
  float best = std::numeric_limits<float>::infinity();
  for (int run = 0; run < kTimes; ++run) {
    check_cuda(cudaEventRecord(timer.start, stream_of(ctx)), "cudnn");
    if (!execute(handle, plan, index, operands, space)) return std::numeric_limits<float>::infinity();
    check_cuda(cudaEventRecord(timer.end, stream_of(ctx)), "cudnn");
    check_cuda(cudaEventSynchronize(timer.end), "cudnn");
    count_host_wait();
    float elapsed = 0;
    check_cuda(cudaEventElapsedTime(&elapsed, timer.start, timer.end), "cudnn");
    if (run > 0 && elapsed < best) best = elapsed;
  }
  return best;
}

/// The name of the fastest of the first plans, which all run on the call's own operands; "" where none runs.
std::string fastest(Context& ctx, cudnnHandle_t handle, Plan& plan, Operands operands) {
  std::vector<std::pair<int64_t, int64_t>> tried;  // index, workspace
  int64_t most = 0;
  for (int64_t i = 0; i < plan.graph->get_execution_plan_count() && int64_t(tried.size()) < kTried; ++i)
    if (const int64_t bytes = prepare(plan, i); bytes != kUnplanned)
      tried.push_back({i, bytes}), most = std::max(most, bytes);
  void* space = nullptr;
  try {
    if (most) space = ctx.scratch(most);
  } catch (const OutOfMemoryError&) {
    most = 0;  // no room: those that need none compete
  }
  float best = std::numeric_limits<float>::infinity();
  std::string name, found;
  for (const auto& [index, bytes] : tried) {
    if (bytes > most) continue;
    const float elapsed = time_of(ctx, handle, plan, index, operands, space);
    if (elapsed < best && plan.graph->get_plan_name_at_index(index, name).is_good()) best = elapsed, found = name;
  }
  return found;
}

std::string name_of_device(Device device) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, device.index), "cudnn");
  return properties.name;
}

/// A plan for the request; its graph is null where there is none.
template <class Describe>
Plan make_plan(Context& ctx, cudnnHandle_t handle, const Request& r, const Describe& describe, Operands operands) {
  Plan plan;
  plan.graph = graph_of(handle, r, describe, plan.steps);
  if (!plan.graph) return plan;
  if (r.benchmark && !is_captured(ctx)) {
    const std::string key = choice_key(name_of_device(ctx.device), "cudnn", int64_t(cudnnGetVersion()),
                                       std::string(r.name) + ' ' + r.signature.text());
    std::string kept = kept_choices().find(key);
    if (!kept.empty() && choose(plan, kept)) return plan;
    kept = fastest(ctx, handle, plan, operands);
    plan.graph = graph_of(handle, r, describe, plan.steps);  // anew: the losers' kernels need not stay loaded
    if (!plan.graph) return plan;
    if (!kept.empty() && choose(plan, kept)) {
      kept_choices().keep(key, kept);
      return plan;
    }
  }
  if (choose(plan, "")) return plan;
  if (plan.steps.why.empty()) plan.steps.why = "no engine serves it under the rules for this call";
  plan.graph.reset();
  return plan;
}

// ---- running ----

struct SignatureHash {
  size_t operator()(const Signature& s) const { return s.hash(); }
};
/// Of one device. Never destroyed: kernels may run until the program's last line.
struct Library {
  std::mutex mutex;  // a handle means one stream at a time, a plan one set of operands
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  std::unordered_map<Signature, Plan, SignatureHash> plans;

  /// Empty, or why cuDNN cannot be used.
  std::string join(cudaStream_t wanted) {
    if (const std::string& why = why_not(Vendor::Cudnn); !why.empty()) return why;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (!handle) {
      refuse_capture("cudnn");
      status = cudnnCreate(&handle);
      if (status != CUDNN_STATUS_SUCCESS) handle = nullptr;
      stream = nullptr;  // a handle's first one
    }
    if (handle && stream != wanted) {
      status = cudnnSetStream(handle, wanted);
      if (status == CUDNN_STATUS_SUCCESS) stream = wanted;
    }
    return status == CUDNN_STATUS_SUCCESS ? "" : cudnnGetErrorString(status);
  }
};

Library& library_of(Device device) {
  static auto* const libraries = new Library[kMaxDevices];
  return libraries[device.index];
}

template <class Describe>
Plan plan_or_reason(Context& ctx, cudnnHandle_t handle, const Request& r, const Describe& describe, Operands operands) {
  try {
    return make_plan(ctx, handle, r, describe, operands);
  } catch (const RuntimeError&) {
    throw;  // ours: out of memory, an error of the device
  } catch (const std::exception& e) {
    Plan none;
    none.steps.why = e.what();
    return none;
  }
}

bool refused(const Plan& plan) { return count_refusal(*plan.tally, plan.steps.why), false; }

/// Runs the graph that describe(graph) fills, whose tensors are the operands by number; text(): the call, for people.
template <class Describe, class Text>
bool run(Context& ctx, const Request& r, const Describe& describe, Operands operands, const Text& text) {
  if (!r.signature.fits()) return count_refusal(tally_of(Vendor::Cudnn, text()), "too long a signature"), false;
  const OnDevice on(ctx.device);
  Library& library = library_of(ctx.device);
  const std::lock_guard lock(library.mutex);
  if (const std::string why = library.join(stream_of(ctx)); !why.empty())
    return count_refusal(tally_of(Vendor::Cudnn, r.name), why), false;
  auto it = library.plans.find(r.signature);
  if (it == library.plans.end()) {
    it = library.plans.emplace(r.signature, plan_or_reason(ctx, library.handle, r, describe, operands)).first;
    it->second.tally = &tally_of(Vendor::Cudnn, text());
  }
  Plan& plan = it->second;
  if (!plan.graph) return refused(plan);
  const bool captured = is_captured(ctx);
  if (attempt_in_turn(plan, !captured, [&](Plan& p) {
        void* const space = p.workspace ? ctx.scratch(p.workspace) : nullptr;
        return execute(library.handle, p, p.index, operands, space);
      }))
    return ++plan.tally->served, true;
  // A capture that was refused, or spoilt, says nothing of other calls.
  if (captured) fail(ErrorKind::Runtime, "[cudnn] the engine could not be captured: {}", plan.steps.why);
  return refused(plan);
}

bool small_enough(std::initializer_list<const TensorView*> views) {
  for (const TensorView* v : views)
    if (v->defined() && v->numel() > std::numeric_limits<int32_t>::max()) return false;  // engines count in 32 bits
  return true;
}

void set(fe::graph::Tensor_attributes& place, int64_t number, DType dtype, const Extents& sizes,
         const Extents& strides) {
  place.set_uid(number).set_data_type(type_of(dtype)).set_dim(sizes).set_stride(strides);
}

// ---- convolutions ----

enum ConvNumber : int64_t { kX = 1, kW, kY, kBias };

/// (N, C, spatial); one spatial axis becomes (1, n): the library wants two or three.
Extents image_sizes(V v) {
  Extents sizes(v.sizes, v.sizes + v.rank);
  if (v.rank == 3) sizes.insert(sizes.begin() + 2, 1);
  return sizes;
}
/// Those of memory that is filled in the common order, whatever the view says of axes of extent 1.
Extents image_strides(const Extents& sizes, bool channels_last) {
  Extents strides(sizes.size());
  int64_t step = 1;
  if (channels_last) strides[1] = 1, step = sizes[1];
  for (size_t d = sizes.size(); d-- > 0;)
    if (!channels_last || d != 1) strides[d] = step, step *= sizes[d];
  return strides;
}
/// A parameter for each spatial axis.
Extents axes(const int64_t (&values)[3], int64_t spatial, int64_t absent) {
  Extents all(values, values + spatial);
  if (spatial == 1) all.insert(all.begin(), absent);
  return all;
}

/// use(request, describe, operands, text): what run() takes of a convolution.
template <class Use>
bool with_conv(Context& ctx, Pass pass, V x, V w, V y, V bias, const ConvParams& p, bool channels_last, Use&& use) {
  Request r(ctx, "conv", x.dtype, bias.defined() ? 4 : int64_t(pass));
  r.signature.add(int64_t(channels_last) + 2 * int64_t(p.relu)), r.signature.add(p.spatial), r.signature.add(p.groups);
  for (const TensorView* v : {&x, &w, &y})
    for (int64_t d = 0; d < v->rank; ++d) r.signature.add(v->sizes[d]);
  for (int64_t d = 0; d < p.spatial; ++d)
    r.signature.add(p.stride[d]), r.signature.add(p.padding[d]), r.signature.add(p.dilation[d]);
  const auto text = [&] {
    constexpr const char* kPasses[] = {"forward", "backward data", "backward weight"};
    std::string axes;
    for (int64_t d = 0; d < p.spatial; ++d)
      axes += tapir::format("{}{}+{}x{}", d ? ", " : "", p.stride[d], p.padding[d], p.dilation[d]);
    return tapir::format("conv {}{}{} {}{}, x {} w {} y {}, groups {}, stride+padding x dilation {}",
                         kPasses[int(pass)], bias.defined() ? " with bias" : "", p.relu ? " and relu" : "", x.dtype,
                         channels_last ? " channels last" : "", x.shape(), w.shape(), y.shape(), p.groups, axes);
  };
  const auto describe = [&](Graph& graph) {
    const auto fill = [&](const Place& place, V v, int64_t number) {
      const Extents sizes = image_sizes(v);
      set(*place, number, v.dtype, sizes, image_strides(sizes, channels_last));
    };
    const auto input = [&](V v, int64_t number) {
      const Place place = graph.tensor(fe::graph::Tensor_attributes());
      fill(place, v, number);
      return place;
    };
    const auto with_axes = [&](auto attributes) {
      return attributes.set_padding(axes(p.padding, p.spatial, 0))
          .set_stride(axes(p.stride, p.spatial, 1))
          .set_dilation(axes(p.dilation, p.spatial, 1));
    };
    // The number of groups follows from the channels of x and w.
    Place result = pass == Pass::Forward
                       ? graph.conv_fprop(input(x, kX), input(w, kW), with_axes(fe::graph::Conv_fprop_attributes()))
                   : pass == Pass::BackwardData
                       ? graph.conv_dgrad(input(y, kY), input(w, kW), with_axes(fe::graph::Conv_dgrad_attributes()))
                       : graph.conv_wgrad(input(y, kY), input(x, kX), with_axes(fe::graph::Conv_wgrad_attributes()));
    if (bias.defined()) {
      const Place place = graph.tensor(fe::graph::Tensor_attributes());
      Extents sizes(y.rank == 3 ? 4 : size_t(y.rank), 1);
      sizes[1] = bias.sizes[0];
      set(*place, kBias, bias.dtype, sizes, image_strides(sizes, true));
      result = graph.pointwise(result, place, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
    }
    if (p.relu)  // which keeps NaN: the front end says so to the library
      result = graph.pointwise(result, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
    result->set_output(true);
    if (pass == Pass::Forward) fill(result, y, kY);
    else if (pass == Pass::BackwardData) fill(result, x, kX);
    else fill(result, w, kW);
  };
  return use(r, describe, Operands{{kX, x.data}, {kW, w.data}, {kY, y.data}, {kBias, bias.data}}, text);
}

}  // namespace

bool conv(Context& ctx, Pass pass, V x, V w, V y, V bias, const ConvParams& params, bool channels_last) {
  return small_enough({&x, &w, &y}) &&
         with_conv(ctx, pass, x, w, y, bias, params, channels_last, [&](auto&&... call) { return run(ctx, call...); });
}

// ---- attention ----

namespace {

enum AttentionNumber : int64_t { kQ = 1, kK, kV, kOut, kLse, kGradOut, kGradQ, kGradK, kGradV };

/// Strides of a (B, H, S, D) view; an axis of extent 1 gets one that is in order.
Extents head_strides(V v) {
  Extents strides(v.strides, v.strides + 4);
  for (int64_t d = 3, step = 1; d >= 0; --d) {
    if (v.sizes[d] == 1 && d < 3) strides[size_t(d)] = step;
    step = std::max(step, v.sizes[d] * strides[size_t(d)]);
  }
  return strides;
}
void set_heads(const Place& place, V v, int64_t number) {
  set(*place, number, v.dtype, Extents(v.sizes, v.sizes + 4), head_strides(v));
}
Place heads(Graph& graph, V v, int64_t number) {
  const Place place = graph.tensor(fe::graph::Tensor_attributes());
  set_heads(place, v, number);
  return place;
}
/// (B, H, S) as (B, H, S, 1)
void set_lse(const Place& place, V lse) {
  set(*place, kLse, kFloat32, {lse.sizes[0], lse.sizes[1], lse.sizes[2], 1},
      {lse.sizes[1] * lse.sizes[2], lse.sizes[2], 1, 1});
}
/// What forward and backward share. Query i sees keys 0 to i: the band ends at the diagonal from the upper left corner.
template <class Attributes> Attributes attributes_of(const AttentionParams& params) {
  Attributes a;
  a.set_attn_scale(float(params.scale));
  if (params.causal) a.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  return a;
}
Request attention_request(const Context& ctx, const char* name, int64_t kind, const AttentionParams& params,
                          std::initializer_list<const TensorView*> views) {
  Request r(ctx, name, (*views.begin())->dtype, kind);
  r.signature.add(int64_t(params.causal)), r.signature.add(std::bit_cast<int32_t>(float(params.scale)));
  for (const TensorView* v : views) r.signature.add(*v);
  return r;
}

std::string attention_text(const char* name, V q, V k, const AttentionParams& params) {
  return tapir::format("{} {}{}, q {} strides {}, k {} strides {}", name, q.dtype, params.causal ? " causal" : "",
                       q.shape(), q.stride_list(), k.shape(), k.stride_list());
}

template <class Use>
bool with_attention(Context& ctx, V out, V lse, V q, V k, V v, const AttentionParams& params, Use&& use) {
  const Request r = attention_request(ctx, "attention", 8 + lse.defined(), params, {&q, &k, &v, &out});
  const auto describe = [&](Graph& graph) {
    auto attributes = attributes_of<fe::graph::SDPA_attributes>(params);
    attributes.set_generate_stats(lse.defined());
    const auto [result, stats] = graph.sdpa(heads(graph, q, kQ), heads(graph, k, kK), heads(graph, v, kV), attributes);
    result->set_output(true);
    set_heads(result, out, kOut);
    if (!lse.defined()) return;
    stats->set_output(true);
    set_lse(stats, lse);
  };
  return use(r, describe, Operands{{kQ, q.data}, {kK, k.data}, {kV, v.data}, {kOut, out.data}, {kLse, lse.data}},
             [&] { return attention_text(r.name, q, k, params); });
}

template <class Use> bool with_attention_backward(Context& ctx, V dq, V dk, V dv, V dout, V out, V lse, V q, V k, V v,
                                                  const AttentionParams& params, Use&& use) {
  const Request r = attention_request(ctx, "attention_backward", 16, params, {&q, &k, &v, &out, &dout, &dq, &dk, &dv});
  const auto describe = [&](Graph& graph) {
    auto attributes = attributes_of<fe::graph::SDPA_backward_attributes>(params);
    attributes.set_deterministic_algorithm(r.deterministic);
    const Place stats = graph.tensor(fe::graph::Tensor_attributes());
    set_lse(stats, lse);
    const auto gradients =
        graph.sdpa_backward(heads(graph, q, kQ), heads(graph, k, kK), heads(graph, v, kV), heads(graph, out, kOut),
                            heads(graph, dout, kGradOut), stats, attributes);
    const TensorView* const views[] = {&dq, &dk, &dv};
    for (int i = 0; i < 3; ++i) {
      gradients[size_t(i)]->set_output(true);
      set_heads(gradients[size_t(i)], *views[i], kGradQ + i);
    }
  };
  const Operands all = {{kQ, q.data},          {kK, k.data},      {kV, v.data},      {kOut, out.data}, {kLse, lse.data},
                        {kGradOut, dout.data}, {kGradQ, dq.data}, {kGradK, dk.data}, {kGradV, dv.data}};
  return use(r, describe, all, [&] { return attention_text(r.name, q, k, params); });
}

}  // namespace

bool attention(Context& ctx, V out, V lse, V q, V k, V v, const AttentionParams& params) {
  return small_enough({&out, &q, &k, &v}) &&
         with_attention(ctx, out, lse, q, k, v, params, [&](auto&&... call) { return run(ctx, call...); });
}
bool attention_backward(Context& ctx, V dq, V dk, V dv, V dout, V out, V lse, V q, V k, V v,
                        const AttentionParams& params) {
  return small_enough({&out, &q, &k, &v}) && with_attention_backward(ctx, dq, dk, dv, dout, out, lse, q, k, v, params,
                                                                     [&](auto&&... call) { return run(ctx, call...); });
}

}  // namespace tapir::inline v0::cuda_kernels::dnn
