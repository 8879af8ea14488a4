#pragma once

// A place where a kernel leaves a bad value (Note [Late errors]); what host and device code both know of it.
namespace tapir::inline v0::cuda_kernels {

struct LateError {
  int lock;
  int set;
  unsigned long long position;
  long long value, bound;
  int* any;  // of the device: some place is set
};

}  // namespace tapir::inline v0::cuda_kernels
