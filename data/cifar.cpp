#include "cifar.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../core/parallel.h"
#include "../io/file.h"
#include "image_folder.h"
#include "tar.h"

namespace tapir::inline v0::data {

namespace {

constexpr int64_t kPixels = 3 * 32 * 32, kRecord = kPixels + 1;
constexpr std::string_view kBatches[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                         "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

/// Images (one after the other) and labels as they are gathered.
struct Gathered {
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
  TensorDataset<2> dataset() const {
    const auto n = int64_t(labels.size());
    return TensorDataset(tensor(std::span<const uint8_t>(pixels), {n, 3, 32, 32}), tensor(labels));
  }
};

void add_records(const std::string& name, std::string_view bytes, Gathered& out) {
  const auto size = int64_t(bytes.size());
  check_runtime(size > 0 && size % kRecord == 0, "[cifar10] {}: expected records of {} bytes, the file has {}", name,
                kRecord, size);
  for (int64_t i = 0; i < size / kRecord; ++i) {
    const auto* record = reinterpret_cast<const uint8_t*>(bytes.data()) + i * kRecord;
    check_runtime(record[0] <= 9, "[cifar10] {}: expected labels from 0 to 9, record {} has {} (CIFAR-100?)", name, i,
                  int(record[0]));
    out.labels.push_back(record[0]);
    out.pixels.insert(out.pixels.end(), record + 1, record + kRecord);
  }
}

void place_image(const std::string& where, const Tensor& image, uint8_t* to) {
  check_runtime(image.size(1) == 32 && image.size(2) == 32, "{}: expected an image of 32 x 32, got {} x {}", where,
                image.size(2), image.size(1));
  const auto* from = image.data<uint8_t>();  // the decoders' order
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < 32 * 32; ++i) *to++ = from[3 * i + c];
}

bool is_test(std::string_view batch) { return batch == kBatches[5]; }
bool is_folder(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

/// Files of one split in an archive: batches, or images in a class's folder. Images are decoded at the end, in parallel.
struct Archive final : TarVisitor {
  explicit Archive(Split split) : split(split) {}
  bool wanted(std::string_view name) override {
    const auto parts = split_path(name);
    const std::string_view last = parts[2];
    for (const auto batch : kBatches)
      if (last == batch) return is_test(batch) == (split == Split::Test);
    const bool image = last.ends_with(".jpg") || last.ends_with(".jpeg") || last.ends_with(".png");
    return image && parts[0] == (split == Split::Test ? "test" : "train") && label_of(parts[1]) >= 0;
  }
  void visit(std::string_view name, std::string_view bytes) override {
    const auto parts = split_path(name);
    if (parts[2].ends_with(".bin")) batches.emplace_back(name, bytes);
    else images.push_back({std::string(name), std::string(bytes), label_of(parts[1])});
  }
  /// The last three names of a path.
  static std::array<std::string_view, 3> split_path(std::string_view name) {
    std::array<std::string_view, 3> parts;
    for (size_t i = 3; i-- > 0;) {
      const size_t slash = name.rfind('/');
      parts[i] = slash == name.npos ? name : name.substr(slash + 1);
      name = slash == name.npos ? std::string_view() : name.substr(0, slash);
    }
    return parts;
  }
  static int64_t label_of(std::string_view name) {
    const auto at = std::find(kCifar10Classes.begin(), kCifar10Classes.end(), name);
    return at == kCifar10Classes.end() ? -1 : at - kCifar10Classes.begin();
  }
  struct Image {
    std::string name, bytes;
    int64_t label;
  };
  Split split;
  std::vector<std::pair<std::string, std::string>> batches;
  std::vector<Image> images;
};

TensorDataset<2> read_archive(const std::string& path, Split split) {
  Archive archive(split);
  read_tar("cifar10", path, archive);
  Gathered out;
  std::sort(archive.batches.begin(), archive.batches.end());
  for (const auto& [name, bytes] : archive.batches) add_records(path + ": " + name, bytes, out);
  if (!archive.batches.empty()) return out.dataset();
  check_runtime(!archive.images.empty(), "[cifar10] {}: expected {}, or {}/cat/1.jpg and so on, found none", path,
                split == Split::Test ? "test_batch.bin" : "data_batch_1.bin", split == Split::Test ? "test" : "train");
  std::sort(archive.images.begin(), archive.images.end(), [](auto& a, auto& b) { return a.name < b.name; });
  out.pixels.resize(archive.images.size() * size_t(kPixels));
  for (const auto& image : archive.images) out.labels.push_back(image.label);
  parallel_for(int64_t(archive.images.size()), 64, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const std::string where = "[cifar10] " + path + ": " + archive.images[size_t(i)].name;
      place_image(where, decode_image(archive.images[size_t(i)].bytes, where, {}), &out.pixels[size_t(i * kPixels)]);
    }
  });
  return out.dataset();
}

TensorDataset<2> read_folder(const ImageFolder& folder) {
  check_runtime(folder.classes().size() == 10, "[cifar10] expected 10 folders of classes, found {}",
                int64_t(folder.classes().size()));
  Gathered out;
  out.pixels.resize(size_t(folder.size() * kPixels));
  for (int64_t i = 0; i < folder.size(); ++i) out.labels.push_back(folder.label(i));
  parallel_for(folder.size(), 64, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      place_image("[cifar10] " + folder.path(i), folder.get(i)[0], &out.pixels[size_t(i * kPixels)]);
  });
  return out.dataset();
}

}  // namespace

TensorDataset<2> cifar10(const std::string& path, Split split) {
  check_runtime(::access(path.c_str(), R_OK) == 0, "[cifar10] cannot read {}: there is no such folder or archive",
                path);
  if (!is_folder(path)) return read_archive(path, split);
  const std::string images = path + (split == Split::Test ? "/test" : "/train");
  if (is_folder(images)) return read_folder(ImageFolder(images));
  const std::string inside = path + "/cifar-10-batches-bin", base = is_folder(inside) ? inside : path;
  Gathered out;
  for (const auto batch : kBatches) {
    if (is_test(batch) != (split == Split::Test)) continue;
    const std::string file = base + "/" + std::string(batch);
    add_records(file, io::read_file("cifar10", file), out);
  }
  return out.dataset();
}

std::string find_cifar10(const std::string& path) {
  if (!path.empty()) return path;
  const char* given = std::getenv("TAPIR_DATA");
  std::vector<std::string> places = {"datasets", "../shared/data"};
  if (given && *given) places.insert(places.begin(), given);
  for (const auto& place : places)
    for (const char* name :
         {"/cifar10", "/cifar-10-batches-bin", "/cifar10-jpg", "/cifar10-jpg.tar.gz", "/cifar-10-binary.tar.gz"})
      if (::access((place + name).c_str(), R_OK) == 0) return place + name;
  fail(ErrorKind::Runtime,
       "[find_cifar10] expected cifar10, cifar-10-batches-bin, cifar10-jpg or its .tar.gz in $TAPIR_DATA, datasets or "
       "../shared/data, found none");
}

}  // namespace tapir::inline v0::data
