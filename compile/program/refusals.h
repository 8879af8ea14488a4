#pragma once
// Note [Refusals]
// Kernels meet values that are errors: an index out of range, a divisor of 0. Eager code says what they are where the operation was called;
// a replay has the kernel's call alone, and says the same of it as far as that tells. Whatever reports a bad value stands here.
#include <string>

#include "program.h"

namespace tapir::inline v0::ir {

/// Can the call's kernel meet a value that is an error?
bool may_refuse(const Call& call);
/// What is said of it, with the names of fail_values().
std::string refusal_of(const Call& call);
/// Is a bad value that is not 0 an iteration that did not converge, a RuntimeError?
bool iterates(const Call& call);

}  // namespace tapir::inline v0::ir
