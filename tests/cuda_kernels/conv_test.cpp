// cuda_kernels/conv/conv.cpp: results and gradients against the CPU.
#include <tapir/compile/passes/passes.h>
#include <tapir/compile/record/record.h>
#include <tapir/models/resnet.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "cuda.h"

using namespace tapir;

namespace {
struct Case {
  Shape x, w;
  ConvOptions o;
};
const Case kCases[] = {
    {{2, 3, 9}, {4, 3, 3}, {}},
    {{2, 4, 10}, {6, 2, 3}, {.stride = 2, .padding = 1, .groups = 2}},
    {{2, 3, 7, 6}, {5, 3, 3, 2}, {.stride = {2, 1}, .padding = {1, 0}}},
    {{1, 4, 8, 8}, {4, 1, 3, 3}, {.padding = 2, .dilation = 2, .groups = 4}},
    {{3, 2, 5, 5}, {4, 2, 1, 1}, {}},
    {{1, 2, 5, 4, 6}, {3, 2, 2, 3, 2}, {.stride = {1, 2, 2}, .padding = 1}},
};
const Case kDepthwise[] = {{{2, 8, 6, 6}, {8, 1, 3, 3}, {.padding = 1, .groups = 8}}};

Tensor conv(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions& o) {
  return x.dim() == 3 ? conv1d(x, w, b, o) : x.dim() == 4 ? conv2d(x, w, b, o) : conv3d(x, w, b, o);
}

void check_close(const Tensor& device, const Tensor& host) {
  REQUIRE(device.device() == kCUDA);
  REQUIRE(device.shape() == host.shape());
  REQUIRE(device.dtype() == host.dtype());
  const DType t = host.dtype();
  if (!is_floating(t)) {
    CHECK(equal(device.cpu(), host));
    return;
  }
  const double bound = t == kFloat64 ? 1e-11 : t == kFloat32 ? 1e-4 : t == kFloat16 ? 1e-2 : 6e-2;
  CHECK(allclose(device.cpu().to(kFloat64), host.to(kFloat64), {.rtol = bound, .atol = bound * 4}));
}

/// y, dx, dw, db on a device.
std::vector<Tensor> all_of(const Case& c, const Tensor& x0, const Tensor& w0, const Tensor& b0, Device device) {
  Tensor x = x0.to(device), w = w0.to(device), b = b0.to(device);
  if (!is_floating(x.dtype())) return {conv(x, w, b, c.o)};
  x.requires_grad_(), w.requires_grad_(), b.requires_grad_();
  const Tensor y = conv(x, w, b, c.o);
  std::vector<Tensor> all = grad({square(y).sum()}, {x, w, b});
  all.push_back(y.detach());
  return all;
}
}  // namespace

TEST_CASE("cuda conv: forward and gradients of every kind") {
  NEEDS_CUDA
  if (is_emulated() && !std::getenv("TAPIR_EMULATED_WITHOUT"))  // by kernels of our own
    CHECK(run_alone("TAPIR_EMULATED_WITHOUT=cudnn", "cuda conv: *") == 0);
  backends::cuda::set_cudnn_allow_tf32(false);
  manual_seed(1);
  for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kUInt8})
    for (const Case& c : kCases) {
      CAPTURE(std::string(name_of(t)), c.x.size(), c.o.groups);
      const auto numbers = [&](const Shape& s) {
        return is_floating(t) ? (randn(s) * 0.5).to(t) : randint(0, 5, s).to(t);
      };
      const Tensor x = numbers(c.x), w = numbers(c.w), b = numbers({c.w[0]});
      for (const bool last : {false, true}) {
        if (last && c.x.size() != 4) continue;
        const MemoryFormat format = last ? kChannelsLast : kContiguous;
        const Tensor xs = x.contiguous(format), ws = w.contiguous(format);
        const std::vector<Tensor> host = all_of(c, xs, ws, b, kCPU), device = all_of(c, xs, ws, b, kCUDA);
        for (size_t i = 0; i < host.size(); ++i) check_close(device[i], host[i]);
      }
    }
  backends::cuda::set_cudnn_allow_tf32(true);
}

