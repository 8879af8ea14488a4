// Codes of CUDA's that captures alone give, and no file of Tapir's names.
#pragma once
#include <cuda_runtime_api.h>

constexpr auto cudaErrorStreamCaptureUnmatched = cudaError_t(903), cudaErrorStreamCaptureImplicit = cudaError_t(906);
