#pragma once

namespace tapir::inline v0 {

/// For hooks: f(data) when the backward() that goes on in this thread has ended, once for equal arguments; not where it throws. False, and
/// nothing is called, in grad() and outside of both.
bool call_after_backward(void (*f)(void*), void* data);

}  // namespace tapir::inline v0
