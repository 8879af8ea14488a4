// cudnn_plans DEVICE.json [--markdown FILE], or on a machine with a GPU cudnn_plans --write DEVICE.json: cuDNN's own plans for the graphs of
// cuda_kernels/vendor/dnn.cpp, made for a device that is described and not here (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). Nothing runs, and
// no driver is needed: the toolkit's stub of libcuda.so is enough. Each convolution of the list must get a plan that is ready; attention, whose
// kernels cuDNN compiles when a plan is made (seconds each, and then the driver loads them), an engine that supports it. Each of CUDA's
// libraries that is here must have the functions that Tapir calls. Status 77: no cuDNN here. Last line: N passed, N failed, N skipped.
#include "../../cuda_kernels/vendor/dnn.cpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace tapir::inline v0::cuda_kernels {

static CudaSettings own_settings;
const CudaSettings* settings = &own_settings;
void count_host_wait() {}
void refuse_capture(const char*) {}
Tally& tally_of(Vendor, const std::string&) {
  static Tally one;
  return one;
}
void count_refusal(Tally&, const std::string&) {}

namespace dnn {
namespace {

enum class Want : uint8_t { Plan, Engine };

struct Table {
  int passed = 0, failed = 0, skipped = 0;
  std::FILE* page = nullptr;

