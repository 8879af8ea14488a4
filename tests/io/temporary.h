// What tests of files share: a folder that goes away, raw reading and writing, damage, failing system calls.
#pragma once
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <tapir/core/error.h>
#include <tapir/core/generator.h>
#include <tapir/io/file.h>

namespace tapir_tests {

inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* d = opendir(folder.c_str());
  while (const dirent* entry = d ? readdir(d) : nullptr)
    if (const std::string name = entry->d_name; name != "." && name != "..") names.push_back(name);
  if (d) closedir(d);
  return names;
}

struct TemporaryFolder {
  std::string path;
  TemporaryFolder() {
    const char* base = getenv("TMPDIR");
    path = std::string(base ? base : "/tmp") + "/tapir-test-XXXXXX";
    if (!mkdtemp(path.data())) path.clear();
  }
  ~TemporaryFolder() { remove(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  static void remove(const std::string& folder) {
    for (const auto& name : names_in(folder)) {
      const std::string inside = folder + "/" + name;
      struct stat info;
      if (lstat(inside.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) remove(inside);
      else unlink(inside.c_str());
    }
    rmdir(folder.c_str());
  }
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void spit(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// The k-th call (of those counted) fails with `error`, once or from then on, while this lives. `error` 0: a short
/// write.
struct FailingCalls {
  FailingCalls(int k, int error, bool sticky) {
    saved = tapir::io::system_calls(), left = k, code = error, forever = sticky;
    auto& calls = tapir::io::system_calls();
    calls.open = [](const char* path, int flags, unsigned mode) { return hit() ? -1 : saved.open(path, flags, mode); };
    calls.read = [](int fd, void* to, uint64_t bytes, int64_t at) {
      return hit() ? int64_t(-1) : saved.read(fd, to, bytes, at);
    };
    calls.write = [](int fd, const void* from, uint64_t bytes) {
      if (!hit()) return saved.write(fd, from, bytes);
      return code == 0 ? saved.write(fd, from, bytes > 1 ? bytes / 2 : bytes) : int64_t(-1);
    };
    calls.truncate = [](int fd) { return hit() ? -1 : saved.truncate(fd); };
    calls.sync = [](int fd) { return hit() ? -1 : saved.sync(fd); };
    calls.close = [](int fd) { return saved.close(fd) == 0 && hit() ? -1 : 0; };  // closed in any case
    calls.rename = [](const char* from, const char* to) { return hit() ? -1 : saved.rename(from, to); };
  }
  ~FailingCalls() { tapir::io::system_calls() = saved; }
  /// False when the call that was to fail never came.
  bool reached() const { return left <= 0; }

  static bool hit() {
    --left;
    if (left > 0 || (left < 0 && !forever)) return false;
    errno = code;
    return true;
  }
  static inline tapir::io::SystemCalls saved;
  static inline int left = 0, code = 0;
  static inline bool forever = false;
};

/// `count` damaged copies of `bytes`: cut short, or with one bit flipped, at places that seed and number fix.
inline std::vector<std::string> truncations(const std::string& bytes, int count) {
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.push_back(bytes.substr(0, bytes.size() * size_t(i) / size_t(count)));
  return out;
}
inline std::vector<std::string> bit_flips(const std::string& bytes, int count, uint64_t seed) {
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) {
    const auto block = tapir::Philox::block(seed, uint64_t(i));
    std::string copy = bytes;
    const size_t half = i % 2 ? copy.size() : std::min<size_t>(copy.size(), 400);  // every other one near the header
    copy[block.word[0] % half] ^= char(1 << block.word[1] % 8);
    out.push_back(std::move(copy));
  }
  return out;
}

/// The message of the E that f throws; empty when it throws nothing. Any other exception passes.
template <class E, class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return {};
}
inline bool mentions(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words)
    if (message.find(word) == std::string::npos) return false;
  return !message.empty();
}

}  // namespace tapir_tests
