#pragma once
#include <iosfwd>
#include <string>

#include "tensor.h"

namespace tapir::inline v0 {

inline std::string to_text(const Tensor& x) { return x.str(); }
inline std::string to_text(const Dims& x) { return x.str(); }
inline std::string to_text(Device x) { return x.str(); }
inline std::string to_text(DType x) { return std::string(name_of(x)); }

/// std::cout << tensor, shape, device or dtype.
template <class Traits, class T>
requires std::same_as<T, Tensor> || std::same_as<T, Dims> || std::same_as<T, Device> || std::same_as<T, DType>
    std::basic_ostream<char, Traits>
&operator<<(std::basic_ostream<char, Traits>& out, const T& x) {
  const std::string text = to_text(x);
  return out.write(text.data(), std::streamsize(text.size()));
}

}  // namespace tapir::inline v0
