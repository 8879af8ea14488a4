#include "csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "../core/convert.h"
#include "../core/dispatch.h"
#include "../core/error.h"
#include "file.h"
#include "shown_path.h"

namespace tapir::inline v0::io {

namespace {

constexpr int64_t kBlock = 1 << 16;

/// The fields of one line after the other.
class CsvScanner {
 public:
  CsvScanner(const std::string& path, const CsvOptions& options)
      : file_("read_csv", path), options_(options), where_("[read_csv] " + shown_path(path)) {
    if (peek() == 0xEF) {  // a byte order mark is no part of the first name
      skip(), check_byte(0xBB), check_byte(0xBF);
    }
  }
  /// The next line that is not blank; false at the end of the file.
  bool next();
  int64_t size() const { return int64_t(ends_.size()); }
  std::string_view operator[](int64_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[size_t(i) - 1];
    return std::string_view(text_).substr(begin, ends_[size_t(i)] - begin);
  }
  /// Leaves out the last field where the line ended in a delimiter.
  void drop_empty_end() {
    if (size() > 1 && !last_quoted_ && (*this)[size() - 1].empty()) ends_.pop_back();
  }
  int64_t line() const { return first_line_; }
  const std::string& where() const { return where_; }
  [[noreturn]] void fail_at(std::string_view expected, std::string_view got) const {
    fail(ErrorKind::Runtime, "{}: line {}, column {}: expected {}, got {}", where_, line_, size() + 1, expected, got);
  }

 private:
  int peek() { return at_ < int64_t(block_.size()) || refill() ? uint8_t(block_[size_t(at_)]) : -1; }
  void skip() { ++at_, ++bytes_; }
  bool refill();
  void check_byte(int wanted) {
    if (peek() != wanted) fail_at("UTF-8", "half a byte order mark");
    skip();
  }
  void line_break(int c) {
    skip(), ++line_;
    if (c == '\r' && peek() == '\n') skip();
  }
  void take(int c) {
    if (c == 0) fail_at("text", "a NUL byte");
    if (bytes_ >= options_.max_line)
      fail_at(tapir::format("a line of at most {} bytes", options_.max_line), "a longer one");
    text_ += char(c);
    skip();
  }
  void field();
  void quoted_field();

