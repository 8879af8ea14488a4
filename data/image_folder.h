#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "image.h"
#include "transforms.h"

namespace tapir::inline v0::data {

struct ImageFolderOptions {
  DecodeOptions decode = {};
  std::optional<transforms::RandomResizedCrop> random_crop =
      {};  // applied while reading, which saves most of the decoding
};

/// Images in one folder per class: root/cat/1.jpg, root/dog/a/2.png. Classes are numbered in the order of their names.
///     auto train = data::map(data::ImageFolder("images/train"), [augment](const Tensor& image, const Tensor& label) {
///       return std::array{augment(image), label};
///     });
class ImageFolder {
 public:
  using Sample = std::array<Tensor, 2>;
  /// Lists the .jpg, .jpeg and .png files, in any case of letters; hidden ones are passed over, links followed once.
  /// RuntimeError where there is no class, or a class without images.
  explicit ImageFolder(const std::string& root, const ImageFolderOptions& options = {});
  int64_t size() const { return int64_t(files_.size()); }
  /// The image, uint8 (3, H, W), and its class, int64 0-dim.
  Sample get(int64_t i) const;
  const std::vector<std::string>& classes() const { return classes_; }
  const std::string& path(int64_t i) const { return files_[size_t(i)].path; }
  int64_t label(int64_t i) const { return files_[size_t(i)].label; }

 private:
  struct File {
    std::string path;
    int64_t label;
  };
  std::string root_;
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
};

}  // namespace tapir::inline v0::data
