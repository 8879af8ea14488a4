#pragma once
#include <source_location>

namespace tapir::inline v0 {

#ifdef __cpp_lib_source_location
using SourceLocation = std::source_location;
#else
/// What clang 14 lacks of std::source_location.
class SourceLocation {
 public:
  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          const char* function = __builtin_FUNCTION(),
                                          unsigned line = __builtin_LINE()) {
    SourceLocation here;
    here.file_ = file, here.function_ = function, here.line_ = line;
    return here;
  }
  constexpr const char* file_name() const { return file_; }
  constexpr const char* function_name() const { return function_; }
  constexpr unsigned line() const { return line_; }
  constexpr unsigned column() const { return 0; }

 private:
  const char *file_ = "", *function_ = "";
  unsigned line_ = 0;
};
#endif

}  // namespace tapir::inline v0
