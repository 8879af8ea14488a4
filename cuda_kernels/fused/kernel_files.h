#pragma once
#include <functional>
#include <string>

// Note [Kernels kept on disk]
// What was compiled while a program ran is kept for the next one: a file for each kernel in `kernels` beside the choices (Note [Choices
// kept on disk]), named by a hash of all that it depends on: its text, the compiler and its version, the architecture. A file begins with a line
//   tapir kernel 1 <tab> checksum of that key <tab> checksum of what follows
// It is written under a name that nobody has and then renamed, so that programs of one user may share the folder; it is code, so no other
// user may write there. A file that is cut or changed is
// none, and where nothing can be written kernels live as long as the program. No CUDA in it.
// Processes that want one kernel at the same time (the ranks of a job) compile it once: one has a lock on a file beside it, the others wait
// for what it writes. The system takes the lock from a process that dies; one that keeps it too long is not waited for, since to compile
// twice does no harm.
namespace tapir::inline v0::cuda_kernels {

class KernelFiles {
 public:
  /// An empty folder: nothing is read or written.
  explicit KernelFiles(std::string folder) : folder_(std::move(folder)) {}
  /// "" where there is none.
  std::string find(const std::string& key) const;
  void keep(const std::string& key, const std::string& binary) const;
  /// What find() gives, or what `make` makes, here or in another process. Nobody is waited for any more once `hurry` says so.
  std::string find_or_make(const std::string& key, const std::function<std::string()>& make, bool (*hurry)()) const;
  std::string path_of(const std::string& key) const;

 private:
  std::string folder_;
};

}  // namespace tapir::inline v0::cuda_kernels
