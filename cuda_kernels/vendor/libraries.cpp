#include "libraries.h"

#include <cublas_api.h>
#include <cusolver_common.h>
#include <dlfcn.h>

#include "../../core/cuda_libraries.h"

// Note [Forwarded functions]
// The plugin does not link CUDA's libraries. Each function of theirs that vendor/*.cpp call is defined here as a jump to an address, which is
// looked up when the library is opened: a call costs one jump more, and nobody repeats the declarations of CUDA's headers. Before that, and
// where the library is missing, the jump leads to absent(). The linker (--no-undefined) says which function a list lacks.
// Left as it is: clang-format finds no end of these.
// clang-format off
#define CUBLAS_LT(F) \
  F(cublasLtCreate) F(cublasLtGetVersion) F(cublasLtGetStatusString) F(cublasLtMatmul) \
  F(cublasLtMatmulAlgoCheck) F(cublasLtMatmulAlgoGetHeuristic) F(cublasLtMatmulDescCreate) \
  F(cublasLtMatmulDescSetAttribute) F(cublasLtMatmulPreferenceCreate) F(cublasLtMatmulPreferenceDestroy) \
  F(cublasLtMatmulPreferenceSetAttribute) F(cublasLtMatrixLayoutCreate) F(cublasLtMatrixLayoutSetAttribute)
#define CUBLAS(F) \
  F(cublasCreate_v2) F(cublasSetStream_v2) F(cublasGetStatusString) F(cublasSgetrfBatched) \
  F(cublasDgetrfBatched) F(cublasStrsmBatched) F(cublasDtrsmBatched)
#define CUSOLVER(F) \
  F(cusolverDnCreate) F(cusolverDnSetStream) F(cusolverGetVersion) F(cusolverDnSpotrf) F(cusolverDnDpotrf) \
  F(cusolverDnSpotrf_bufferSize) F(cusolverDnDpotrf_bufferSize) F(cusolverDnSpotrfBatched) \
  F(cusolverDnDpotrfBatched) F(cusolverDnSgetrf) F(cusolverDnDgetrf) F(cusolverDnSgetrf_bufferSize) \
  F(cusolverDnDgetrf_bufferSize) F(cusolverDnSgeqrf) F(cusolverDnDgeqrf) F(cusolverDnSgeqrf_bufferSize) \
  F(cusolverDnDgeqrf_bufferSize) F(cusolverDnSorgqr) F(cusolverDnDorgqr) F(cusolverDnSorgqr_bufferSize) \
  F(cusolverDnDorgqr_bufferSize) F(cusolverDnSsyevd) F(cusolverDnDsyevd) F(cusolverDnSsyevd_bufferSize) \
  F(cusolverDnDsyevd_bufferSize) F(cusolverDnSgesvd) F(cusolverDnDgesvd) F(cusolverDnSgesvd_bufferSize) \
  F(cusolverDnDgesvd_bufferSize)
#define CUDNN(F) \
  F(cudnnBackendCreateDescriptor) F(cudnnBackendDestroyDescriptor) F(cudnnBackendExecute) \
  F(cudnnBackendFinalize) F(cudnnBackendGetAttribute) F(cudnnBackendSetAttribute) F(cudnnCreate) \
  F(cudnnGetErrorString) F(cudnnGetLastErrorString) F(cudnnGetStream) F(cudnnGetVersion) F(cudnnSetStream) \
  F(cudnnCreateFilterDescriptor) F(cudnnDestroyFilterDescriptor) F(cudnnSetFilterNdDescriptor) \
  F(cudnnReorderFilterAndBias)
// An engine of cudnn-frontend's own, which Tapir never asks for, compiles by NVRTC: these stay absent.
#define NVRTC(F) \
  F(nvrtcCompileProgram) F(nvrtcCreateProgram) F(nvrtcDestroyProgram) F(nvrtcGetCUBIN) F(nvrtcGetCUBINSize) \
  F(nvrtcGetProgramLog) F(nvrtcGetProgramLogSize)
// clang-format on

