// For a library that stands beside the emulated plugin, with symbols of its own: the stand-in for NCCL asks the emulation through this.
#pragma once
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>

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
  /// A call goes on beside the host, as one piece of work on a stream of that device: what it reads is copied to the host's memory at once, what
  /// it will write is void. Until it has ended and the host has waited for it, none of that memory may be freed. Null where that is
  /// wrong: `why` says what.
  void* (*begin_call)(const char* name, int device, void* stream, Parts reads, Parts writes, const char*& why);
  /// Writes, and ends the call: "", or what is wrong.
  const char* (*end_call)(void* call, Parts writes);
  /// The call was given up.
  void (*drop_call)(void* call);
};

/// Of the plugin that TAPIR_CUDA_PLUGIN names, where it is loaded and emulated; else null.
inline const Beside* beside() {
  const char* path = std::getenv("TAPIR_CUDA_PLUGIN");
  void* const plugin = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  const auto f = plugin ? reinterpret_cast<const Beside* (*)()>(dlsym(plugin, "cuda_emulation_beside")) : nullptr;
  return f ? f() : nullptr;
}

}  // namespace cuda_emulation
