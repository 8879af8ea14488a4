// A stand-in for CUDA's header of the same name: g++ compiles an unchanged .cu file against it, and the files beside this folder run
// the kernels on the host. The threads of a block are fibers of one host thread, so plain memory operations are already atomic;
// what is emulated is the launch model and, above all, its rules.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_runtime_api.h"
#include "emulation/atomics.h"
#include "emulation/launch.h"
#include "emulation/math.h"
#include "emulation/warp.h"

template <class T> cudaError_t cudaMalloc(T** pointer, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <class T> cudaError_t cudaMallocHost(T** pointer, size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes);
}
template <class T> cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <class R, class... P> cudaError_t cudaFuncSetAttribute(R (*kernel)(P...), cudaFuncAttribute which, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), which, value);
}
template <class R, class... P> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, R (*kernel)(P...)) {
  return cudaFuncGetAttributes(out, reinterpret_cast<const void*>(kernel));
}
template <class R, class... P> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, R (*kernel)(P...),
                                                                                         int threads,
                                                                                         size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel), threads,
                                                       shared_bytes);
}