namespace {
/// y, dx, dw, db of whole numbers, of which all sums are exact: both devices give the same bits.
std::vector<Tensor> exact(const Case& c, DType t, MemoryFormat format, Device device) {
  manual_seed(3);
  const auto numbers = [&](const Shape& s) { return randint(-2, 3, s).to(t); };
  Tensor x = numbers(c.x).contiguous(format).to(device), w = numbers(c.w).contiguous(format).to(device),
         b = numbers({c.w[0]}).to(device);
  x.requires_grad_(), w.requires_grad_(), b.requires_grad_();
  const Tensor y = conv(x, w, b, c.o), dy = numbers(y.shape()).contiguous(format).to(device);
  std::vector<Tensor> all = grad({(y * dy).sum()}, {x, w, b});
  all.push_back(y.detach());
  return all;
}
const Case kTiles[] = {
    {{2, 64, 9, 11}, {72, 64, 3, 3}, {.padding = 1}},                                    // whole packs
    {{1, 136, 12, 13}, {264, 136, 1, 1}, {}},                                            // tiles that end in the middle
    {{2, 3, 31, 29}, {64, 3, 7, 7}, {.stride = 2, .padding = 3}},                        // three channels
    {{2, 24, 13, 10}, {40, 24, 3, 3}, {.stride = {2, 3}, .padding = {1, 0}}},            // phases
    {{1, 16, 9, 9}, {16, 16, 1, 1}, {.stride = 2}},                                      // phases that see no position
    {{1, 16, 12, 17}, {24, 16, 3, 2}, {.stride = {3, 2}, .padding = 2, .dilation = 2}},  // those of a dilation
    {{1, 8, 9, 9}, {8, 8, 3, 3}, {.stride = {2, 4}, .padding = 4, .dilation = {4, 6}}},
    {{2, 36, 7, 8}, {24, 9, 3, 3}, {.padding = 1, .groups = 4}},   // groups with a rest
    {{1, 32, 6, 6}, {48, 16, 3, 3}, {.padding = 1, .groups = 2}},  // groups of whole packs
    {{3, 16, 70}, {24, 16, 5}, {.stride = 2, .padding = 2}},
    {{1, 8, 5, 6, 7}, {16, 8, 3, 2, 3}, {.stride = {1, 2, 2}, .padding = {1, 0, 2}}},
    {{1, 8, 1, 1}, {8, 8, 3, 3}, {.padding = 1}},
    {{2, 8, 3, 3}, {8, 8, 5, 5}, {.stride = 7, .padding = 3}},                     // strides beyond the image
    {{2, 16, 11, 9}, {16, 1, 3, 3}, {.padding = 1, .groups = 16}},                 // depthwise
    {{2, 264, 6, 5}, {264, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 264}},  // many of them
    {{2, 5, 20, 17}, {10, 1, 3, 2}, {.padding = 1, .dilation = 2, .groups = 5}},   // two outputs each
    {{2, 6, 50}, {6, 1, 7}, {.stride = 3, .padding = 3, .groups = 6}},
};
}  // namespace

TEST_CASE("cuda conv: tiles, phases, groups and depthwise, to the last bit") {
  NEEDS_CUDA
  for (const DType t : {kFloat32, kBFloat16, kFloat16})
    for (const Case& c : kTiles)
      for (const MemoryFormat format : {kContiguous, kChannelsLast}) {
        if (format == kChannelsLast && c.x.size() != 4) continue;
        CAPTURE(std::string(name_of(t)), c.x, c.w, c.o.groups, format == kChannelsLast);
        const auto host = exact(c, t, format, kCPU), device = exact(c, t, format, kCUDA);
        for (size_t i = 0; i < host.size(); ++i) {
          CAPTURE(i);
          CHECK(equal(device[i].cpu(), host[i]));
        }
      }
}

namespace {
/// What a test case launches, in a process of its own under these settings: a line for each kernel.
std::string kernels_of(const std::string& settings, const std::string& name) {
  const auto path = std::filesystem::temp_directory_path() / ("conv_kernels." + std::to_string(getpid()));
  std::filesystem::remove(path);
  CHECK(run_alone(settings + " TAPIR_EMULATED_LAUNCHES=" + path.string(), name) == 0);
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  return text;
}
}  // namespace

TEST_CASE("cuda conv: without cuDNN floats go by tiles, and no plain loop runs") {
  NEEDS_CUDA
  if (!is_emulated()) SKIP_TEST("the emulation tells which kernels run");
  const std::string kernels = kernels_of("TAPIR_EMULATED_WITHOUT=cudnn", "cuda conv: tiles*");
  for (const char* name :
       {"conv_image_kernel", "conv_weight_kernel", "depthwise_kernel", "depthwise_weight_kernel", "transpose_kernel"})
    CHECK(contains(kernels, name));
  CHECK_FALSE(contains(kernels, "direct_"));
}