  /// Plans the call and notes what came of it.
  template <class Describe, class Text>
  bool plan(Want want, const Request& r, const Describe& describe, const Text& text) {
    Plan plan;
    std::string engine;
    int64_t offered = 0;
    plan.graph = graph_of(nullptr, r, describe, plan.steps);
    if (plan.graph) offered = plan.graph->get_execution_plan_count();
    const bool good = offered > 0 && (want == Want::Engine || choose(plan, ""));
    if (good && plan.graph->get_plan_name_at_index(std::max(plan.index, int64_t(0)), engine).is_bad()) engine = "?";
    ++(good ? passed : failed);
    std::string result = good ? engine : plan.steps.why.empty() ? "no engine left" : plan.steps.why;
    for (char& c : result)
      if (c == '|' || c == '\n') c = ' ';
    if (page)
      std::fprintf(page, "| %s | %lld | %s | %.1f |\n", text().c_str(), static_cast<long long>(offered), result.c_str(),
                   double(plan.workspace) / (1 << 20));
    if (!good) std::printf("FAILED: %s: %s\n", text().c_str(), result.substr(0, 300).c_str());
    return good;
  }
};

TensorView view(DType dtype, std::initializer_list<int64_t> sizes, bool channels_last = false) {
  TensorView v(Scalar(0), dtype);
  v.is_scalar = false, v.data = nullptr, v.device = Device(DeviceType::CUDA), v.rank = int64_t(sizes.size());
  std::copy(sizes.begin(), sizes.end(), v.sizes);
  int64_t step = 1;
  if (channels_last) v.strides[1] = 1, step = v.sizes[1];
  for (int64_t d = v.rank; d-- > 0;)
    if (!channels_last || d != 1) v.strides[d] = step, step *= v.sizes[d];
  return v;
}

struct Conv {
  int64_t batch, channels, size, out, kernel, stride = 1, padding = 0, groups = 1, dilation = 1;
};
int64_t extent(const Conv& c) { return (c.size + 2 * c.padding - c.dilation * (c.kernel - 1) - 1) / c.stride + 1; }

void conv2d(Table& t, Context& ctx, DType dtype, bool last, const Conv& c) {
  const int64_t o = extent(c);
  const TensorView x = view(dtype, {c.batch, c.channels, c.size, c.size}, last),
                   w = view(dtype, {c.out, c.channels / c.groups, c.kernel, c.kernel}, last),
                   y = view(dtype, {c.batch, c.out, o, o}, last);
  ConvParams p;
  p.groups = c.groups;
  for (int d = 0; d < 2; ++d) p.stride[d] = c.stride, p.padding[d] = c.padding, p.dilation[d] = c.dilation;
  for (const Pass pass : {Pass::Forward, Pass::BackwardData, Pass::BackwardWeight})
    with_conv(ctx, pass, x, w, y, {}, p, last, [&](const Request& r, const auto& describe, Operands, const auto& text) {
      return t.plan(Want::Plan, r, describe, text);
    });
  TensorView bias = view(dtype, {c.out});
  bias.data = &bias;  // defined
  for (const bool relu : {false, true}) {
    p.relu = relu;
    with_conv(ctx, Pass::Forward, x, w, y, bias, p, last,
              [&](const Request& r, const auto& describe, Operands, const auto& text) {
                return t.plan(Want::Plan, r, describe, text);
              });
  }
}
void conv_of_rank(Table& t, Context& ctx, DType dtype, int64_t spatial, bool last) {
  TensorView x, w, y;
  if (spatial == 1)
    x = view(dtype, {8, 16, 100}, last), w = view(dtype, {32, 16, 5}, last), y = view(dtype, {8, 32, 96}, last);
  else
    x = view(dtype, {2, 16, 12, 12, 12}, last), w = view(dtype, {32, 16, 3, 3, 3}, last),
    y = view(dtype, {2, 32, 10, 10, 10}, last);
  for (const Pass pass : {Pass::Forward, Pass::BackwardData, Pass::BackwardWeight})
    with_conv(ctx, pass, x, w, y, {}, {.spatial = spatial}, last,
              [&](const Request& r, const auto& describe, Operands, const auto& text) {
                return t.plan(Want::Plan, r, describe, text);
              });
}

/// The convolutions of ResNet-50 at 224, each kind once.
void resnet50(Table& t, Context& ctx, DType dtype, bool last, int64_t batch) {
  conv2d(t, ctx, dtype, last, {batch, 3, 224, 64, 7, 2, 3});
  int64_t in = 64, size = 56;
  for (int64_t width = 64; width <= 512; width *= 2, size /= 2) {
    const int64_t before = width == 64 ? size : 2 * size, stride = width == 64 ? 1 : 2;
    conv2d(t, ctx, dtype, last, {batch, in, before, width, 1});
    conv2d(t, ctx, dtype, last, {batch, width, before, width, 3, stride, 1});
    conv2d(t, ctx, dtype, last, {batch, width, size, 4 * width, 1});
    conv2d(t, ctx, dtype, last, {batch, in, before, 4 * width, 1, stride});
    conv2d(t, ctx, dtype, last, {batch, width, size, width, 3, 1, 1});
    in = 4 * width;
  }
}

struct Heads {
  int64_t batch, heads, queries, keys, depth, key_heads = 0;
  bool causal = false;
};
/// (B, H, S, D) as the models have it: a view of (B, S, H, D).
TensorView heads_of(DType dtype, int64_t batch, int64_t heads, int64_t length, int64_t depth) {
  TensorView v = view(dtype, {batch, heads, length, depth});
  v.strides[0] = length * heads * depth, v.strides[1] = depth, v.strides[2] = heads * depth, v.strides[3] = 1;
  return v;
}
void attend(Table& t, Context& ctx, DType dtype, const Heads& h) {
  const int64_t kv = h.key_heads ? h.key_heads : h.heads;
  const TensorView q = heads_of(dtype, h.batch, h.heads, h.queries, h.depth),
                   k = heads_of(dtype, h.batch, kv, h.keys, h.depth),
                   out = view(dtype, {h.batch, h.heads, h.queries, h.depth}),
                   lse = view(kFloat32, {h.batch, h.heads, h.queries});
  const AttentionParams params{.scale = 0.125, .causal = h.causal};
  const auto plan = [&](const Request& r, const auto& describe, Operands, const auto& text) {
    return t.plan(Want::Engine, r, describe, text);
  };
  with_attention(ctx, out, {}, q, k, k, params, plan);
  TensorView kept = lse;
  kept.data = &kept;  // defined
  with_attention(ctx, out, kept, q, k, k, params, plan);
  with_attention_backward(ctx, q, k, k, out, out, kept, q, k, k, params, plan);
}

/// An engine that fails when it runs gives way to the next; behind the last one its words stay.
void in_turn(Table& t, Context& ctx) {
  const TensorView x = view(kBFloat16, {8, 64, 14, 14}, true), w = view(kBFloat16, {64, 64, 3, 3}, true);
  ConvParams p;
  for (int d = 0; d < 2; ++d) p.padding[d] = 1;
  with_conv(ctx, Pass::Forward, x, w, x, {}, p, true,
            [&](const Request& r, const auto& describe, Operands, const auto&) {
              const auto expect = [&](bool good, const char* what) {
                ++(good ? t.passed : t.failed);
                if (!good) std::printf("FAILED: engines in turn: %s\n", what);
              };
              Plan plan;
              plan.graph = graph_of(nullptr, r, describe, plan.steps);
              if (!plan.graph || !choose(plan, "")) return expect(false, "no engine"), false;
              const int64_t first = plan.index;
              std::vector<int64_t> seen;
              const auto fails_until = [&](size_t runs) {
                return [&seen, runs](Plan& p) {
                  seen.push_back(p.index);
                  if (seen.size() == 1) throw std::runtime_error("the first one fails");
                  return seen.size() == runs;
                };
              };
              expect(!attempt_in_turn(plan, false, fails_until(0)) && plan.index == first && plan.graph,
                     "a capture stops it");
              expect(plan.steps.why == "the first one fails", "the words in a capture");
              seen.clear();
              expect(attempt_in_turn(plan, true, fails_until(2)) && seen.size() == 2 && seen[0] == first &&
                         seen[1] > first && plan.index == seen[1],
                     "the next one serves");
              expect(plan.steps.why.empty(), "the words of the one that failed stay");
              seen.clear();
              expect(!attempt_in_turn(plan, true, fails_until(0)) && !plan.graph && !seen.empty(), "the last one");
              return true;
            });
}

void all(Table& t, Context& ctx) {
  in_turn(t, ctx);
  for (const DType dtype : {kBFloat16, kFloat16, kFloat32}) resnet50(t, ctx, dtype, true, 256);
  resnet50(t, ctx, kFloat32, false, 64);
  conv2d(t, ctx, kFloat32, false, {64, 1, 28, 32, 3});  // MNIST
  conv2d(t, ctx, kBFloat16, true, {64, 32, 56, 32, 3, 1, 1, 32});
  conv2d(t, ctx, kFloat32, false, {16, 64, 28, 64, 3, 1, 2, 4, 2});
  conv2d(t, ctx, kFloat64, false, {4, 8, 14, 16, 3, 1, 1});
  for (const int64_t spatial : {1, 3})
    for (const bool last : {false, true})
      for (const DType dtype : {kFloat32, kBFloat16}) conv_of_rank(t, ctx, dtype, spatial, last);
  own_settings.cudnn_allow_tf32 = false;
  conv2d(t, ctx, kFloat32, false, {64, 64, 56, 64, 3, 1, 1});
  conv2d(t, ctx, kFloat32, true, {64, 64, 56, 64, 3, 1, 1});
  own_settings.cudnn_allow_tf32 = true;
  for (const DType dtype : {kBFloat16, kFloat16})
    for (const bool causal : {false, true}) {
      attend(t, ctx, dtype, {16, 12, 1024, 1024, 64, 0, causal});  // GPT-2 124M
      attend(t, ctx, dtype, {4, 32, 2048, 2048, 128, 8, causal});  // grouped heads
      attend(t, ctx, dtype, {3, 5, 37, 37, 40, 0, causal});
    }
  attend(t, ctx, kBFloat16, {32, 12, 1, 512, 64});
  Context strict = ctx;
  strict.deterministic = true;
  conv2d(t, strict, kBFloat16, true, {64, 64, 56, 64, 3, 1, 1});
  conv2d(t, strict, kFloat32, false, {64, 64, 56, 64, 3, 1, 1});
  attend(t, strict, kBFloat16, {16, 12, 1024, 1024, 64, 0, true});
}

}  // namespace
}  // namespace dnn
}  // namespace tapir::inline v0::cuda_kernels

