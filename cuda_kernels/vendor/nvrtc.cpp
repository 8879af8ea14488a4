#include "nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "../../core/choices.h"
#include "../../core/cuda_libraries.h"
#include "../../core/error.h"
#include "../fused/fused_prelude.h"

namespace tapir::inline v0::cuda_kernels::nvrtc {
namespace {

// No contraction of products and sums: steps round as the calls they stand for.
constexpr const char* kOptions[] = {"-std=c++20", "-default-device", "-fmad=false"};
constexpr int kOldest = 12000;  // release; older ones do not take the text

std::string text_of(int release) { return std::to_string(release / 1000) + "." + std::to_string(release % 1000 / 10); }

/// What came of a text: a binary, or an error and NVRTC's words for it.
struct Made {
  int error = 0;
  std::string bytes;
};

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
  int release = 0;         // 12040 is 12.4
  std::vector<int> known;  // architectures

  Library() {
    const CudaLibrary found = open_cuda_library({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, "cuda_nvrtc");
    void* const library = found.handle;
    if (!library) {
      why_not = found.why_not;
      return;
    }
    find(library, "nvrtcVersion", version), find(library, "nvrtcGetNumSupportedArchs", count_architectures);
    find(library, "nvrtcGetSupportedArchs", architectures), find(library, "nvrtcCreateProgram", create);
    find(library, "nvrtcDestroyProgram", destroy), find(library, "nvrtcCompileProgram", compile);
    find(library, "nvrtcGetProgramLogSize", log_size), find(library, "nvrtcGetProgramLog", log);
    find(library, "nvrtcGetCUBINSize", binary_size), find(library, "nvrtcGetCUBIN", binary);
    find(library, "nvrtcGetPTXSize", ptx_size), find(library, "nvrtcGetPTX", ptx);
    if (why_not.empty()) look();
  }
  template <class F> void find(void* library, const char* symbol, F& function) {
    function = reinterpret_cast<F>(dlsym(library, symbol));
    if (!function) why_not = std::string("libnvrtc has no ") + symbol;
  }
  /// Its release, what it knows, and whether it works: a part of it may be missing.
  void look() {
    int major = 0, minor = 0, count = 0;
    version(&major, &minor), count_architectures(&count);
    release = 1000 * major + 10 * minor;
    known.resize(size_t(count));
    architectures(known.data());
    name = "nvrtc " + text_of(release) + " " + file() + " " + checksum(fused_prelude);
    for (const char* option : kOptions) name += std::string(" ") + option;
    if (release < kOldest || known.empty()) {
      why_not = "expected NVRTC of CUDA " + text_of(kOldest) + " or newer, got " + text_of(release);
      return;
    }
    const Made tried = make("extern \"C\" __global__ void tried() {}", "tried", known.back(), true);
    if (tried.error) why_not = "NVRTC does not work: error " + std::to_string(tried.error) + ": " + tried.bytes;
  }
  std::string path() const {
    Dl_info info{};
    return dladdr(reinterpret_cast<void*>(version), &info) && info.dli_fname ? info.dli_fname : "";
  }
  /// The name of its file, whose end is the patch level.
  std::string file() const {
    std::error_code none;
    return std::filesystem::canonical(path(), none).filename().string();
  }
  /// exact: machine code; else what the driver makes machine code of.
  Made make(const std::string& text, const std::string& name, int architecture, bool exact) const {
    const std::string target = (exact ? "-arch=sm_" : "-arch=compute_") + std::to_string(architecture);
    std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
    options.push_back(target.c_str());
    Program program = nullptr;
    Made made;
    made.error = create(&program, text.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr);
    if (made.error) return made;
    made.error = compile(program, int(options.size()), options.data());
    const auto size_of_it = made.error ? log_size : exact ? binary_size : ptx_size;
    const auto get = made.error ? log : exact ? binary : ptx;
    size_t size = 0;
    const bool got = size_of_it(program, &size) == 0 && size > 0 && (made.bytes.resize(size), true) &&
                     get(program, made.bytes.data()) == 0;
    destroy(&program);
    if (!made.error && !got) made = {-1, "an empty binary"};
    return made;
  }
};
const Library& library() {
  static const auto* const opened = new Library;  // never closed: used until the program's last line
  return *opened;
}
/// The newest architecture up to that one; 0: there is none.
int nearest(const Library& l, int capability) {
  int found = 0;
  for (const int k : l.known) found = k <= capability ? std::max(found, k) : found;
  return found;
}

}  // namespace

const std::string& why_not() { return library().why_not; }
const std::string& version() { return library().name; }
std::string describe() {
  const Library& l = library();
  return l.why_not.empty() ? "NVRTC " + text_of(l.release) + " (" + l.path() + ")" : "no NVRTC: " + l.why_not;
}

/// Drivers load machine code of all releases up to their own major number, but no text of a newer release.
std::string why_not(int capability, int driver) {
  const Library& l = library();
  if (!l.why_not.empty()) return l.why_not;
  const int known = nearest(l, capability);
  if (known == 0)
    return "NVRTC of CUDA " + text_of(l.release) + " knows no compute capability up to " + std::to_string(capability);
  if (known == capability ? l.release / 1000 <= driver / 1000 : l.release <= driver) return "";
  return "the driver, for CUDA " + text_of(driver) + ", does not load what NVRTC of CUDA " + text_of(l.release) +
         " makes for compute capability " + std::to_string(capability);
}

std::string compile(const std::string& text, const std::string& name, int capability) {
  const Library& l = library();
  check_runtime(l.why_not.empty(), "[fused] expected NVRTC, but {}", l.why_not);
  const int known = nearest(l, capability);
  Made made = l.make(fused_prelude + text, name, known, known == capability);
  check_internal(made.error == 0, "[fused] NVRTC: error {}: {}", made.error, made.bytes);
  return std::move(made.bytes);
}

}  // namespace tapir::inline v0::cuda_kernels::nvrtc
