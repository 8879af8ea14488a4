#pragma once
#include <string>
#include <string_view>

namespace tapir::inline v0::io {

/// A path as an error message shows it: whole, with control characters and broken UTF-8 as shown() has them.
std::string shown_path(std::string_view path);

}  // namespace tapir::inline v0::io
