#include "table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "../core/error.h"
#include "terminal.h"

namespace tapir::inline v0::train {

Table::Table(std::vector<std::string> columns, int fd, int least_width)
    : columns_(std::move(columns)), fd_(fd), least_width_(least_width) {
  check(least_width >= 0 && least_width <= 1000, "[Table] expected a least width in [0, 1000], got {}", least_width);
  for (std::string& c : columns_) c = plain(c);
}

std::string Table::line(const std::vector<std::string>& cells) const {
  check(cells.size() == columns_.size(), "[Table] expected {} cells, got {}", int64_t(columns_.size()),
        int64_t(cells.size()));
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {
    const size_t width = std::max(columns_[i].size(), size_t(least_width_));
    if (i) out += "  ";
    const std::string cell = plain(cells[i]);
    out += std::string(width - std::min(width, cell.size()), ' ') + cell;
  }
  return out;
}

void Table::row(const std::vector<std::string>& cells) {
  std::string text = line(cells) + "\n";
  if (!std::exchange(began_, true)) text = line(columns_) + "\n" + text;
  write_text(fd_, text);
}

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return "nan";
  char text[400];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, std::clamp(decimals, 0, 60)).ptr;
  return {text, end};
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; std::abs(bytes) >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return fixed(bytes, unit == 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2) + " " + units[unit];
}

}  // namespace tapir::inline v0::train
