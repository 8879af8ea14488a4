#include "file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "../core/error.h"
#include "../core/held_signals.h"
#include "shown_path.h"

namespace tapir::inline v0::io {

// Note [Atomic files]
// The new content goes to `<path>.tmp`, under an exclusive flock: two savers of one path take turns, and what a dead
// run left is reused, since its lock died with it. After the lock is won the name is looked up again: the holder before
// us has renamed the inode that we waited for, and writing there would tear the finished file. The rename happens under
// the lock.

namespace {

constexpr int kMaxInterrupts = 100000;  // in a row: a call that never gets through is an error, not a hang
constexpr int64_t kMaxChunk = 1 << 30;
constexpr int64_t kBufferBytes = 1 << 18;

SystemCalls real_calls = {
    [](const char* path, int flags, unsigned mode) { return ::open(path, flags, mode); },
    [](int fd, void* to, uint64_t bytes, int64_t at) { return int64_t(::pread(fd, to, bytes, at)); },
    [](int fd, const void* from, uint64_t bytes) { return int64_t(::write(fd, from, bytes)); },
    [](int fd) { return ::ftruncate(fd, 0); },
    [](int fd) { return ::fsync(fd); },
    [](const char* from, const char* to) { return ::rename(from, to); },
    [](int fd) { return ::close(fd); },
};

template <class F> auto retry(F call) {
  for (int i = 0;; ++i) {
    const auto result = call();
    if (result >= 0 || errno != EINTR || i == kMaxInterrupts) return result;
  }
}

std::string text_of(int error) { return std::error_code(error, std::generic_category()).message(); }

/// Holds errno over the calls that clean up.
void close_quietly(int fd) {
  const int error = errno;
  if (fd >= 0) ::close(fd);
  errno = error;
}

bool lock_within(int fd, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return true;  // a file system without locks: then savers must not share a path
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::string temporary_of(const std::string& path) { return path + ".tmp"; }
std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// What a link, or a chain of them, will name; a link where they go in a circle.
std::string named_by(std::string path) {
  char next[PATH_MAX];
  for (int i = 0; i < 40; ++i) {
    const ssize_t n = ::readlink(path.c_str(), next, sizeof next);
    if (n <= 0) break;  // no link
    const std::string name(next, size_t(n));
    path = name[0] == '/' ? name : folder_of(path) + "/" + name;
  }
  return path;
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISREG(mode) ? "a file" : "a device";
}

}  // namespace

SystemCalls& system_calls() { return real_calls; }

InputFile::InputFile(std::string_view op, const std::string& path) : op_(op), path_(shown_path(path)) {
  check_runtime(path.find('\0') == std::string::npos, "[{}] expected a path without NUL, got {}", op_, shown(path));
  fd_ = retry([&] { return real_calls.open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0); });
  const int error = errno;
  check_runtime(fd_ >= 0, "[{}] cannot open {}: {}", op_, path_, text_of(error));
  struct stat info;
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    close_quietly(fd_);
    fail(ErrorKind::Runtime, "[{}] expected {} to be a file, it is {}", op_, path_, kind_of(info.st_mode));
  }
  size_ = info.st_size;
}

InputFile::~InputFile() { close_quietly(fd_); }

void InputFile::read_through(int64_t offset, char* to, int64_t bytes) {
  while (bytes > 0) {
    const int64_t wanted = std::min(bytes, kMaxChunk);
    const int64_t got = retry([&] { return real_calls.read(fd_, to, uint64_t(wanted), offset); });
    const int error = errno;
    check_runtime(got >= 0, "[{}] cannot read {} at byte {}: {}", op_, path_, offset, text_of(error));
    check_runtime(got > 0, "[{}] expected {} more bytes at byte {} of {}, but the file ends there", op_, bytes, offset,
                  path_);
    to += got, offset += got, bytes -= got;
  }
}

