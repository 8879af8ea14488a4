#include "kernel_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "../../core/choices.h"
#include "../../core/held_signals.h"
#include "../../core/no_copy.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int64_t kLongestFile = 64 << 20;
constexpr std::chrono::milliseconds kLook(10), kPatience(30000);

std::string first_line(const std::string& key, const std::string& binary) {
  return "tapir kernel 1\t" + checksum(key) + '\t' + checksum(binary) + '\n';
}
bool write_all(int fd, std::string_view bytes) {
  const HeldSignals held;
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n <= 0) return false;
    bytes.remove_prefix(size_t(n));
  }
  return true;
}
std::string read_all(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  struct stat s;
  std::string bytes;
  if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size < kLongestFile) bytes.resize(size_t(s.st_size));
  size_t got = 0;
  for (ssize_t n = 1; got < bytes.size() && n > 0; got += n > 0 ? size_t(n) : 0)
    n = read(fd, bytes.data() + got, bytes.size() - got);
  bytes.resize(got);
  close(fd);
  return bytes;
}

/// Of processes, and of threads of one. Whoever has it removes the file: to hold a lock on one that is gone does no harm, for who gets it then
/// finds what was made before.
class FileLock : NoCopy {
 public:
  explicit FileLock(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) {}
  ~FileLock() {
    if (fd_ < 0) return;
    if (mine_) unlink(path_.c_str()), flock(fd_, LOCK_UN);  // a process forked meanwhile has the file open too
    close(fd_);
  }
  /// Everybody has it where the system gives none.
  bool take() { return mine_ = fd_ < 0 || flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

 private:
  const std::string path_;
  const int fd_;
  bool mine_ = false;
};

}  // namespace

std::string KernelFiles::path_of(const std::string& key) const {
  return folder_ + "/kernels/" + checksum(key) + checksum("again " + key);
}

std::string KernelFiles::find(const std::string& key) const {
  if (folder_.empty()) return "";
  const std::string file = read_all(path_of(key));
  const size_t line = file.find('\n');
  if (line == file.npos) return "";
  const std::string binary = file.substr(line + 1);
  return file.compare(0, line + 1, first_line(key, binary)) == 0 ? binary : "";
}

void KernelFiles::keep(const std::string& key, const std::string& binary) const {
  if (folder_.empty()) return;
  const std::string path = path_of(key);
  std::string own = path + ".XXXXXX";
  std::error_code ignored;
  std::filesystem::create_directories(folder_ + "/kernels", ignored);
  const int fd = mkostemp(own.data(), O_CLOEXEC);
  if (fd < 0) return;
  const bool whole = write_all(fd, first_line(key, binary)) && write_all(fd, binary);
  if (close(fd) != 0 || !whole || std::rename(own.c_str(), path.c_str()) != 0) unlink(own.c_str());
}

std::string KernelFiles::find_or_make(const std::string& key, const std::function<std::string()>& make,
                                      bool (*hurry)()) const {
  if (folder_.empty()) return make();
  if (std::string there = find(key); !there.empty()) return there;
  std::error_code ignored;
  std::filesystem::create_directories(folder_ + "/kernels", ignored);
  FileLock lock(path_of(key) + ".lock");
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (bool mine = false; !mine && !hurry() && std::chrono::steady_clock::now() < end;) {
    mine = lock.take();
    if (std::string there = find(key); !there.empty()) return there;
    if (!mine) std::this_thread::sleep_for(kLook);
  }
  std::string made = make();
  keep(key, made);
  return made;
}

}  // namespace tapir::inline v0::cuda_kernels
