// Preloaded, it plays a bad disk and a wall clock that jumps. What to play stands in a page of memory that the process shares with
// tests/soak/soak: TAPIR_SOAK_PAGE names its file. Calls to the system fail, wait or write less only for files under TAPIR_SOAK_FOLDER.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Call { Open, Read, Write, Truncate, Sync, Rename, Close };

/// The same fields in the same order as in tests/soak/soak.
struct Page {
  std::atomic<int64_t> failing;     // a bit for each Call that fails,
  std::atomic<int64_t> error;       // with this errno,
  std::atomic<int64_t> after;       // behind so many of them,
  std::atomic<int64_t> times;       // so often
  std::atomic<int64_t> slow;        // a bit for each Call that waits,
  std::atomic<int64_t> delay_us;    // so long
  std::atomic<int64_t> most;        // bytes that a write takes; 0: all
  std::atomic<int64_t> clock_ns;    // added to the wall clock
  std::atomic<int64_t> given;       // calls that failed, waited or took less, so far
  std::atomic<int64_t> clock_read;  // times that a clock was read which had jumped
};

Page* page_of_environment() {
  const char* name = std::getenv("TAPIR_SOAK_PAGE");
  const int fd = name ? int(syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC)) : -1;
  if (fd < 0) return nullptr;
  void* const at = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  return at == MAP_FAILED ? nullptr : static_cast<Page*>(at);
}

Page* page() {
  static Page* const page = page_of_environment();
  return page;
}

bool is_watched(const char* path) {
  static const char* const folder = std::getenv("TAPIR_SOAK_FOLDER");
  return page() && folder && path && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

constexpr int kMostFiles = 65536;
std::atomic<bool> watched[kMostFiles];
bool is_watched(int fd) { return fd >= 0 && fd < kMostFiles && watched[fd].load(std::memory_order_relaxed); }

/// Waits where that call is to wait; true where it is to fail, with errno.
bool fails(Call call) {
  Page& p = *page();
  const int64_t bit = int64_t(1) << call;
  if (p.slow & bit) ++p.given, usleep(useconds_t(p.delay_us));
  if (!(p.failing & bit) || p.after-- > 0 || p.times-- <= 0) return false;
  ++p.given;
  errno = int(p.error);
  return true;
}

template <class F> F* real(F*, const char* name) { return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name)); }
#define REAL(name) static auto* const real_##name = real(&::name, #name)

int opened(const char* path, int fd) {
  if (fd >= 0 && fd < kMostFiles) watched[fd].store(is_watched(path), std::memory_order_relaxed);
  return fd;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (is_watched(path) && fails(Open)) return -1;
  return opened(path, int(syscall(SYS_openat, AT_FDCWD, path, flags, mode)));
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open(path, flags, mode);
}
ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  REAL(pread);
  return is_watched(fd) && fails(Read) ? -1 : real_pread(fd, to, bytes, at);
}
ssize_t write(int fd, const void* from, size_t bytes) {
  REAL(write);
  if (!is_watched(fd)) return real_write(fd, from, bytes);
  if (fails(Write)) return -1;
  const int64_t most = page()->most;
  if (most > 0 && int64_t(bytes) > most) ++page()->given, bytes = size_t(most);
  return real_write(fd, from, bytes);
}
int ftruncate(int fd, off_t bytes) noexcept {
  REAL(ftruncate);
  return is_watched(fd) && fails(Truncate) ? -1 : real_ftruncate(fd, bytes);
}
int fsync(int fd) {
  REAL(fsync);
  return is_watched(fd) && fails(Sync) ? -1 : real_fsync(fd);
}
int rename(const char* from, const char* to) noexcept {
  REAL(rename);
  return is_watched(from) && fails(Rename) ? -1 : real_rename(from, to);
}
/// As the kernel's, it closes also where it fails.
int close(int fd) {
  REAL(close);
  const bool failed = is_watched(fd) && fails(Close);
  const int error = errno;
  if (fd >= 0 && fd < kMostFiles) watched[fd] = false;
  const int result = real_close(fd);
  return failed ? (errno = error, -1) : result;
}

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  REAL(clock_gettime);
  const int result = real_clock_gettime(clock, out);
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) || !page() || page()->clock_ns == 0)
    return result;
  ++page()->clock_read;
  constexpr int64_t second = 1000000000;
  const int64_t ns = out->tv_sec * second + out->tv_nsec + page()->clock_ns;
  out->tv_sec = ns / second, out->tv_nsec = ns % second;
  return 0;
}
int gettimeofday(timeval* out, void*) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec, out->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* out) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
}
