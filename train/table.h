#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tapir::inline v0::train {

/// A table that grows by a line per epoch, columns right-aligned at fixed widths. The header comes before the first
/// row.
class Table {
 public:
  explicit Table(std::vector<std::string> columns, int fd = 1, int least_width = 8);
  /// ValueError for another number of cells than columns.
  void row(const std::vector<std::string>& cells);
  /// The line of those cells, without its end.
  std::string line(const std::vector<std::string>& cells) const;

 private:
  std::vector<std::string> columns_;
  int fd_, least_width_;
  bool began_ = false;
};

/// "1.50 GB", "12.0 MB", "340 B"
std::string bytes_text(double bytes);
/// A number with that many decimals, whatever the locale.
std::string fixed(double value, int decimals);

}  // namespace tapir::inline v0::train
