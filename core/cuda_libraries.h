#pragma once
// Where CUDA's libraries are looked for at run time: a machine may have them in the loader's places, in a toolkit or in Python's packages alone.
#include <initializer_list>
#include <string>

namespace tapir::inline v0 {

struct CudaLibrary {
  void* handle = nullptr;  // null: why_not says which places were tried, and what each of them had
  std::string path, why_not;
};
/// Opens the first that is found, for good: each file name in the folders of $TAPIR_CUDA_LIBRARIES (separated by ':'); then, for one file
/// name after the other, where the loader looks, in the toolkit of $CUDA_HOME, $CUDA_PATH or /usr/local/cuda, in $CONDA_PREFIX, and in nvidia/<wheel>/lib and
/// nvidia/cu<N>/lib of the packages of Python: of $VIRTUAL_ENV, of each python3 on $PATH, of the user, of pyenv and of the
/// system.
/// A single file that is named by an absolute path is taken from there alone.
CudaLibrary open_cuda_library(std::initializer_list<const char*> files, const char* wheel);

}  // namespace tapir::inline v0
