#include "nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "../../core/error.h"
#include "../fused_prelude.h"
#include "../tuning.h"

namespace tapir::inline v0::cuda_kernels::nvrtc {
namespace {

// NVRTC's interface, as it has been since CUDA 11.2: no header is needed, and no toolkit where this is built.
using Program = struct NvrtcProgram*;
struct Library {
  int (*version)(int* major, int* minor) = nullptr;
  int (*count_architectures)(int* count) = nullptr;
  int (*architectures)(int* list) = nullptr;
  int (*create)(Program*, const char* text, const char* name, int headers, const char* const*,
                const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int count, const char* const* options) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*binary_size)(Program, size_t*) = nullptr;
  int (*binary)(Program, char*) = nullptr;
  int (*ptx_size)(Program, size_t*) = nullptr;
  int (*ptx)(Program, char*) = nullptr;
  std::string why_not, name;
  std::vector<int> known;  // architectures

  Library() {
    void* library = nullptr;
    for (const char* file : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"})
      if (!library) library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      why_not = "libnvrtc was not found";
      return;
    }
    find(library, "nvrtcVersion", version), find(library, "nvrtcGetNumSupportedArchs", count_architectures);
    find(library, "nvrtcGetSupportedArchs", architectures), find(library, "nvrtcCreateProgram", create);
    find(library, "nvrtcDestroyProgram", destroy), find(library, "nvrtcCompileProgram", compile);
    find(library, "nvrtcGetProgramLogSize", log_size), find(library, "nvrtcGetProgramLog", log);
    find(library, "nvrtcGetCUBINSize", binary_size), find(library, "nvrtcGetCUBIN", binary);
    find(library, "nvrtcGetPTXSize", ptx_size), find(library, "nvrtcGetPTX", ptx);
    if (!why_not.empty()) return;
    int major = 0, minor = 0, count = 0;
    version(&major, &minor), count_architectures(&count);
    known.resize(size_t(count));
    architectures(known.data());
    name = "nvrtc " + std::to_string(major) + "." + std::to_string(minor) + " " + checksum(fused_prelude);
  }
  template <class F> void find(void* library, const char* symbol, F& function) {
    function = reinterpret_cast<F>(dlsym(library, symbol));
    if (!function) why_not = std::string("libnvrtc has no ") + symbol;
  }
};
const Library& library() {
  static const auto* const opened = new Library;  // never closed: used until the program's last line
  return *opened;
}

}  // namespace

const std::string& why_not() { return library().why_not; }
const std::string& version() { return library().name; }

std::string compile(const std::string& text, const std::string& name, int capability) {
  const Library& l = library();
  check_runtime(l.why_not.empty(), "[fused] expected NVRTC, but {}", l.why_not);
  int known = 0;  // the newest up to that one
  for (const int k : l.known) known = k <= capability ? std::max(known, k) : known;
  const bool exact = known == capability;  // else the driver makes machine code of what an older architecture runs
  const std::string architecture = (exact ? "-arch=sm_" : "-arch=compute_") + std::to_string(known);
  // No contraction of products and sums: steps round as the calls they stand for.
  const char* const options[] = {architecture.c_str(), "-std=c++20", "-default-device", "-fmad=false"};
  const std::string whole = fused_prelude + text;
  Program program = nullptr;
  check_internal(l.create(&program, whole.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr) == 0,
                 "[fused] NVRTC: no program");
  const int error = l.compile(program, int(std::size(options)), options);
  const auto size_of_it = error ? l.log_size : exact ? l.binary_size : l.ptx_size;
  const auto get = error ? l.log : exact ? l.binary : l.ptx;
  size_t size = 0;
  size_of_it(program, &size);
  std::string result(size, '\0');
  get(program, result.data());
  l.destroy(&program);
  check_internal(error == 0, "[fused] NVRTC: error {}: {}", error, result);
  return result;
}

}  // namespace tapir::inline v0::cuda_kernels::nvrtc
