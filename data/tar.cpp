#include "tar.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "../core/error.h"
#include "../io/gzip.h"

namespace tapir::inline v0::data {

namespace {

constexpr int64_t kBlock = 512, kMaxName = 1 << 16;

class Source {
 public:
  Source(std::string_view op, const std::string& path) : where_("[" + std::string(op) + "] " + path), file_(op, path) {
    if (io::is_gzip(file_)) gzip_.emplace(op, path);
  }
  /// Fewer bytes than asked for only at the end.
  int64_t read(char* to, int64_t bytes) {
    const int64_t got = gzip_ ? gzip_->read(to, bytes) : std::min(bytes, file_.size() - at_);
    if (!gzip_) file_.read(at_, to, got);
    at_ += got;
    return got;
  }
  void read_all(char* to, int64_t bytes) {
    check_runtime(read(to, bytes) == bytes, "{}: the tar archive ends within a file at byte {}", where_, at_);
  }
  void skip(int64_t bytes) {
    char buffer[1 << 14];
    for (; bytes > 0; bytes -= int64_t(sizeof buffer)) read_all(buffer, std::min(bytes, int64_t(sizeof buffer)));
  }
  int64_t at() const { return at_; }
  const std::string& where() const { return where_; }

 private:
  std::string where_;
  io::InputFile file_;
  std::optional<io::GzipReader> gzip_;
  int64_t at_ = 0;
};

/// An octal number of a header, or -1.
int64_t octal(std::string_view field) {
  int64_t value = 0;
  size_t i = field.find_first_not_of(' ');
  if (i == field.npos) return -1;
  for (; i < field.size() && field[i] != 0 && field[i] != ' '; ++i) {
    if (field[i] < '0' || field[i] > '7' || value >> 58) return -1;
    value = value * 8 + (field[i] - '0');
  }
  return value;
}

bool sum_fits(const char* header) {
  int64_t sum = 0;
  for (int i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  return octal({header + 148, 8}) == sum;
}

std::string text_of(std::string_view field) { return std::string(field.substr(0, field.find('\0'))); }

}  // namespace

void read_tar(std::string_view op, const std::string& path, TarVisitor& visitor, int64_t limit) {
  Source in(op, path);
  char header[kBlock];
  std::string long_name, bytes;
  for (;;) {
    const int64_t at = in.at(), got = in.read(header, kBlock);
    if (got == 0 || (got == kBlock && std::all_of(header, header + kBlock, [](char c) { return c == 0; }))) return;
    const int64_t size = octal({header + 124, 12}), padding = size < 0 ? 0 : (kBlock - size % kBlock) % kBlock;
    check_runtime(got == kBlock && sum_fits(header) && size >= 0,
                  "{}: expected a tar header at byte {}, got something else", in.where(), at);
    const char type = header[156];
    const std::string prefix = std::string_view(header + 257, 5) == "ustar" ? text_of({header + 345, 155}) : "";
    std::string name = !long_name.empty() ? long_name : (prefix.empty() ? "" : prefix + "/") + text_of({header, 100});
    long_name.clear();
    const bool file = (type == '0' || type == 0) && visitor.wanted(name);
    if (!file && type != 'L') {
      in.skip(size + padding);
      continue;
    }
    check_runtime(size <= (file ? limit : kMaxName), "{}: expected files of at most {} bytes, {} has {}", in.where(),
                  file ? limit : kMaxName, io::shown(name), size);
    bytes.clear();
    while (int64_t(bytes.size()) < size) {  // piece by piece: a header may claim more than there is
      const size_t begin = bytes.size(), count = size_t(std::min<int64_t>(size - int64_t(begin), 1 << 20));
      bytes.resize(begin + count);
      in.read_all(bytes.data() + begin, int64_t(count));
    }
    in.skip(padding);
    if (file) visitor.visit(name, bytes);
    else long_name = text_of(bytes);
  }
}

}  // namespace tapir::inline v0::data
