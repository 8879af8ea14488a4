// TAPIR_EMULATED_LAUNCHES=FILE: at its end a process adds to the file what it launched, a line for each kernel of this library, for
// tools/cuda_resources. Kernels of generated text are left out. A file that another build of the library began is begun anew.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <unordered_map>

#include "runtime.h"

namespace cuda_emulation {
namespace {
struct Seen {
  size_t launches = 0, fewest = 1024, most = 0;  // threads of a block
  size_t shared_unasked = 0, shared = 0;         // most bytes: at most 48 KiB, and at all
  void add(const Seen& s) {
    launches += s.launches, fewest = std::min(fewest, s.fewest), most = std::max(most, s.most);
    shared_unasked = std::max(shared_unasked, s.shared_unasked), shared = std::max(shared, s.shared);
  }
};

std::string first_line() {
  Dl_info here;
  struct stat status {};
  if (!dladdr(reinterpret_cast<const void*>(&log_launch), &here) || stat(here.dli_fname, &status) != 0) return "# ?";
  const std::string path = here.dli_fname;
  return "# " + path.substr(path.rfind('/') + 1) + " of " + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec) +
         ": kernel, launches, fewest and most threads, most shared bytes up to 48 KiB and at all";
}

class Log {
 public:
  void add(const Seen& s, const void* kernel) {
    const auto [place, fresh] = names_.try_emplace(kernel);
    if (fresh) place->second = symbol_of(kernel, true);
    if (!place->second.empty()) kernels_[place->second].add(s);
  }
  explicit Log(const char* path) : path_(path) {}
  ~Log() {
    const int lock = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock < 0 || flock(lock, LOCK_EX) != 0) return;  // no such folder: nobody asks for it
    std::ifstream before(path_);
    const std::string head = first_line();
    std::string line, name;
    if (std::getline(before, line) && line == head)
      for (Seen s; before >> name >> s.launches >> s.fewest >> s.most >> s.shared_unasked >> s.shared;)
        kernels_[name].add(s);
    std::ostringstream text;
    text << head << '\n';
    for (const auto& [kernel, s] : kernels_)
      text << kernel << ' ' << s.launches << ' ' << s.fewest << ' ' << s.most << ' ' << s.shared_unasked << ' '
           << s.shared << '\n';
    std::ofstream(path_, std::ios::trunc) << text.str();
    close(lock);
  }

 private:
  std::string path_;
  std::unordered_map<const void*, std::string> names_;
  std::map<std::string, Seen> kernels_;
};
}  // namespace

void log_launch(const cudaLaunchConfig_t& c, const void* kernel) {
  static const char* const path = std::getenv("TAPIR_EMULATED_LAUNCHES");
  if (!path || !*path) return;
  static Log log(path);
  const size_t threads = size_t(c.blockDim.x) * c.blockDim.y * c.blockDim.z, bytes = c.dynamicSmemBytes;
  log.add({1, threads, threads, bytes > kSharedDefault ? 0 : bytes, bytes}, kernel);
}
}  // namespace cuda_emulation
