#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tapir::inline v0::data {

/// Calls visit(name, bytes) for each file of a .tar or .tar.gz, front to back; names may be paths and are only names.
/// RuntimeError for a damaged archive and for files above `limit` bytes that `wanted` asks for.
struct TarVisitor {
  virtual ~TarVisitor() = default;
  virtual bool wanted(std::string_view name) = 0;
  virtual void visit(std::string_view name, std::string_view bytes) = 0;
};
void read_tar(std::string_view op, const std::string& path, TarVisitor& visitor, int64_t limit = int64_t(1) << 30);

}  // namespace tapir::inline v0::data