/// The first device of this machine in cuDNN's words.
static int write_device(const char* path) {
  cudnn_frontend::DeviceProperties device;
  std::vector<uint8_t> text;
  auto e = device.set_device_id(0).build();
  if (e.is_good()) e = device.serialize(text);
  if (e.is_bad()) return std::fprintf(stderr, "cudnn_plans: %s\n", e.get_message().c_str()), 1;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(text.data()), std::streamsize(text.size())).flush();
  if (!file) return std::fprintf(stderr, "cudnn_plans: %s cannot be written\n", path), 1;
  return 0;
}

int main(int argc, char** argv) {
  using namespace tapir;
  using namespace tapir::cuda_kernels;
  if (argc < 2) return std::fprintf(stderr, "usage: cudnn_plans DEVICE.json [--markdown FILE]\n"), 2;
  for (const char* stub :
       {"libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so"})  // engines that compile ask for it by name
    if (dlopen(stub, RTLD_NOW | RTLD_GLOBAL)) break;
  if (const std::string& why = why_not(Vendor::Cudnn); !why.empty()) {
    std::printf("%s\n0 passed, 0 failed, 1 skipped\n", why.c_str());
    return 77;
  }
  if (argc > 2 && std::string_view(argv[1]) == "--write") return write_device(argv[2]);
  std::ifstream file(argv[1]);
  const std::vector<uint8_t> text{std::istreambuf_iterator<char>(file), {}};
  const auto device = std::make_shared<cudnn_frontend::DeviceProperties>();
  if (auto e = device->deserialize(text); e.is_bad()) {
    std::fprintf(stderr, "cudnn_plans: %s: %s\n", argv[1], e.get_message().c_str());
    return 2;
  }
  static const std::shared_ptr<const cudnn_frontend::DeviceProperties> described = device;
  static int capability = 0;
  const std::string json(text.begin(), text.end());
  if (const size_t at = json.find("\"deviceVer\":"); at != std::string::npos)
    capability = std::atoi(json.c_str() + at + 12) / 10;
  dnn::describe_device = [](dnn::Graph& graph) { graph.set_device_properties(described).set_sm_version(capability); };
  dnn::Table table;
  if (argc > 3 && std::string_view(argv[2]) == "--markdown") table.page = std::fopen(argv[3], "a");
  if (table.page)
    std::fprintf(table.page,
                 "\n## %s: %s\n\n| call | plans | the one that is taken, or why there is none | workspace, MiB "
                 "|\n|---|---|---|---|\n",
                 argv[1], describe(Vendor::Cudnn).c_str());
  Context ctx;
  ctx.device = Device(DeviceType::CUDA);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (const Vendor v : {Vendor::CublasLt, Vendor::Cublas, Vendor::Cusolver, Vendor::Cudnn}) {
    std::printf("%s\n", describe(v).c_str());
    if (why_not(v).empty()) ++table.passed;
    else if (why_not(v).starts_with("no ")) ++table.skipped;  // not on this machine
    else ++table.failed;
  }
  dnn::all(table, ctx);
  if (table.page) std::fclose(table.page);
  std::printf("%d passed, %d failed, %d skipped\n", table.passed, table.failed, table.skipped);
  return table.failed ? 1 : 0;
}
