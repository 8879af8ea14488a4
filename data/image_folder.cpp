#include "image_folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <set>
#include <system_error>

#include "../core/error.h"
#include "../io/file.h"
#include "dataset.h"

namespace tapir::inline v0::data {

namespace {

constexpr int kMaxNesting = 30;
using Seen = std::set<std::pair<dev_t, ino_t>>;  // folders on the way: a link back ends there

bool is_image(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return name.ends_with(".jpg") || name.ends_with(".jpeg") || name.ends_with(".png");
}

/// Names in a folder without the hidden ones, sorted.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  check_runtime(folder.find('\0') == folder.npos, "[ImageFolder] expected a folder without NUL in its name, got {}",
                folder);
  DIR* open = ::opendir(folder.c_str());
  check_runtime(open != nullptr, "[ImageFolder] cannot open the folder {}: {}", folder,
                std::error_code(errno, std::generic_category()).message());
  while (const dirent* entry = ::readdir(open))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  ::closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_folder(const std::string& path, struct stat& info) {
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

void collect(const std::string& folder, std::vector<std::string>& files, Seen& seen, int depth) {
  check_runtime(depth < kMaxNesting, "[ImageFolder] expected at most {} folders inside one another, got more at {}",
                kMaxNesting, folder);
  for (const auto& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    struct stat info;
    if (is_folder(path, info)) {
      if (seen.emplace(info.st_dev, info.st_ino).second) collect(path, files, seen, depth + 1);
    } else if (is_image(name)) files.push_back(path);
  }
}

}  // namespace

ImageFolder::ImageFolder(const std::string& root, const ImageFolderOptions& options) : root_(root), options_(options) {
  for (const auto& name : names_in(root)) {
    const std::string path = root + "/" + name;
    struct stat info;
    if (!is_folder(path, info)) continue;
    std::vector<std::string> files;
    Seen seen = {{info.st_dev, info.st_ino}};
    if (struct stat top; ::stat(root.c_str(), &top) == 0) seen.emplace(top.st_dev, top.st_ino);
    collect(path, files, seen, 0);
    check_runtime(!files.empty(),
                  "[ImageFolder] expected .jpg, .jpeg or .png files for the class \"{}\" in {}, found none",
                  io::shown(name), root);
    for (auto& file : files) files_.push_back({std::move(file), int64_t(classes_.size())});
    classes_.push_back(name);
  }
  check_runtime(!classes_.empty(), "[ImageFolder] expected a folder for each class in {}, found none", root);
}

ImageFolder::Sample ImageFolder::get(int64_t i) const {
  check_index("ImageFolder", i, size());
  const File& file = files_[size_t(i)];
  const Tensor image = options_.random_crop ? options_.random_crop->read(file.path, options_.decode)
                                            : read_image(file.path, options_.decode);
  return {image, tensor_from_host(&file.label, kInt64, {}, {})};
}

}  // namespace tapir::inline v0::data
