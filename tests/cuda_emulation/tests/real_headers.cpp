// Compiled where the toolkit is: what the emulation declares of its libraries is what their own headers say. Makes no code.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cusolverDn.h>

#include <cstddef>
#include <type_traits>

#include "../include/emulation/library_lists.h"

#define SAME_VALUE(name, value) static_assert(static_cast<long>(name) == value, #name);
#define SAME_ENUM(type, list)                        \
  static_assert(sizeof(type) == sizeof(int), #type); \
  list(SAME_VALUE)
#define SAME_FUNCTION(result, name, parameters) static_assert(std::is_same_v<decltype(name), result parameters>, #name);

EMULATED_DATA_TYPES(SAME_VALUE)
EMULATED_BLAS_ENUMS(SAME_ENUM)
EMULATED_LT_ENUMS(SAME_ENUM)
EMULATED_SOLVER_ENUMS(SAME_ENUM)
EMULATED_BLAS_FUNCTIONS(SAME_FUNCTION)
EMULATED_LT_FUNCTIONS(SAME_FUNCTION)
EMULATED_SOLVER_FUNCTIONS(SAME_FUNCTION)

static_assert(sizeof(cublasLtMatrixLayoutOpaque_t) == 64 && sizeof(cublasLtMatmulPreferenceOpaque_t) == 64);
static_assert(sizeof(cublasLtMatmulDescOpaque_t) == 256 && sizeof(cublasLtMatmulAlgo_t) == 64);
static_assert(std::is_same_v<cublasLtMatrixLayout_t, cublasLtMatrixLayoutOpaque_t*>);
using Result = cublasLtMatmulHeuristicResult_t;
static_assert(offsetof(Result, workspaceSize) == 64 && offsetof(Result, state) == 72 && sizeof(Result) == 96);
