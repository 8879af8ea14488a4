#pragma once

namespace tapir::inline v0 {

/// For a function made of others, f(...) try { ... } catch (...) { fail_as("f"); }: throws the error on its way out again, with the name of
/// the function that was called instead of the inner one's. Errors of other types than ours leave as they are.
[[noreturn]] void fail_as(const char* op);

}  // namespace tapir::inline v0
