#include "choices.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "no_copy.h"

namespace tapir::inline v0 {
namespace {

constexpr std::string_view kFirstLine = "tapir choices 1\n";
constexpr int64_t kLongestFile = 16 << 20;
constexpr size_t kLongestEntry = 1000;

struct File : NoCopy {
  int fd;
  explicit File(const std::string& path, int flags) : fd(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644)) {}
  ~File() {
    if (fd >= 0) close(fd);
  }
  /// -1: no file, or nothing that choices could be in.
  int64_t size() const {
    struct stat s;
    return fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size < kLongestFile ? int64_t(s.st_size) : -1;
  }
};

}  // namespace

std::string checksum(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

void Choices::read() {
  was_read_ = true;
  if (path_.empty()) return;
  const File file(path_, O_RDONLY);
  const int64_t bytes = file.size();
  if (bytes < 0) {
    if (file.fd >= 0) path_.clear();  // a folder, a pipe: not to be written to
    return;
  }
  std::string text(size_t(bytes), '\0');
  size_t got = 0;
  for (ssize_t n = 1; got < text.size() && n > 0; got += n > 0 ? size_t(n) : 0)
    n = ::read(file.fd, text.data() + got, text.size() - got);
  text.resize(got);
  if (text.empty()) return;
  if (!text.starts_with(kFirstLine)) return path_.clear();
  for (size_t at = kFirstLine.size(), end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const size_t tab = line.find('\t'), second = tab == line.npos ? tab : line.find('\t', tab + 1);
    if (second == line.npos || checksum(line.substr(tab + 1)) != line.substr(0, tab)) continue;
    choices_[std::string(line.substr(tab + 1, second - tab - 1))] = std::string(line.substr(second + 1));
  }
}

std::string Choices::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (!was_read_) read();
  const auto it = choices_.find(key);
  return it == choices_.end() ? "" : it->second;
}

void Choices::keep(const std::string& key, const std::string& choice) {
  const std::string entry = key + '\t' + choice;
  if (entry.size() > kLongestEntry || entry.find_first_of(std::string_view("\n\r\0", 3)) != entry.npos ||
      entry.find('\t') != key.size() || choice.find('\t') != choice.npos)
    return;
  const std::lock_guard lock(mutex_);
  if (!was_read_) read();
  std::string& kept = choices_[key];
  if (kept == choice) return;
  kept = choice;
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  const File file(path_, O_WRONLY | O_APPEND | O_CREAT);
  const int64_t bytes = file.size();
  if (bytes < 0) return;
  // Two programs that both begin the file leave a second first line, which no checksum fits.
  const std::string line =
      (bytes == 0 ? std::string(kFirstLine) : std::string()) + checksum(entry) + '\t' + entry + '\n';
  [[maybe_unused]] const ssize_t written =
      write(file.fd, line.data(), line.size());  // a cut line is skipped by the reader
}

std::string cache_folder() {
  const auto folder = [](const char* variable) -> std::string {
    const char* const value = std::getenv(variable);
    return value ? value : "";
  };
  if (const std::string own = folder("TAPIR_CACHE"); !own.empty()) return own;
  if (const std::string base = folder("XDG_CACHE_HOME"); base.starts_with('/')) return base + "/tapir";
  if (const std::string home = folder("HOME"); home.starts_with('/')) return home + "/.cache/tapir";
  return "";
}

std::string path_of_choices() {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/choices";
}

Choices& kept_choices() {
  static auto* const store = new Choices(path_of_choices());  // never destroyed: used until the program's last line
  return *store;
}

std::string name_of_processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const size_t colon = line.find(": ");
        (line.starts_with("model name") || line.starts_with("CPU part")) && colon != line.npos)
      return line.substr(colon + 2);
  return "CPU";
}

std::string choice_key(std::string_view device, std::string_view library, int64_t version, std::string_view signature) {
  std::string key(device);
  for (const std::string_view part : {std::string_view("|"), library, std::string_view(" ")}) key += part;
  key += std::to_string(version);
  key += '|';
  return key += signature;
}

}  // namespace tapir::inline v0
