#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../core/no_copy.h"

namespace tapir::inline v0::io {

/// The calls to the system that files go through. Tests replace them, to make the k-th one fail.
struct SystemCalls {
  int (*open)(const char* path, int flags, unsigned mode);
  int64_t (*read)(int fd, void* to, uint64_t bytes, int64_t at);
  int64_t (*write)(int fd, const void* from, uint64_t bytes);
  int (*truncate)(int fd);
  int (*sync)(int fd);
  int (*rename)(const char* from, const char* to);
  int (*close)(int fd);  // of a file that was written
};
SystemCalls& system_calls();

/// A regular file open for reading. Never waits for the other end of a FIFO. One thread at a time.
class InputFile : NoCopy {
 public:
  /// RuntimeError for a path that is missing, not readable, a folder, a FIFO or a device. `op` begins every message.
  InputFile(std::string_view op, const std::string& path);
  ~InputFile();
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  /// Exactly the bytes [offset, offset + bytes); RuntimeError where the file ends before.
  void read(int64_t offset, void* to, int64_t bytes);

 private:
  void read_through(int64_t offset, char* to, int64_t bytes);
  std::string op_, path_;
  int fd_ = -1;
  int64_t size_ = 0, buffer_at_ = 0;
  std::vector<char> buffer_;
};

/// A file that appears under its name whole or not at all: written beside, synced, renamed, the folder synced. Until
/// commit() returns, and after any exception, the old file is what it was, and nothing else is left. See Note [Atomic
/// files].
class OutputFile : NoCopy {
 public:
  OutputFile(std::string_view op, const std::string& path);
  ~OutputFile();
  void write(const void* from, int64_t bytes);
  void write(std::string_view text) { write(text.data(), int64_t(text.size())); }
  void commit();

 private:
  bool open_temporary();
  [[noreturn]] void fail_with(const char* what, int error) const;
  std::string op_, path_, target_, temporary_;
  int fd_ = -1;
};

/// Removes the temporary file that a dead saver of `path` left. One that somebody is writing stays, as does all where the file system has no locks.
void remove_abandoned(const std::string& path);
/// The whole file; RuntimeError when it has more than `limit` bytes.
std::string read_file(std::string_view op, const std::string& path, int64_t limit = int64_t(1) << 32);
/// Replaces the file by these bytes, as OutputFile does.
void write_file(std::string_view op, const std::string& path, std::string_view bytes);
/// A text from a file as an error message shows it: at most 80 bytes, control characters and broken UTF-8 as \xNN.
std::string shown(std::string_view text);
/// A name that occurs twice, the first in their order; none where each occurs once.
std::optional<std::string_view> repeated(std::vector<std::string_view> names);
/// True for well-formed UTF-8 (no surrogates, no overlong forms); else `bad` is the offset of the first wrong byte.
bool valid_utf8(std::string_view text, int64_t* bad = nullptr);

}  // namespace tapir::inline v0::io
