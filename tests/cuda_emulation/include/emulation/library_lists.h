// What we use of cuBLAS, cuBLASLt and cuSOLVER, once: the headers beside here declare it, and where the toolkit is, a file of the plugin's
// build (tests/real_headers.cpp) compares it with the toolkit's own headers.
#pragma once

// clang-format off
// X(enumerator, value)
#define EMULATED_DATA_TYPES(X) \
  X(CUDA_R_32F, 0) X(CUDA_R_64F, 1) X(CUDA_R_16F, 2) X(CUDA_R_16BF, 14) X(CUDA_R_8F_E4M3, 28) X(CUDA_R_8F_E5M2, 29)
#define EMULATED_BLAS_STATUS(X)                                                                             \
  X(CUBLAS_STATUS_SUCCESS, 0) X(CUBLAS_STATUS_NOT_INITIALIZED, 1) X(CUBLAS_STATUS_ALLOC_FAILED, 3)          \
  X(CUBLAS_STATUS_INVALID_VALUE, 7) X(CUBLAS_STATUS_ARCH_MISMATCH, 8) X(CUBLAS_STATUS_EXECUTION_FAILED, 13) \
  X(CUBLAS_STATUS_INTERNAL_ERROR, 14) X(CUBLAS_STATUS_NOT_SUPPORTED, 15)
#define EMULATED_COMPUTE_TYPES(X) \
  X(CUBLAS_COMPUTE_32F, 68) X(CUBLAS_COMPUTE_64F, 70) X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)
#define EMULATED_OPERATIONS(X) X(CUBLAS_OP_N, 0) X(CUBLAS_OP_T, 1) X(CUBLAS_OP_C, 2)
#define EMULATED_FILL_MODES(X) X(CUBLAS_FILL_MODE_LOWER, 0) X(CUBLAS_FILL_MODE_UPPER, 1)
#define EMULATED_DIAGONALS(X) X(CUBLAS_DIAG_NON_UNIT, 0) X(CUBLAS_DIAG_UNIT, 1)
#define EMULATED_SIDES(X) X(CUBLAS_SIDE_LEFT, 0) X(CUBLAS_SIDE_RIGHT, 1)
#define EMULATED_LAYOUT_ATTRIBUTES(X) \
  X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5) X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)
#define EMULATED_DESC_ATTRIBUTES(X)                                                                       \
  X(CUBLASLT_MATMUL_DESC_TRANSA, 3) X(CUBLASLT_MATMUL_DESC_TRANSB, 4) X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7) \
  X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8) X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11)                \
  X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12) X(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 17)                 \
  X(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 18) X(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26)
#define EMULATED_PREFERENCE_ATTRIBUTES(X)                                                           \
  X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1) X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)   \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5) X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6) \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7) X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)
#define EMULATED_REDUCTION_SCHEMES(X)                                                      \
  X(CUBLASLT_REDUCTION_SCHEME_NONE, 0) X(CUBLASLT_REDUCTION_SCHEME_INPLACE, 1)             \
  X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2) X(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 4) \
  X(CUBLASLT_REDUCTION_SCHEME_MASK, 7)
#define EMULATED_EPILOGUES(X)                                                                         \
  X(CUBLASLT_EPILOGUE_DEFAULT, 1) X(CUBLASLT_EPILOGUE_RELU, 2) X(CUBLASLT_EPILOGUE_BIAS, 4)           \
  X(CUBLASLT_EPILOGUE_GELU, 32) X(CUBLASLT_EPILOGUE_GELU_BIAS, 36) X(CUBLASLT_EPILOGUE_GELU_AUX, 160) \
  X(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164) X(CUBLASLT_EPILOGUE_DGELU, 192)                           \
  X(CUBLASLT_EPILOGUE_BGRADA, 256) X(CUBLASLT_EPILOGUE_BGRADB, 512)