TEST_CASE("child: a ResNet-50 in bf16 and channels_last", "[.child]") {
  auto net = models::resnet50({.num_classes = 16, .width = 8, .small_images = true});
  net.to(kChannelsLast), net.to(kCUDA);
  optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  const Tensor x = randn({2, 3, 32, 32}).to(kChannelsLast).to(kCUDA), labels = zeros({2}, {.dtype = kInt64}).to(kCUDA);
  const bool compiled = std::getenv("TAPIR_CONV_TEST_COMPILED") != nullptr;
  auto step = compile(
      [&] {
        opt.zero_grad();
        Tensor loss;
        {
          amp::Autocast autocast(kCUDA, {.dtype = kBFloat16});
          loss = cross_entropy(net(x), labels);
        }
        loss.backward();
        opt.step();
      },
      {.enabled = compiled, .verify = 0, .fuse = false, .background = false});
  for (int i = 0; i < 6; ++i) step();
  cuda::synchronize();
  CHECK(step.stats().size() == (compiled ? 1 : 0));
}
TEST_CASE("cuda conv: a step of ResNet-50 in bf16 and channels_last copies nothing into another order") {
  NEEDS_CUDA
  if (!is_emulated() || std::getenv("TAPIR_EMULATED_WITHOUT"))
    SKIP_TEST("the emulation, with cuDNN's stand-in, tells which kernels run");
  for (const char* settings : {"", "TAPIR_CONV_TEST_COMPILED=1"}) {
    const std::string kernels = kernels_of(settings, "child: a ResNet-50 in bf16 and channels_last");
    INFO(kernels);
    CHECK(contains(kernels, "norm"));
    for (const char* name : {"transpose_kernel", "conv_image_kernel", "direct_"}) CHECK_FALSE(contains(kernels, name));
  }
}

TEST_CASE("cuda conv: a relu behind it becomes its own, NaN stays") {
  NEEDS_CUDA
  manual_seed(4);
  const NoGrad off;
  for (const DType t : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt32})
    for (const std::span<const Case> cases : std::initializer_list<std::span<const Case>>{kCases, kDepthwise})
      for (const Case& c : cases) {
        CAPTURE(std::string(name_of(t)), c.x, c.w, c.o.groups);
        const auto numbers = [&](const Shape& shape) { return mul(randn(shape), 3).to(t).to(kCUDA); };
        Tensor x = numbers(c.x);
        const Tensor w = numbers(c.w), b = numbers({c.w[0]});
        if (is_floating(t)) x.flatten().slice(0, 3, 4).fill_(std::nan(""));
        ir::Recording recording;
        const Tensor y = relu(conv(x, w, b, c.o));
        ir::Program p = recording.finish(std::array{y});
        const size_t calls = p.calls.size();
        ir::join_epilogues(p);
        CHECK(p.calls.size() == calls - (is_floating(t) ? 1 : 0));
        ir::Memory memory = ir::copy_of_outside(p);
        const double near = t == kFloat32 || t == kFloat64 ? 1e-5 : 0;
        CHECK(allclose(interpret(p, memory)[0].cpu(), y.cpu(), {.rtol = near, .atol = near, .equal_nan = true}));
      }
}
TEST_CASE("cuda conv: sliced operands, zero sizes, transposed, under every switch") {
  NEEDS_CUDA
  backends::cuda::set_cudnn_allow_tf32(false);
  manual_seed(2);
  const Tensor x = randn({2, 6, 9, 9}), w = randn({4, 3, 3, 3}), b = randn({8}).slice(0, 0, 8, 2);
  const auto odd = [&](Device d) {
    return conv2d(x.to(d).slice(1, 0, 6, 2).slice(3, 0, 9, 2), w.to(d).transpose(2, 3), b.to(d), {.padding = 1});
  };
  const Tensor host = odd(kCPU);
  check_close(odd(kCUDA), host);
  for (const bool benchmark : {true, false}) {
    backends::cuda::set_cudnn_benchmark(benchmark);
    check_close(odd(kCUDA), host);
  }
  const Tensor flat = randn({1 + 2 * 3 * 25 + 4});  // dense views that begin off the grid of 16 bytes
  const auto shifted = [&](Device d) {
    return conv2d(flat.to(d).slice(0, 1, 151).view({2, 3, 5, 5}), w.to(d), b.to(d).slice(0, 0, 4), {.padding = 1});
  };
  check_close(shifted(kCUDA), shifted(kCPU));
  CHECK(conv2d(zeros({0, 3, 5, 5}, {.device = kCUDA}), w.to(kCUDA)).shape() == Shape{0, 4, 3, 3});
  const auto up = [&](Device d) {
    return conv_transpose2d(randn({2, 4, 3, 3}, {.dtype = kFloat64}).fill_(0.5).to(d), w.to(kFloat64).to(d), {},
                            {.stride = 2, .padding = 1, .output_padding = 1});
  };
  check_close(up(kCUDA), up(kCPU));
  CHECK_FALSE(error_of([] {
                (void)conv2d(ones({1, 1, 3, 3}, {.dtype = kBool, .device = kCUDA}),
                             ones({1, 1, 2, 2}, {.dtype = kBool, .device = kCUDA}));
              }).empty());
  backends::cuda::set_cudnn_allow_tf32(true);
}
