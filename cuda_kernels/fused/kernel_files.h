#pragma once
#include <string>

// Note [Kernels kept on disk]
// What was compiled while a program ran is kept for the next one: a file for each kernel in `kernels` beside the choices (Note [Choices
// kept on disk]), named by a hash of all that it depends on: its text, the compiler and its version, the architecture. A file begins with a line
//   tapir kernel 1 <tab> checksum of that key <tab> checksum of what follows
// It is written under a name that nobody has and then renamed, so that programs of one user may share the folder; it is code, so no other
// user may write there. A file that is cut or changed is
// none, and where nothing can be written kernels live as long as the program. No CUDA in it.
namespace tapir::inline v0::cuda_kernels {

class KernelFiles {
 public:
  /// An empty folder: nothing is read or written.
  explicit KernelFiles(std::string folder) : folder_(std::move(folder)) {}
  /// "" where there is none.
  std::string find(const std::string& key) const;
  void keep(const std::string& key, const std::string& binary) const;
  std::string path_of(const std::string& key) const;

 private:
  std::string folder_;
};

}  // namespace tapir::inline v0::cuda_kernels