#define EMULATED_SOLVER_STATUS(X)                                                                        \
  X(CUSOLVER_STATUS_SUCCESS, 0) X(CUSOLVER_STATUS_NOT_INITIALIZED, 1) X(CUSOLVER_STATUS_ALLOC_FAILED, 2) \
  X(CUSOLVER_STATUS_INVALID_VALUE, 3) X(CUSOLVER_STATUS_INTERNAL_ERROR, 7)
#define EMULATED_EIG_MODES(X) X(CUSOLVER_EIG_MODE_NOVECTOR, 0) X(CUSOLVER_EIG_MODE_VECTOR, 1)

// E(type, list)
#define EMULATED_BLAS_ENUMS(E)                                                           \
  E(cublasStatus_t, EMULATED_BLAS_STATUS) E(cublasComputeType_t, EMULATED_COMPUTE_TYPES) \
  E(cublasOperation_t, EMULATED_OPERATIONS) E(cublasFillMode_t, EMULATED_FILL_MODES)     \
  E(cublasDiagType_t, EMULATED_DIAGONALS) E(cublasSideMode_t, EMULATED_SIDES)
#define EMULATED_LT_ENUMS(E)                                              \
  E(cublasLtMatrixLayoutAttribute_t, EMULATED_LAYOUT_ATTRIBUTES)          \
  E(cublasLtMatmulDescAttributes_t, EMULATED_DESC_ATTRIBUTES)             \
  E(cublasLtMatmulPreferenceAttributes_t, EMULATED_PREFERENCE_ATTRIBUTES) \
  E(cublasLtReductionScheme_t, EMULATED_REDUCTION_SCHEMES) E(cublasLtEpilogue_t, EMULATED_EPILOGUES)
#define EMULATED_SOLVER_ENUMS(E) E(cusolverStatus_t, EMULATED_SOLVER_STATUS) E(cusolverEigMode_t, EMULATED_EIG_MODES)
// clang-format on

// F(result, name, (parameters))
#define EMULATED_BLAS_FUNCTIONS(F)                                      \
  F(cublasStatus_t, cublasCreate_v2, (cublasHandle_t*))                 \
  F(cublasStatus_t, cublasDestroy_v2, (cublasHandle_t))                 \
  F(cublasStatus_t, cublasSetStream_v2, (cublasHandle_t, cudaStream_t)) \
  F(const char*, cublasGetStatusString, (cublasStatus_t))               \
  EMULATED_BLAS_OF_TYPE(F, S, float) EMULATED_BLAS_OF_TYPE(F, D, double)
#define EMULATED_BLAS_OF_TYPE(F, S, T)                                                                      \
  F(cublasStatus_t, cublas##S##getrfBatched,                                                                \
    (cublasHandle_t, int n, T* const a[], int lda, int* pivots, int* info, int batch))                      \
  F(cublasStatus_t, cublas##S##trsmBatched,                                                                 \
    (cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int m, int n, \
     const T* alpha, const T* const a[], int lda, T* const b[], int ldb, int batch))

#define EMULATED_LT_FUNCTIONS(F)                                                                                       \
  F(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t*))                                                               \
  F(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t))                                                               \
  F(const char*, cublasLtGetStatusString, (cublasStatus_t))                                                            \
  F(size_t, cublasLtGetVersion, ())                                                                                    \
  F(cublasStatus_t, cublasLtMatrixLayoutCreate,                                                                        \
    (cublasLtMatrixLayout_t*, cudaDataType_t, uint64_t rows, uint64_t columns, int64_t ld))                            \
  F(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t))                                             \
  F(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,                                                                  \
    (cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void* value, size_t bytes))                        \
  F(cublasStatus_t, cublasLtMatmulDescCreate, (cublasLtMatmulDesc_t*, cublasComputeType_t, cudaDataType_t scale))      \
  F(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t))                                                 \
  F(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                                                    \
    (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void* value, size_t bytes))                           \
  F(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t*))                                     \
  F(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t))                                     \
  F(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                                              \
    (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void* value, size_t bytes))               \
  F(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                                                    \
    (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,                       \
     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t, int most,                         \
     cublasLtMatmulHeuristicResult_t results[], int* count))                                                           \
  F(cublasStatus_t, cublasLtMatmulAlgoCheck,                                                                           \
    (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,                       \
     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t*,                                  \
     cublasLtMatmulHeuristicResult_t*))                                                                                \
  F(cublasStatus_t, cublasLtMatmul,                                                                                    \
    (cublasLtHandle_t, cublasLtMatmulDesc_t, const void* alpha, const void* a, cublasLtMatrixLayout_t, const void* b,  \
     cublasLtMatrixLayout_t, const void* beta, const void* c, cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t, \
     const cublasLtMatmulAlgo_t*, void* workspace, size_t bytes, cudaStream_t))

