// Misaligned accesses, which a GPU answers with a sticky error: .cu files are compiled with -fsanitize=alignment, and the function that
// they call stands here (libubsan is not linked).
#include <cstdio>
#include <cstdlib>

#include "runtime.h"

namespace {
struct Mismatch {  // what g++ and clang write for each access
  const char* file;
  uint32_t line, column;
  const struct {
    uint16_t kind, detail;
    char name[1];
  } * type;
  unsigned char log_alignment, access;
};
}  // namespace

#pragma GCC visibility push(hidden)
extern "C" [[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(const Mismatch* m, uintptr_t p) {
  const uint64_t wanted = uint64_t(1) << m->log_alignment;
  const std::string why = std::string("misaligned access: ") + m->file + ":" + std::to_string(m->line) + " wants " +
                          m->type->name + " at a multiple of " + std::to_string(wanted) + " bytes, got one and " +
                          std::to_string(p % wanted);
  if (cuda_emulation::kernel_runs()) cuda_emulation::fail(why);
  std::fprintf(stderr, "\n%s, in host code\n", why.c_str());  // which has no way for an exception here
  std::abort();
}
#pragma GCC visibility pop
