// cuSOLVER, what we use of its dense part.
#pragma once
#include <cublas_v2.h>

EMULATED_SOLVER_ENUMS(EMULATED_ENUM)
using cusolverDnHandle_t = struct cusolverDnContext*;

#pragma GCC visibility push(hidden)
extern "C" {
EMULATED_SOLVER_FUNCTIONS(EMULATED_FUNCTION)
}
#pragma GCC visibility pop
