#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tapir::inline v0::io {

/// SHA-256 (FIPS 180-4) as 64 hexadecimal digits.
std::string sha256(std::string_view bytes);
/// Of a file's content; RuntimeError when it cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace tapir::inline v0::io
