#pragma once
#include <atomic>
#include <mutex>
#include <string>

#include "dnn.h"

namespace tapir::inline v0::cpu::dnn {

/// A library's product behind a check of the library: small problems, of the forms that some version was wrong about (one strided row or
/// column, sums of one product, interleaved batches), are compared with plain loops before the first use.
class CheckedProduct {
 public:
  using Product = bool (*)(Context& ctx, const Gemm& g);
  /// library: its name and version, for the warning.
  CheckedProduct(std::string library, DType dtype, Product product)
      : library_(std::move(library)), dtype_(dtype), product_(product) {}
  /// The product's answer; false where the library is wrong, which one warning on stderr says. The first call checks; others wait for it.
  bool operator()(Context& ctx, const Gemm& g) {
    const State state = state_.load(std::memory_order_acquire);
    return (state == State::Right || (state == State::Unknown && check(ctx))) && product_(ctx, g);
  }

 private:
  enum class State : uint8_t { Unknown, Right, Wrong };
  bool check(const Context& ctx);
  const std::string library_;
  const DType dtype_;
  const Product product_;
  std::mutex mutex_;
  std::atomic<State> state_{State::Unknown};
};

}  // namespace tapir::inline v0::cpu::dnn
