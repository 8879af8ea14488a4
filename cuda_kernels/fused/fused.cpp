#include "../../core/fused.h"
#include "../../core/choices.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "../kernels.h"
#include "../launch.h"
#include "../runtime/background.h"
#include "../runtime/graphs.h"
#include "../vendor/module.h"
#include "../vendor/nvrtc.h"
#include "fused_source.h"
#include "kernel_files.h"

// Fused calls: each signature has a kernel of its own (Note [Generated kernels]), which is compiled when it is first asked for, and then
// kept: in memory, and on disk (Note [Kernels kept on disk]). Who asks before it is needed (prepare_fused) has it compiled in the background
// (Note [Work in the background]); else the call that needs it compiles it, or waits. Kernels are loaded by whoever asks, not in the
// background. A call whose kernel was loaded asks nothing of the device but to queue it, so that it may be captured. The host works out
// layout, arguments and signature anew, and looks the kernel up, in every call.
namespace tapir::inline v0::cuda_kernels {
namespace {

struct Kernel {
  enum State { Unknown, Asked, Made, Failed };  // of the background
  std::mutex making;
  std::string binary, error;  // error: that the background met
  std::atomic<State> state{Unknown};
  std::atomic<void*> loaded[kMaxDevices] = {};
};

int capability_of(Device device) {
  static std::atomic<int> known[kMaxDevices] = {};  // the same number from every thread
  std::atomic<int>& n = known[device.index];
  if (n == 0) n = compute_capability(device);
  return n;
}

/// A call, with all that its kernel depends on.
struct Request {
  Request(Device device, const entry::Fused& c)
      : device(device), params(*c.params), layout(c.outs, c.ins, params), call(call_of(layout, params)),
        capability(capability_of(device)), signature(call.signature + char(capability)) {}
  std::string name() const { return "fused_" + checksum(signature); }
  std::string text() const { return source_of(layout, params, name()); }

  const Device device;
  const FusedParams& params;
  const FusedLayout layout;
  const FusedCall call;
  const int capability;
  const std::string signature;
};

const KernelFiles& files() {
  static const auto* const all = new KernelFiles(cache_folder());  // never destroyed
  return *all;
}
std::string key_of(const std::string& text, int capability) {
  return nvrtc::version() + "|" + std::to_string(capability) + "|" + text;
}
/// From the disk, or compiled.
std::string make_binary(const std::string& text, const std::string& name, int capability) {
  return files().find_or_make(
      key_of(text, capability), [&] { return nvrtc::compile(text, name, capability); }, background_ends);
}

class Kernels {
 public:
  Kernel& of(const Request& r) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Kernel>& place = kernels_[r.signature];
    if (!place) place = std::make_unique<Kernel>();
    return *place;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
};
Kernels& kernels() {
  static auto* const all = new Kernels;  // never destroyed: used until the program's last line
  return *all;
}

/// The kernel of such calls, ready on that device. One thread compiles it, others that ask wait.
void* ready(Kernel& kernel, const Request& r) {
  std::atomic<void*>& loaded = kernel.loaded[r.device.index];
  if (void* there = loaded.load(std::memory_order_acquire)) return there;
  refuse_capture("fused");
  const std::lock_guard lock(kernel.making);
  const std::string name = r.name();
  if (kernel.binary.empty()) kernel.binary = make_binary(r.text(), name, r.capability);
  if (!loaded) {
    const OnDevice on(r.device);
    loaded = module::load(kernel.binary, name);
  }
  return loaded;
}

/// In the background.
void make(Kernel& kernel, const std::string& text, const std::string& name, int capability) {
  const std::lock_guard lock(kernel.making);
  kernel.error.clear();
  try {
    if (kernel.binary.empty()) kernel.binary = make_binary(text, name, capability);
    kernel.state = Kernel::Made;
  } catch (const std::exception& e) {
    kernel.error = e.what();
    kernel.state = Kernel::Failed;
  }
}

/// Has it made in the background, unless it is there or asked for.
bool ask(Kernel& kernel, const Request& r) {
  Kernel::State state = kernel.state;
  if (state == Kernel::Asked) return false;
  const std::string text = state == Kernel::Made ? "" : r.text();
  if (state == Kernel::Made || !files().find(key_of(text, r.capability)).empty()) return ready(kernel, r);
  if (kernel.state.compare_exchange_strong(state, Kernel::Asked))
    in_background([&kernel, text, name = r.name(), c = r.capability] { make(kernel, text, name, c); });
  return false;
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
  const Request r(ctx.device, c);
  cuda::Grid grid = grid_for(r.layout);
  grid.early = r.capability >= 90 && begins_early(ctx.device);  // Note [Early launches]
  module::launch(ctx, "fused", ready(kernels().of(r), r), grid, r.call.arguments, r.layout.operands);
}

bool prepare_fused(Device device, const entry::Fused& c, Prepare how) {
  if (c.outs.empty() || c.outs[0].numel() == 0) return true;
  const Request r(device, c);
  Kernel& kernel = kernels().of(r);
  if (how == Prepare::Wait || kernel.loaded[device.index]) return ready(kernel, r);
  if (how == Prepare::Ask) return ask(kernel, r);
  if (kernel.state == Kernel::Failed) {
    const std::lock_guard lock(kernel.making);
    if (!kernel.error.empty()) throw InternalError(kernel.error);
  }
  return kernel.state == Kernel::Made && ready(kernel, r);
}

}  // namespace tapir::inline v0::cuda_kernels
