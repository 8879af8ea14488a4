#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "file.h"

struct z_stream_s;

namespace tapir::inline v0::io {

/// Reads what a gzip file holds, front to back; several members follow one another. Output is made only as it is asked
/// for.
class GzipReader : NoCopy {
 public:
  GzipReader(std::string_view op, const std::string& path);
  ~GzipReader();
  /// Up to `bytes` more bytes, fewer only at the end. RuntimeError for damaged, truncated data and for garbage behind
  /// it.
  int64_t read(void* to, int64_t bytes);
  int64_t compressed_size() const { return file_.size(); }

 private:
  bool refill();
  [[noreturn]] void fail_damaged(const char* what) const;
  std::string where_;
  InputFile file_;
  z_stream_s* stream_ = nullptr;
  std::string input_;
  int64_t at_ = 0;        // of the next compressed byte to load
  bool between_ = false;  // a member has ended
};

/// True for a file that begins with gzip's two bytes.
bool is_gzip(InputFile& file);
std::string gzip(std::string_view bytes);

}  // namespace tapir::inline v0::io
