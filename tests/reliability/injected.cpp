#include "injected.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

namespace reliability {

namespace {
thread_local const Injected* current = nullptr;
thread_local int calls = 0;

bool fails(Call call) {
  if (!current || current->call != call) return false;
  ++calls;
  if (calls < current->number || (calls > current->number && !current->for_ever)) return false;
  errno = current->error;
  return true;
}
}  // namespace

std::string Injected::text() const {
  static const char* const names[] = {"open", "read", "write", "short write", "ftruncate", "fsync", "rename", "close"};
  return std::string(names[int(call)]) + " " + std::to_string(number) + (for_ever ? " and all later: " : ": ") +
         (call == Call::ShortWrite ? "half" : std::strerror(error));
}

std::vector<Injected> every_fault() {
  const std::pair<Call, std::vector<int>> kinds[] = {{Call::Open, {EMFILE, EROFS, EINTR}},
                                                     {Call::Read, {EIO, EINTR}},
                                                     {Call::Write, {ENOSPC, EIO, EDQUOT, EFBIG, EINTR}},
                                                     {Call::ShortWrite, {0}},
                                                     {Call::Truncate, {EIO}},
                                                     {Call::Sync, {EIO, ENOSPC}},
                                                     {Call::Rename, {EACCES, EROFS, ENOSPC}},
                                                     {Call::Close, {EIO, ENOSPC}}};
  std::vector<Injected> all;
  for (const auto& [call, errors] : kinds)
    for (const int error : errors)
      for (const bool for_ever : {false, true}) all.push_back({call, error, for_ever});
  return all;
}

Injection::Injection(const Injected& fault) { current = &fault, calls = 0; }
Injection::~Injection() { current = nullptr; }
bool Injection::reached() const { return current && calls >= current->number; }

}  // namespace reliability

using reliability::Call, reliability::fails;

extern "C" {
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = flags & O_CREAT ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  return fails(Call::Open) ? -1 : int(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  return fails(Call::Read) ? -1 : syscall(SYS_pread64, fd, to, bytes, at);
}
ssize_t write(int fd, const void* from, size_t bytes) {
  if (fails(Call::Write)) return -1;
  if (fails(Call::ShortWrite) && bytes > 1) bytes /= 2;
  return syscall(SYS_write, fd, from, bytes);
}
int ftruncate(int fd, off_t size) noexcept {
  return fails(Call::Truncate) ? -1 : int(syscall(SYS_ftruncate, fd, size));
}
int fsync(int fd) { return fails(Call::Sync) ? -1 : int(syscall(SYS_fsync, fd)); }
int rename(const char* from, const char* to) noexcept {
  return fails(Call::Rename) ? -1 : int(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
int close(int fd) {
  const long done = syscall(SYS_close, fd);  // in any case
  return done == 0 && fails(Call::Close) ? -1 : int(done);
}
}
