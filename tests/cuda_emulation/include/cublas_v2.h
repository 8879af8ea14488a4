// cuBLAS, what we use of it: the handle, and products and factors of batches.
#pragma once
#include <cuda_runtime_api.h>
#include <library_types.h>

EMULATED_BLAS_ENUMS(EMULATED_ENUM)
using cublasHandle_t = struct cublasContext*;

#pragma GCC visibility push(hidden)
extern "C" {
EMULATED_BLAS_FUNCTIONS(EMULATED_FUNCTION)
}
#pragma GCC visibility pop
#define cublasCreate cublasCreate_v2
#define cublasDestroy cublasDestroy_v2
#define cublasSetStream cublasSetStream_v2
