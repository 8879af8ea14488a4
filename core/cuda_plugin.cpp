#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "cuda.h"
#include "device_table.h"
#include "error.h"
#include "unwinder.h"

namespace tapir::inline v0 {

extern const char* const plugin_folder;  // backends.cpp
CudaSettings cuda_settings;

namespace {

struct Opened {
  const CudaPlugin *plugin = nullptr, *any = nullptr;  // any: also where it cannot be used
  std::string why_not;
};

/// Where the plugin may lie: named by the user, beside the program or library that this code is part of, where the loader looks, where
/// it was installed.
Opened open_plugin() {
  constexpr const char* kName = "libtapir_cuda.so";
  std::string beside;
  if (Dl_info info; dladdr(reinterpret_cast<void*>(&open_plugin), &info) && info.dli_fname) {
    beside = info.dli_fname;
    beside = beside.substr(0, beside.rfind('/') + 1);
  }
  const char* named = std::getenv("TAPIR_CUDA_PLUGIN");
  if (named && !*named) named = nullptr;
  const std::string places[] = {beside + kName, kName, std::string(plugin_folder) + "/" + kName};
  Opened result;
  void* library = nullptr;
  std::string tried;
  for (const std::string& place : places) {
    const char* const path = named ? named : place.c_str();
    if ((library = dlopen(path, RTLD_NOW | RTLD_LOCAL))) break;
    tried += std::string(tried.empty() ? "" : "; ") + dlerror();
    if (named) break;
  }
  if (!library) {
    result.why_not = "the CUDA plugin could not be opened: " + tried;
    return result;
  }
  fill_unwinder();
  const auto entry = reinterpret_cast<const CudaPlugin* (*)(CudaSettings*)>(dlsym(library, "tapir_cuda_plugin"));
  if (!entry) {
    result.why_not = std::string("the file is not a CUDA plugin of Tapir: ") + dlerror();
    return result;
  }
  const CudaPlugin* plugin = entry(&cuda_settings);
  if (plugin->abi != CudaPlugin::kAbi || plugin->table_bytes != int64_t(sizeof(BackendTable)))
    result.why_not = tapir::format("the CUDA plugin belongs to another version of Tapir (interface {}, expected {})",
                                   plugin->abi, CudaPlugin::kAbi);
  else if (result.any = plugin; !plugin->table) result.why_not = plugin->why_not;
  else result.plugin = plugin;
  return result;
}

const Opened& opened() {
  static const Opened* const result = new Opened(open_plugin());  // never destroyed: storages may outlive main
  return *result;
}

}  // namespace

const BackendTable* cuda_backend() { return opened().plugin ? opened().plugin->table : nullptr; }

namespace cuda {
bool is_available() { return opened().plugin != nullptr; }
int device_count() { return is_available() ? opened().plugin->device_count : 0; }
std::string why_not() { return opened().why_not; }
std::string library_report() { return opened().any ? opened().any->library_report() : why_not() + '\n'; }
}  // namespace cuda

}  // namespace tapir::inline v0
