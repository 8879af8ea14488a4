#include "cuda_libraries.h"

#include <dlfcn.h>
#include <string.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

namespace tapir::inline v0 {
namespace fs = std::filesystem;
namespace {

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}
std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(':', at), list.size());
    if (end > at) parts.emplace_back(list.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// Folders in the order in which they are looked at; each once, as its links resolve, and only where there is one.
class Folders {
 public:
  void add(const fs::path& folder) {
    std::error_code none;
    const fs::path real = fs::canonical(folder, none);
    if (none || !fs::is_directory(real, none)) return;
    if (std::find(all_.begin(), all_.end(), real.string()) == all_.end()) all_.push_back(real.string());
  }
  /// Of a toolkit.
  void add_toolkit(const std::string& root) {
    if (root.empty()) return;
    add(fs::path(root) / "lib64"), add(fs::path(root) / "lib");
    for (const fs::path& target : children(fs::path(root) / "targets")) add(target / "lib");
  }
  /// What pip has put under a prefix, of any version of Python.
  void add_python(const fs::path& prefix, const std::string& wheel) {
    if (prefix.empty()) return;
    for (const fs::path& python : children(prefix / "lib"))
      if (python.filename().string().starts_with("python3"))
        for (const char* packages : {"site-packages", "dist-packages"}) {
          const fs::path nvidia = python / packages / "nvidia";
          add(nvidia / wheel / "lib");
          for (const fs::path& whole : children(nvidia))
            if (whole.filename().string().starts_with("cu1")) add(whole / "lib");  // cu13: all libraries of CUDA 13
        }
  }
  /// Of every version of Python that pyenv has installed.
  void add_pythons(const fs::path& pyenv, const std::string& wheel) {
    for (const fs::path& version : children(pyenv / "versions")) add_python(version, wheel);
  }
  std::vector<std::string> take() { return std::move(all_); }

 private:
  static std::vector<fs::path> children(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code none;
    for (fs::directory_iterator i(folder, none), end; !none && i != end; i.increment(none)) found.push_back(i->path());
    std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
      return strverscmp(a.c_str(), b.c_str()) > 0;  // the newest first: 3.12 before 3.9
    });
    return found;
  }
  std::vector<std::string> all_;
};

/// The folders of the toolkit and of Python's packages that exist, in the order in which they are looked at.
std::vector<std::string> folders_of(const char* wheel) {
  Folders folders;
  for (const char* root : {"CUDA_HOME", "CUDA_PATH"}) folders.add_toolkit(variable(root));
  folders.add_toolkit("/usr/local/cuda");
  const std::string conda = variable("CONDA_PREFIX"), home = variable("HOME");
  if (!conda.empty()) folders.add(fs::path(conda) / "lib");
  for (const std::string& prefix : {variable("VIRTUAL_ENV"), conda}) folders.add_python(prefix, wheel);
  for (const fs::path bin : split(variable("PATH"))) {
    std::error_code none;
    const fs::path python = bin / "python3";
    if (!fs::exists(python, none)) continue;
    folders.add_python(bin.parent_path(), wheel);
    folders.add_python(fs::canonical(python, none).parent_path().parent_path(), wheel);
  }
  if (!home.empty()) folders.add_python(fs::path(home) / ".local", wheel);
  const std::string pyenv = variable("PYENV_ROOT");  // its python3 on the path is a script
  if (!pyenv.empty() || !home.empty())
    folders.add_pythons(pyenv.empty() ? fs::path(home) / ".pyenv" : fs::path(pyenv), wheel);
  for (const char* prefix : {"/usr/local", "/usr"}) folders.add_python(prefix, wheel);
  return folders.take();
}

}  // namespace

CudaLibrary open_cuda_library(std::initializer_list<const char*> files, const char* wheel) {
  CudaLibrary found;
  std::string without;
  const auto take = [&](const std::string& path) {
    found.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (found.handle) found.path = path, found.why_not.clear();
    else found.why_not += std::string(found.why_not.empty() ? "" : "; ") + dlerror();
    return found.handle != nullptr;
  };
  const auto take_from = [&](const std::string& folder, std::initializer_list<const char*> wanted) {
    bool there = false;
    std::error_code none;
    for (const char* file : wanted)
      if (const fs::path path = fs::path(folder) / file; fs::exists(path, none)) {
        there = true;
        if (take(path.string())) return true;
      }
    if (!there && (without + ' ').find(' ' + folder + ' ') == std::string::npos) without += ' ' + folder;
    return false;
  };
  if (files.size() == 1 && fs::path(*files.begin()).is_absolute()) return take(*files.begin()), found;
  for (const std::string& folder : split(variable("TAPIR_CUDA_LIBRARIES")))
    if (take_from(folder, files)) return found;
  const std::vector<std::string> folders = folders_of(wheel);
  for (const char* file : files) {
    if (take(file)) return found;
    for (const std::string& folder : folders)
      if (take_from(folder, {file})) return found;
  }
  found.why_not +=
      without.empty() ? "; there is no folder of a toolkit or of Python's packages for it" : "; not in" + without;
  return found;
}

}  // namespace tapir::inline v0
