// usage: run_module FILE: calls the program in a shared library, swish.cu's main() under another name, beside the plugin that is in there.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc != 2 || setenv("TAPIR_CUDA_PLUGIN", argv[1], 1) != 0) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  auto* const program = library ? reinterpret_cast<int (*)()>(dlsym(library, "_Z12program_mainv")) : nullptr;
  if (!program) {
    std::printf("%s\n0 passed, 1 failed, 0 skipped\n", dlerror());
    return 1;
  }
  const int status = program();
  std::printf("%d passed, %d failed, 0 skipped\n", status == 0, status != 0);
  return status;
}