#define EMULATED_SOLVER_FUNCTIONS(F)                                           \
  F(cusolverStatus_t, cusolverDnCreate, (cusolverDnHandle_t*))                 \
  F(cusolverStatus_t, cusolverDnDestroy, (cusolverDnHandle_t))                 \
  F(cusolverStatus_t, cusolverDnSetStream, (cusolverDnHandle_t, cudaStream_t)) \
  EMULATED_SOLVER_OF_TYPE(F, S, float) EMULATED_SOLVER_OF_TYPE(F, D, double)
#define EMULATED_SOLVER_OF_TYPE(F, S, T)                                                                               \
  F(cusolverStatus_t, cusolverDn##S##potrf_bufferSize,                                                                 \
    (cusolverDnHandle_t, cublasFillMode_t, int n, T* a, int lda, int* size))                                           \
  F(cusolverStatus_t, cusolverDn##S##potrf,                                                                            \
    (cusolverDnHandle_t, cublasFillMode_t, int n, T* a, int lda, T* space, int size, int* info))                       \
  F(cusolverStatus_t, cusolverDn##S##potrfBatched,                                                                     \
    (cusolverDnHandle_t, cublasFillMode_t, int n, T* a[], int lda, int* info, int batch))                              \
  F(cusolverStatus_t, cusolverDn##S##getrf_bufferSize, (cusolverDnHandle_t, int m, int n, T* a, int lda, int* size))   \
  F(cusolverStatus_t, cusolverDn##S##getrf,                                                                            \
    (cusolverDnHandle_t, int m, int n, T* a, int lda, T* space, int* pivots, int* info))                               \
  F(cusolverStatus_t, cusolverDn##S##geqrf_bufferSize, (cusolverDnHandle_t, int m, int n, T* a, int lda, int* size))   \
  F(cusolverStatus_t, cusolverDn##S##geqrf,                                                                            \
    (cusolverDnHandle_t, int m, int n, T* a, int lda, T* tau, T* space, int size, int* info))                          \
  F(cusolverStatus_t, cusolverDn##S##orgqr_bufferSize,                                                                 \
    (cusolverDnHandle_t, int m, int n, int k, const T* a, int lda, const T* tau, int* size))                           \
  F(cusolverStatus_t, cusolverDn##S##orgqr,                                                                            \
    (cusolverDnHandle_t, int m, int n, int k, T* a, int lda, const T* tau, T* space, int size, int* info))             \
  F(cusolverStatus_t, cusolverDn##S##syevd_bufferSize,                                                                 \
    (cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int n, const T* a, int lda, const T* w, int* size))      \
  F(cusolverStatus_t, cusolverDn##S##syevd,                                                                            \
    (cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int n, T* a, int lda, T* w, T* space, int size,          \
     int* info))                                                                                                       \
  F(cusolverStatus_t, cusolverDn##S##gesvd_bufferSize, (cusolverDnHandle_t, int m, int n, int* size))                  \
  F(cusolverStatus_t, cusolverDn##S##gesvd,                                                                            \
    (cusolverDnHandle_t, signed char left, signed char right, int m, int n, T* a, int lda, T* s, T* u, int ldu, T* vt, \
     int ldvt, T* space, int size, T* rest, int* info))
