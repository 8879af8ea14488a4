#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0::io {

struct CsvOptions {
  DType dtype = kFloat32;
  std::vector<std::string> columns = {};  // those wanted, in that order; none: all
  bool header = true;                     // the first line names the columns; else they are "0", "1", ...
  char delimiter = ',';
  std::optional<double> missing = {};  // what empty fields, "nan" and "NA" become; none: they are errors
  int64_t max_line = 1 << 24;          // bytes, with the line breaks that stand in quotes
};

/// The numbers of a CSV file: (rows, columns).
struct CsvTable {
  std::vector<std::string> columns;
  Tensor values;
  /// The column of that name: (rows,). ValueError where there is none, or more than one.
  Tensor operator[](std::string_view column) const;
};

/// Reads a file of numbers: lines end in LF, CRLF or CR, blank ones are passed over, fields may stand in quotes, a line
/// may end in one delimiter too many. No locale: the decimal point is a point. RuntimeError with line, column and text
/// for what is no finite number of the dtype, for lines of different lengths, for a column that is absent or named twice.
CsvTable read_csv(const std::string& path, const CsvOptions& options = {});

}  // namespace tapir::inline v0::io
