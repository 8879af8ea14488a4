#include "../../../cuda_kernels/vendor/nvrtc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <vector>

#include "../../../core/choices.h"
#include "../../../core/error.h"
#include "../../../core/trace_call.h"
#include "../../../cuda_kernels/vendor/module.h"
#include "../count.h"
#include "../fibers.h"
#include "../include/emulation/module_parts.h"
#include "../runtime.h"
#include "kernel_compiler.h"  // made by CMake

extern char** environ;

// Kernels whose text is made at run time: compiled by the host's compiler into a small library, loaded, and launched as all kernels are.
namespace tapir::inline v0::cuda_kernels {
namespace {

const char* prefix() { return cuda_emulation::counting() ? TAPIR_CHECKED_PREFIX : TAPIR_KERNEL_PREFIX; }

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_file(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// A folder that is gone at the end of the scope.
struct Folder {
  std::string path = std::string(std::filesystem::temp_directory_path()) + "/tapir_kernel.XXXXXX";
  Folder() { check_runtime(mkdtemp(path.data()) != nullptr, "[fused] expected a folder for temporary files"); }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
};

/// "Mul Add Relu": what the text of a fused kernel computes, at most eight of them, for whoever reads counts.
std::string operations_of(const std::string& text) {
  static const std::regex pattern("One(Unary|Binary|Ternary)<[A-Za-z]+Op\\(([0-9]+)\\)|Row(Sum|Max)<");
  std::vector<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end && names.size() < 8; ++it) {
    const std::string kind = (*it)[1].str(), fold = (*it)[3].str();
    const int op = fold.empty() ? std::stoi((*it)[2].str()) : 0;
    names.push_back(!fold.empty()      ? fold
                    : kind == "Unary"  ? tapir::detail::name_of_op(UnaryOp(op))
                    : kind == "Binary" ? tapir::detail::name_of_op(BinaryOp(op))
                                       : tapir::detail::name_of_op(TernaryOp(op)));
  }
  std::string all;
  for (const std::string& n : names) all += " " + n;
  return all.empty() ? " casts" : all;
}

/// Runs the compiler; what it wrote is in the folder's `log`.
bool compile_file(const Folder& folder) {
  const std::string source = folder.path + "/kernel.cpp", to = folder.path + "/kernel.so", log = folder.path + "/log";
  std::vector<std::string> words = {
      TAPIR_KERNEL_COMPILER, TAPIR_KERNEL_FLAGS, "-shared", "-include", prefix(), source, "-o", to};
  if (cuda_emulation::counting()) words.insert(words.end(), {"-nodefaultlibs", TAPIR_KERNEL_CHECKS});
  std::vector<char*> arguments;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = 0;
  int status = -1;
  const int error = posix_spawn(&child, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  while (error == 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return error == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// What tests want of a compilation: TAPIR_EMULATED_COMPILE_LOG, _HOLD and _REFUSE in README.md.
void obey_settings(const std::string& name) {
  const auto setting = [](const char* end) {
    const char* const text = std::getenv((std::string("TAPIR_EMULATED_COMPILE_") + end).c_str());
    return std::string(text ? text : "");
  };
  if (const std::string log = setting("LOG"); !log.empty()) {
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const std::string line = name + '\n';
    check_runtime(write(fd, line.data(), line.size()) == ssize_t(line.size()), "[fused] expected to write to {}", log);
    close(fd);
  }
  const std::string hold = setting("HOLD");
  for (int i = 0; i < 6000 && access(hold.c_str(), F_OK) == 0; ++i) usleep(10000);
  check_internal(setting("REFUSE").empty(), "[fused] NVRTC: error 6: refused");
}

}  // namespace

namespace nvrtc {

const std::string& why_not() {
  static const std::string* const text = new std::string(
      access(TAPIR_KERNEL_COMPILER, X_OK) == 0 && access(prefix(), R_OK) == 0 ? "" : "there is no C++ compiler");
  return *text;
}
std::string why_not(int, int) { return why_not(); }
std::string describe() {
  return why_not().empty() ? "NVRTC (emulated: this machine's C++ compiler)" : "no NVRTC: " + why_not();
}
const std::string& version() {
  static const std::string* const text = [] {  // what the headers are compiled to changes with them
    const std::filesystem::path headers = std::string(prefix()) + ".gch";
    std::error_code none;
    const auto time = std::filesystem::last_write_time(headers, none).time_since_epoch().count();
    return new std::string(std::string(cuda_emulation::counting() ? "counted " : "emulated ") + std::to_string(time) +
                           " " + std::to_string(std::filesystem::file_size(headers, none)));
  }();
  return *text;
}
std::string compile(const std::string& text, const std::string& name, int) {
  obey_settings(name);
  const Folder folder;
  write_file(folder.path + "/kernel.cpp", text + "TAPIR_MODULE(tapir::cuda_kernels::" + name + "_types::" + name +
                                              ")\nTAPIR_MODULE_TEXT(\"fused" + operations_of(text) + "\")\n");
  check_internal(compile_file(folder), "[fused] {}\n{}", text, read_file(folder.path + "/log"));
  return read_file(folder.path + "/kernel.so");
}

}  // namespace nvrtc

namespace module {
namespace {

struct Loaded {
  void (*run)(const void* words);
  void* kernel;
};
/// What a launch runs: the kernel's address stands before its argument.
struct Arguments {
  void (*run)(const void*);
  uint64_t words[1];
};
void invoke(const void* p) {
  const auto& a = *static_cast<const Arguments*>(p);
  a.run(a.words);
}

}  // namespace

void* load(const std::string& binary, const std::string& name) {
  check_cuda(cuda_emulation::refuse_in_capture(), "fused");  // as cuModuleLoadData
  const Folder folder;
  const std::string path = folder.path + "/" + name + ".so";
  write_file(path, binary);
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  check_runtime(library != nullptr, "[fused] {}", dlerror());
  using cuda_emulation::ModuleParts;
  const auto set_parts = reinterpret_cast<void (*)(const ModuleParts*)>(dlsym(library, "tapir_module_parts"));
  const ModuleParts parts = {&threadIdx,
                             &blockIdx,
                             &blockDim,
                             &gridDim,
                             reinterpret_cast<void*>(&cuda_emulation::barrier),
                             reinterpret_cast<void*>(&cuda_emulation::exchange),
                             reinterpret_cast<void*>(&cuda_emulation::note_fence),
                             reinterpret_cast<void*>(&cuda_emulation::trap),
                             reinterpret_cast<void*>(&cuda_emulation::check_module_access)};
  set_parts(&parts);
  void* const kernel = reinterpret_cast<void* (*)()>(dlsym(library, "tapir_module_kernel"))();
  cuda_emulation::name_kernel(kernel, reinterpret_cast<const char* (*)()>(dlsym(library, "tapir_module_text"))());
  return new Loaded{reinterpret_cast<void (*)(const void*)>(dlsym(library, "tapir_module_call")), kernel};
}

void launch(const Context& ctx, const char* op, void* kernel, const cuda::Grid& grid, std::span<const uint64_t> words,
            int pointers) {
  static const std::vector<size_t> places = [] {
    std::vector<size_t> list;
    for (size_t i = 0; i < 64; ++i) list.push_back(i * sizeof(uint64_t));
    return list;
  }();
  const OnDevice on(ctx.device);
  const Loaded& loaded = *static_cast<const Loaded*>(kernel);
  std::vector<uint64_t> bytes = {reinterpret_cast<uint64_t>(loaded.run)};
  bytes.insert(bytes.end(), words.begin(), words.end());
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks, config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes, config.stream = stream_of(ctx);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization, early.val.programmaticStreamSerializationAllowed = 1;
  if (grid.early && cuda_emulation::counting()) config.attrs = &early, config.numAttrs = 1;  // its wait is PTX
  if (!cuda_emulation::has_context())  // as cuLaunchKernel, which this stands for
    cuda::check_launch(cudaErrorDeviceUninitialized, op, grid, config.stream);
  const cuda_emulation::Argument argument{sizeof(uint64_t), words.size_bytes(), places.data(), size_t(pointers)};
  cuda::check_launch(cuda_emulation::launch(
                         config, {loaded.kernel, invoke, bytes.data(), bytes.size() * sizeof(uint64_t), &argument, 1}),
                     op, grid, config.stream);
}

}  // namespace module
}  // namespace tapir::inline v0::cuda_kernels