void InputFile::read(int64_t offset, void* to, int64_t bytes) {
  if (bytes <= 0) return;
  check_runtime(offset >= 0 && bytes <= size_ && offset <= size_ - bytes,
                "[{}] expected {} bytes at byte {} of {}, the file has {}", op_, bytes, offset, path_, size_);
  if (bytes >= kBufferBytes) return read_through(offset, static_cast<char*>(to), bytes);
  if (offset < buffer_at_ || offset + bytes > buffer_at_ + int64_t(buffer_.size())) {
    std::vector<char> next(size_t(std::min(kBufferBytes, size_ - offset)));
    read_through(offset, next.data(), int64_t(next.size()));
    buffer_.swap(next);
    buffer_at_ = offset;
  }
  std::memcpy(to, buffer_.data() + (offset - buffer_at_), size_t(bytes));
}

OutputFile::OutputFile(std::string_view op, const std::string& path) : op_(op), path_(shown_path(path)), target_(path) {
  check_runtime(!path.empty() && path.find('\0') == std::string::npos, "[{}] expected a path, got \"{}\"", op_,
                shown(path));
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {  // replace what the link names, not the link
    if (char* real = ::realpath(path.c_str(), nullptr)) {
      target_ = real;
      std::free(real);
    } else if (::stat(path.c_str(), &info) != 0) target_ = named_by(path);  // nothing is there yet
  }
  const bool circle = ::lstat(target_.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
  check_runtime(!circle, "[{}] cannot write {}: {}", op_, path_, text_of(ELOOP));
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  check_runtime(!exists || S_ISREG(info.st_mode), "[{}] cannot write {}: it is {}", op_, path_, kind_of(info.st_mode));
  temporary_ = temporary_of(target_);
  for (int i = 0; !open_temporary(); ++i)
    check_runtime(i < 100000, "[{}] cannot write {}: others keep taking {}", op_, path_, shown_path(temporary_));
  if (retry([&] { return real_calls.truncate(fd_); }) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    close_quietly(fd_);
    fail_with("empty", error);
  }
}

/// Is the open file the one of that name?
static bool is_named(int fd, const std::string& name, struct stat& held) {
  struct stat named;
  return ::fstat(fd, &held) == 0 && ::lstat(name.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

bool OutputFile::open_temporary() {
  constexpr int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  fd_ = retry([&] { return real_calls.open(temporary_.c_str(), flags, 0666); });
  if (fd_ < 0) fail_with("open", errno);
  if (!lock_within(fd_, 60)) {
    close_quietly(fd_);
    fail(ErrorKind::Runtime, "[{}] cannot write {}: another process has been writing {} for 60 s", op_, path_,
         shown_path(temporary_));
  }
  struct stat held;
  const bool ours = is_named(fd_, temporary_, held);
  if (ours && S_ISREG(held.st_mode) && held.st_nlink == 1) return true;
  close_quietly(fd_);
  if (ours) {  // a hard link or not a file: never write into it
    check_runtime(S_ISREG(held.st_mode), "[{}] cannot write {}: {} is {}", op_, path_, shown_path(temporary_),
                  kind_of(held.st_mode));
    ::unlink(temporary_.c_str());
  }
  return false;
}

void remove_abandoned(const std::string& path) {
  const std::string name = temporary_of(path);
  const int fd = ::open(name.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat held;
  if (fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0 && is_named(fd, name, held) && S_ISREG(held.st_mode))
    ::unlink(name.c_str());  // whoever waits for the lock looks the name up again
  close_quietly(fd);
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());
  close_quietly(fd_);
}

void OutputFile::fail_with(const char* what, int error) const {
  fail(ErrorKind::Runtime, "[{}] cannot {} the new {}: {}", op_, what, path_, text_of(error));
}

void OutputFile::write(const void* from, int64_t bytes) {
  const char* at = static_cast<const char*>(from);
  const HeldSignals held;
  while (bytes > 0) {
    const int64_t done = retry([&] { return real_calls.write(fd_, at, uint64_t(std::min(bytes, kMaxChunk))); });
    if (done <= 0) fail_with("write", done < 0 ? errno : ENOSPC);
    at += done, bytes -= done;
  }
}

void OutputFile::commit() {
  if (retry([&] { return real_calls.sync(fd_); }) != 0) fail_with("sync", errno);
  if (retry([&] { return real_calls.rename(temporary_.c_str(), target_.c_str()); }) != 0) fail_with("rename", errno);
  const int closed = real_calls.close(std::exchange(fd_, -1));
  if (closed != 0 && errno != EINTR) fail_with("close", errno);  // EINTR: it is closed
  const int folder =
      retry([&] { return real_calls.open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0); });
  if (folder < 0) {
    if (errno == EACCES) return;  // a folder that may be written but not read cannot be synced
    fail_with("open the folder of", errno);
  }
  const int result = retry([&] { return real_calls.sync(folder); });
  close_quietly(folder);
  if (result != 0 && errno != EINVAL) fail_with("sync the folder of", errno);  // EINVAL: folders are not synced here
}

std::string read_file(std::string_view op, const std::string& path, int64_t limit) {
  InputFile file(op, path);
  check_runtime(file.size() <= limit, "[{}] expected {} to have at most {} bytes, it has {}", op, file.path(), limit,
                file.size());
  std::string bytes(size_t(file.size()), '\0');
  file.read(0, bytes.data(), file.size());
  return bytes;
}

void write_file(std::string_view op, const std::string& path, std::string_view bytes) {
  OutputFile file(op, path);
  file.write(bytes);
  file.commit();
}

bool valid_utf8(std::string_view text, int64_t* bad) {
  const auto* s = reinterpret_cast<const unsigned char*>(text.data());
  const size_t n = text.size();
  for (size_t i = 0; i < n;) {
    if (i + 8 <= n) {
      uint64_t word;
      std::memcpy(&word, s + i, 8);
      if (!(word & 0x8080808080808080u)) {
        i += 8;
        continue;
      }
    }
    const unsigned c = s[i];
    const size_t length = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    bool good = length > 0 && i + length <= n;
    for (size_t k = 1; good && k < length; ++k) good = (s[i + k] & 0xC0) == 0x80;
    if (good && length == 3) good = (c != 0xE0 || s[i + 1] >= 0xA0) && (c != 0xED || s[i + 1] < 0xA0);
    if (good && length == 4) good = (c != 0xF0 || s[i + 1] >= 0x90) && (c != 0xF4 || s[i + 1] < 0x90);
    if (!good) {
      if (bad) *bad = int64_t(i);
      return false;
    }
    i += length;
  }
  return true;
}

std::optional<std::string_view> repeated(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? std::nullopt : std::optional(*twice);
}

static std::string shown(std::string_view text, size_t most) {
  std::string out;
  const bool utf8 = valid_utf8(text);
  size_t end = std::min(text.size(), most);
  while (utf8 && end > 0 && end < text.size() && (text[end] & 0xC0) == 0x80) --end;  // not in the middle of a character
  const auto byte = [&](size_t i) { return i < end ? static_cast<unsigned char>(text[i]) : 0u; };
  for (size_t i = 0; i < end; ++i) {
    const unsigned c = byte(i);
    // Of U+0080 to U+009F, C2 80 to C2 9F, U+009B begins escape codes as ESC [ does.
    const bool control = c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8) || (c == 0xC2 && byte(i + 1) < 0xA0) ||
                         (c < 0xA0 && i > 0 && byte(i - 1) == 0xC2);
    if (!control) {
      out += text[i];
      continue;
    }
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", c);
    out += hex;
  }
  if (end < text.size()) out += tapir::format("... ({} bytes)", int64_t(text.size()));
  return out;
}

std::string shown(std::string_view text) { return shown(text, 80); }
std::string shown_path(std::string_view path) { return shown(path, path.size()); }

}  // namespace tapir::inline v0::io