  InputFile file_;
  const CsvOptions& options_;
  std::string where_, block_, text_;
  std::vector<size_t> ends_;  // of the fields in text_
  int64_t offset_ = 0, at_ = 0, bytes_ = 0, line_ = 1, first_line_ = 1;
  bool last_quoted_ = false;
};

bool CsvScanner::refill() {
  block_.resize(size_t(std::min(kBlock, file_.size() - offset_)));
  file_.read(offset_, block_.data(), int64_t(block_.size()));
  offset_ += int64_t(block_.size()), at_ = 0;
  return !block_.empty();
}

bool CsvScanner::next() {
  text_.clear(), ends_.clear();
  int c = peek();
  for (; c == '\n' || c == '\r'; c = peek()) line_break(c);
  if (c < 0) return false;
  first_line_ = line_, bytes_ = 0;
  for (;;) {
    last_quoted_ = peek() == '"';
    if (last_quoted_) quoted_field();
    else field();
    ends_.push_back(text_.size());
    c = peek();
    if (c != uint8_t(options_.delimiter)) break;
    if (bytes_ >= options_.max_line)
      fail_at(tapir::format("a line of at most {} bytes", options_.max_line), "a longer one");
    skip();
  }
  if (c >= 0) line_break(c);
  return true;
}

void CsvScanner::field() {
  for (int c = peek(); c >= 0 && c != uint8_t(options_.delimiter) && c != '\n' && c != '\r'; c = peek()) take(c);
}

/// "..." in which "" is a quote, and delimiters and line breaks are text.
void CsvScanner::quoted_field() {
  const int64_t begin = line_;
  skip();
  for (;;) {
    const int c = peek();
    if (c < 0) fail_at("a closing quote", tapir::format("the end of the file; the quote is open since line {}", begin));
    if (c == '"') {
      skip();
      if (peek() != '"') break;
    } else if (c == '\n') {
      ++line_;
    }
    take(c);
  }
  const int c = peek();
  if (c >= 0 && c != uint8_t(options_.delimiter) && c != '\n' && c != '\r')
    fail_at("a delimiter or the end of the line after a quote", "\"" + shown(std::string(1, char(c))) + "\"");
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

bool is_missing(std::string_view s) {
  const auto is = [&](std::string_view word) {
    return s.size() == word.size() &&
           std::equal(s.begin(), s.end(), word.begin(), [](char a, char b) { return (a | 0x20) == b; });
  };
  return s.empty() || is("nan") || is("na");
}

/// A decimal number below 1: one that is out of a float's range is then too small, and rounds to 0.
bool is_below_one(std::string_view s) {
  const size_t e = std::min(s.find_first_of("eE"), s.size()), point = std::min(s.substr(0, e).find('.'), e);
  const size_t digit = std::min(s.substr(0, e).find_first_of("123456789"), e);
  int64_t exponent = 0;
  if (e < s.size()) {
    const bool minus = s[e + 1] == '-', sign = minus || s[e + 1] == '+';
    const auto [end, error] = std::from_chars(s.data() + e + 1 + sign, s.data() + s.size(), exponent);
    if (error != std::errc() || exponent > (int64_t(1) << 60)) return minus;
    if (minus) exponent = -exponent;
  }
  return int64_t(point) - int64_t(digit) + (digit > point) + exponent <= 0;
}

/// The whole text as a finite float, or an integer in range.
template <class T> bool parse(std::string_view s, T& out) {
  if (s.starts_with('+') && !s.starts_with("+-")) s.remove_prefix(1);
  if constexpr (is_half<T>) {
    float wide = 0;
    if (!parse(s, wide)) return false;
    out = T(wide);
    return std::isfinite(float(out));
  } else {
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), out);
    if (s.empty() || end != s.data() + s.size()) return false;
    if constexpr (std::floating_point<T>) {
      if (error == std::errc::result_out_of_range && is_below_one(s)) return out = s[0] == '-' ? T(-0.) : T(0), true;
      return error == std::errc() && std::isfinite(out);
    }
    return error == std::errc();
  }
}

/// The positions of the columns wanted, and their names.
std::vector<int64_t> choose(const CsvScanner& line, const CsvOptions& options, std::vector<std::string>& names) {
  const int64_t count = line.size();
  std::vector<int64_t> out;
  std::vector<std::string> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(options.header ? std::string(trimmed(line[i])) : std::to_string(i));
  for (int64_t i = 0; options.columns.empty() && i < count; ++i) out.push_back(i);
  for (const std::string& wanted : options.columns) {
    const auto at = std::find(all.begin(), all.end(), wanted);
    std::string there;
    for (int64_t i = 0; i < std::min<int64_t>(count, 10); ++i)
      there += (i ? ", \"" : "\"") + shown(all[size_t(i)]) + "\"";
    if (count > 10) there += tapir::format(", ... ({} columns)", count);
    check_runtime(at != all.end(), "{}: line {}: expected a column \"{}\", got {}", line.where(), line.line(), wanted,
                  there);
    check_runtime(std::find(at + 1, all.end(), wanted) == all.end(),
                  "{}: line {}: expected one column \"{}\", got several: {}", line.where(), line.line(), wanted, there);
    out.push_back(at - all.begin());
  }
  for (const int64_t i : out) names.push_back(all[size_t(i)]);
  return out;
}

/// Reads the numbers of one line.
template <class T> class RowReader {
 public:
  RowReader(const CsvScanner& line, const CsvOptions& options) : line_(line), options_(options) {
    if (!options.missing) return;
    const double v = *options.missing;
    if constexpr (std::integral<T>) {
      missing_ = saturate<T>(v);
      check(double(missing_) == v, "[read_csv] expected missing as a number of {}, got {}", options.dtype, v);
    } else {
      missing_ = T(v);
      check(std::isfinite(missing_) || !std::isfinite(v), "[read_csv] expected missing as a number of {}, got {}",
            options.dtype, v);
    }
  }
  void append(const std::vector<int64_t>& columns, const std::vector<std::string>& names, std::vector<T>& to) const {
    for (size_t k = 0; k < columns.size(); ++k) {
      const std::string_view s = trimmed(line_[columns[k]]);
      T v = missing_;
      const bool fine = (options_.missing && is_missing(s)) || parse(s, v);
      if (!fine || (options_.dtype == kBool && v > T(1))) refuse(columns[k], names[k]);
      to.push_back(v);
    }
  }

 private:
  [[noreturn]] void refuse(int64_t column, const std::string& name) const {
    fail(ErrorKind::Runtime, "{}: line {}, column {} (\"{}\"): expected a finite number of {}, got \"{}\"",
         line_.where(), line_.line(), column + 1, shown(name), options_.dtype, shown(line_[column]));
  }
  const CsvScanner& line_;
  const CsvOptions& options_;
  T missing_ = {};
};

template <class T> CsvTable read_rows(CsvScanner& line, const CsvOptions& options) {
  CsvTable out;
  const RowReader<T> row(line, options);
  check_runtime(line.next(), "{}: expected lines of numbers, the file has none", line.where());
  line.drop_empty_end();
  const int64_t count = line.size();
  const std::vector<int64_t> columns = choose(line, options, out.columns);
  std::vector<T> values;
  bool more = !options.header || line.next();
  check_runtime(more, "{}: expected lines of numbers, the file has a header only", line.where());
  for (; more; more = line.next()) {
    if (line.size() == count + 1) line.drop_empty_end();
    check_runtime(line.size() == count, "{}: line {}: expected {} fields, got {}", line.where(), line.line(), count,
                  line.size());
    row.append(columns, out.columns, values);
  }
  const auto width = int64_t(columns.size());
  out.values = empty({int64_t(values.size()) / width, width}, {.dtype = options.dtype});
  if (!values.empty()) std::memcpy(out.values.data_ptr(), values.data(), values.size() * sizeof(T));
  return out;
}

}  // namespace

Tensor CsvTable::operator[](std::string_view column) const {
  const auto at = std::find(columns.begin(), columns.end(), column);
  check(at != columns.end() && std::find(at + 1, columns.end(), column) == columns.end(),
        "[CsvTable] expected the name of one column, got \"{}\"", shown(column));
  return values.select(1, at - columns.begin());
}

CsvTable read_csv(const std::string& path, const CsvOptions& options) {
  const std::string_view never("\"\n\r\0+-.", 7);
  check(never.find(options.delimiter) == never.npos && !std::isalnum(uint8_t(options.delimiter)),
        "[read_csv] expected a delimiter that is no part of a number, a quote or a line break, got \"{}\"",
        shown(std::string(1, options.delimiter)));
  check(options.max_line > 0, "[read_csv] expected max_line above 0, got {}", options.max_line);
  CsvScanner line(path, options);
  return for_all("read_csv", options.dtype, [&]<class T>() {
    using Stored = std::conditional_t<std::same_as<T, bool>, uint8_t, T>;  // a vector of bools is none
    return read_rows<Stored>(line, options);
  });
}

}  // namespace tapir::inline v0::io