#ifdef __aarch64__
#define TAPIR_JUMP(name) "adrp x16, tapir_to_" #name "\n ldr x16, [x16, #:lo12:tapir_to_" #name "]\n br x16\n"
#else
#define TAPIR_JUMP(name) "jmp *tapir_to_" #name "(%rip)\n"
#endif
#define TAPIR_FORWARD(name)                                                                             \
  extern "C" {                                                                                          \
  __attribute__((visibility("hidden"), used)) void* tapir_to_##name = reinterpret_cast<void*>(&absent); \
  }                                                                                                     \
  asm(".pushsection .text\n.globl " #name "\n.hidden " #name "\n.type " #name ", %function\n" #name     \
      ":\n" TAPIR_JUMP(name) ".size " #name ", .-" #name "\n.popsection\n");

/// Not a success in any library of them.
extern "C" __attribute__((visibility("hidden"))) int absent() { return 1; }
CUBLAS_LT(TAPIR_FORWARD)
CUBLAS(TAPIR_FORWARD)
CUSOLVER(TAPIR_FORWARD)
CUDNN(TAPIR_FORWARD)
NVRTC(TAPIR_FORWARD)

#define TAPIR_TEXT_OF(x) #x
#define TAPIR_TEXT(x) TAPIR_TEXT_OF(x)
#define TAPIR_FILE(name, major) "lib" name ".so." TAPIR_TEXT(major)

namespace tapir::inline v0::cuda_kernels {
namespace {

struct Function {
  const char* name;
  void** address;
};
#define TAPIR_FUNCTION(name) {#name, &tapir_to_##name},
constexpr Function cublas_lt[] = {CUBLAS_LT(TAPIR_FUNCTION)}, cublas[] = {CUBLAS(TAPIR_FUNCTION)},
                   cusolver[] = {CUSOLVER(TAPIR_FUNCTION)}, cudnn[] = {CUDNN(TAPIR_FUNCTION)};

/// 12345 as 1.23.45, or 12345 as 12.3.45: NVIDIA has two ways.
std::string version_text(int64_t v, int64_t major) {
  return std::to_string(v / major) + '.' + std::to_string(v % major / 100) + '.' + std::to_string(v % 100);
}

class Library {
 public:
  template <size_t N> Library(const char* name, const char* file, const char* wheel, const Function (&functions)[N])
      : name_(name), found_(open_cuda_library({file}, wheel)) {
    why_not_ = found_.handle ? "" : std::string("no ") + name + ": " + found_.why_not;
    for (size_t i = 0; i < N && why_not_.empty(); ++i)
      if (!dlsym(found_.handle, functions[i].name))
        why_not_ = std::string(name) + " of " + found_.path + " has no " + functions[i].name;
    for (size_t i = 0; i < N && why_not_.empty(); ++i) *functions[i].address = dlsym(found_.handle, functions[i].name);
  }
  const std::string& why_not() const { return why_not_; }
  std::string text() const { return why_not_.empty() ? name_ + version() + " (" + place() + ")" : why_not_; }

 private:
  std::string version() const {
    using Size = size_t (*)();
    using Int = int (*)(int*);
    using Property = int (*)(libraryPropertyType, int*);
    int number = 0;
    if (const auto lt = reinterpret_cast<Size>(dlsym(found_.handle, "cublasLtGetVersion")); lt && name_ == "cuBLASLt")
      return ' ' + version_text(int64_t(lt()), 10000);
    if (const auto dnn = reinterpret_cast<Size>(dlsym(found_.handle, "cudnnGetVersion")))
      return ' ' + version_text(int64_t(dnn()), 10000);
    if (const auto solver = reinterpret_cast<Int>(dlsym(found_.handle, "cusolverGetVersion"));
        solver && solver(&number) == 0)
      return ' ' + version_text(number, 1000);
    std::string text;
    if (const auto property = reinterpret_cast<Property>(dlsym(found_.handle, "cublasGetProperty")))
      for (const libraryPropertyType part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL})
        if (property(part, &number) == 0) text += (text.empty() ? ' ' : '.') + std::to_string(number);
    return text;
  }
  /// Where it was opened, which the loader knows.
  std::string place() const {
    Dl_info info{};
    const char* const any = name_ == "cuDNN"      ? "cudnnCreate"
                            : name_ == "cuSOLVER" ? "cusolverDnCreate"
                            : name_ == "cuBLAS"   ? "cublasCreate_v2"
                                                  : "cublasLtCreate";
    return dladdr(dlsym(found_.handle, any), &info) && info.dli_fname ? info.dli_fname : found_.path;
  }
  std::string name_;
  CudaLibrary found_;
  std::string why_not_;
};

/// Never closed: kernels may run until the program's last line. cuBLAS and cuSOLVER need what stands before them.
const Library& library(Vendor v) {
  static const auto* const lt = new Library("cuBLASLt", TAPIR_FILE("cublasLt", CUBLAS_VER_MAJOR), "cublas", cublas_lt);
  if (v == Vendor::CublasLt) return *lt;
  static const auto* const blas = new Library("cuBLAS", TAPIR_FILE("cublas", CUBLAS_VER_MAJOR), "cublas", cublas);
  if (v == Vendor::Cublas) return *blas;
  if (v == Vendor::Cudnn) {
    static const auto* const dnn = new Library("cuDNN", "libcudnn.so.9", "cudnn", cudnn);
    return *dnn;
  }
  static const auto* const solver =
      new Library("cuSOLVER", TAPIR_FILE("cusolver", CUSOLVER_VER_MAJOR), "cusolver", cusolver);
  return *solver;
}

}  // namespace

const std::string& why_not(Vendor v) { return library(v).why_not(); }
std::string describe(Vendor v) { return library(v).text(); }

}  // namespace tapir::inline v0::cuda_kernels
