#pragma once
#include <cstring>

#include <tapir/tapir.h>

namespace tapir_tests {

/// The same shape, dtype and bytes; absent equals absent.
inline bool same_bits(const tapir::Tensor& a, const tapir::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const tapir::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (x.numel() == 0 ||
          std::memcmp(x.data_ptr(), y.data_ptr(), size_t(x.numel() * tapir::size_of(x.dtype()))) == 0);
}

}  // namespace tapir_tests
