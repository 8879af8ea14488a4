#pragma once
#include <optional>
#include <utility>

#include "../core/no_copy.h"
#include "../ops/autocast.h"

namespace tapir::inline v0::amp {

struct AutocastOptions {
  std::optional<DType> dtype = {};  // none: bfloat16 on the CPU, float16 on CUDA
  bool enabled = true;              // false: off in this scope
  bool cache_enabled = true;        // keep the casts of weights until the outermost region ends
};

/// In its scope operations on that kind of device run in mixed precision, by the rules of Note [Autocast] (ops/autocast.h):
///     amp::Autocast autocast(device);
///     Tensor loss = cross_entropy(net(x), y);
/// Regions nest; each thread has its own. Gradients run in the dtypes of their forward, wherever backward is called.
/// ValueError for a dtype that is not float16 or bfloat16.
class [[nodiscard]] Autocast : NoCopy {
 public:
  explicit Autocast(Device device, const AutocastOptions& options = {});
  ~Autocast();

 private:
  AutocastRegion region_;
  AutocastRegion* before_;
  CastCache* own_ = nullptr;
};

/// f, whose every call runs in such a scope.
template <class F> auto autocast(Device device, const AutocastOptions& options, F f) {
  return [=](auto&&... arguments) mutable -> decltype(auto) {
    Autocast scope(device, options);
    return f(std::forward<decltype(arguments)>(arguments)...);
  };
}
/// f, which in an autocast region gets its tensors in `dtype` (float64 ones excepted) and runs with autocast off: the way of a
/// custom function that needs a dtype of its own.
template <class F> auto cast_inputs(DType dtype, F f) {
  return [=](const auto&... arguments) mutable -> decltype(auto) {
    detail::CastScope cast(dtype, arguments...);
    return f(cast(arguments)...);
  };
}

/// Are operations on this kind of device cast here, and to what?
bool is_autocast_enabled(Device device);
DType autocast_dtype(Device device);

}  // namespace tapir::inline v0::amp
