// For a library that stands beside the emulated plugin, with symbols of its own: the stand-in for NCCL asks the emulation through this.
#pragma once
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>

namespace cuda_emulation {

/// Device memory, and the host's that is copied to or from it.
struct Part {
  void *device, *host;
  size_t bytes;
};
struct Parts {
  const Part* begin;
  size_t count;
};

struct Beside {
  int (*current_device)();
  bool (*set_device)(int device);
  /// A call is queued on a stream of that device, as one piece of work there; it goes on beside the host. What waits for it on the device
  /// waits in the host, until end_call() or drop_call(). Until the host, or another stream, has waited for its end, none of its memory may be
  /// freed. Null where that is wrong: `why` says what.
  void* (*begin_call)(const char* name, int device, void* stream, Parts reads, Parts writes, const char*& why);
  /// When what the call waits for has happened: what it reads is copied to the host's memory, what it will write is void.
  const char* (*run_call)(void* call, Parts reads, Parts writes);
  /// Writes, and ends the call: "", or what is wrong.
  const char* (*end_call)(void* call, Parts writes);
  /// The call was given up.
  void (*drop_call)(void* call);
  bool (*is_captured)(void* stream);
  /// On a captured stream: call(stream) in each launch of the graph, which gives "" or what is wrong.
  void (*keep_call)(void* stream, std::function<std::string(void* stream)> call);
};

/// Of the plugin that TAPIR_CUDA_PLUGIN names, where it is loaded and emulated; else null.
inline const Beside* beside() {
  const char* path = std::getenv("TAPIR_CUDA_PLUGIN");
  void* const plugin = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  const auto f = plugin ? reinterpret_cast<const Beside* (*)()>(dlsym(plugin, "cuda_emulation_beside")) : nullptr;
  return f ? f() : nullptr;
}

}  // namespace cuda_emulation
