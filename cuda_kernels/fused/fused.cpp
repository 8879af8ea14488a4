#include "../../core/fused.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "../kernels.h"
#include "../launch.h"
#include "../runtime/graphs.h"
#include "../runtime/tuning.h"
#include "../vendor/module.h"
#include "../vendor/nvrtc.h"
#include "fused_source.h"
#include "kernel_files.h"

// Fused calls: each signature has a kernel of its own (Note [Generated kernels]), which is compiled when it is first asked for, and then
// kept: in memory, and on disk (Note [Kernels kept on disk]). A call whose kernel was loaded asks nothing of the device but to queue it, so
// that it may be captured. The host works out layout, arguments and signature anew, and looks the kernel up, in every call.
namespace tapir::inline v0::cuda_kernels {
namespace {

struct Kernel {
  std::mutex making;
  std::string binary;
  std::atomic<void*> loaded[kMaxDevices] = {};
};

int capability_of(Device device) {
  static std::atomic<int> known[kMaxDevices] = {};  // the same number from every thread
  std::atomic<int>& n = known[device.index];
  if (n == 0) n = compute_capability(device);
  return n;
}

/// From the disk, or compiled.
std::string make_binary(const std::string& text, const std::string& name, int capability) {
  static const auto* const files = new KernelFiles(cache_folder());  // never destroyed
  const std::string key = nvrtc::version() + "|" + std::to_string(capability) + "|" + text;
  std::string binary = files->find(key);
  if (!binary.empty()) return binary;
  binary = nvrtc::compile(text, name, capability);
  files->keep(key, binary);
  return binary;
}

class Kernels {
 public:
  /// The kernel of such calls, ready on that device. One thread compiles it, others that ask wait.
  void* find(Device device, const FusedLayout& l, const FusedParams& params, const FusedCall& call) {
    const int capability = capability_of(device);
    const std::string signature = call.signature + char(capability);
    Kernel* kernel = nullptr;
    {
      const std::lock_guard lock(mutex_);
      std::unique_ptr<Kernel>& place = kernels_[signature];
      if (!place) place = std::make_unique<Kernel>();
      kernel = place.get();
    }
    std::atomic<void*>& loaded = kernel->loaded[device.index];
    if (void* ready = loaded.load(std::memory_order_acquire)) return ready;
    refuse_capture("fused");
    const std::lock_guard lock(kernel->making);
    const std::string name = "fused_" + checksum(signature);
    if (kernel->binary.empty()) kernel->binary = make_binary(source_of(l, params, name), name, capability);
    if (!loaded) {
      const OnDevice on(device);
      loaded = module::load(kernel->binary, name);
    }
    return loaded;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
};
Kernels& kernels() {
  static auto* const all = new Kernels;  // never destroyed: used until the program's last line
  return *all;
}

cuda::Grid grid_for(const FusedLayout& l) {
  if (!l.rows) return grid_of(l.packs);
  if (!l.block) return grid_of(l.count_rows * 32, 128);
  cuda::Grid grid = grid_of(l.count_rows, 1);
  grid.threads = dim3(256);
  return grid;
}

}  // namespace

void fused(Context& ctx, const entry::Fused& c) {
  if (c.outs.empty() || c.outs[0].numel() == 0) return;
  const FusedLayout layout(c.outs, c.ins, *c.params);
  const FusedCall call = call_of(layout, *c.params);
  module::launch(ctx, "fused", kernels().find(ctx.device, layout, *c.params, call), grid_for(layout), call.arguments,
                 layout.operands);
}

}  // namespace tapir::inline v0::cuda_kernels
