#include "pt.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <unordered_map>

#include "../core/error.h"
#include "pickle.h"
#include "zip.h"

namespace tapir::inline v0::io {

// Note [PyTorch files]
// A zip archive of stored members: <name>/data.pkl, the pickle; <name>/data/<key>, one storage each; <name>/byteorder;
// <name>/version. A tensor in the pickle names a storage, an offset, sizes and strides.

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr int64_t kMaxPickle = int64_t(1) << 29;

/// Largest element offset + 1 of a geometry with offset, or -1 where it is negative or overflows.
int64_t end_of(const pickle::TensorRecord& r) {
  int64_t last = r.offset, count = 1;
  bool empty = false, good = r.offset >= 0;
  for (int64_t d = 0; d < r.sizes.size() && good; ++d) {
    const int64_t size = r.sizes[d], stride = r.strides[d];
    int64_t reach = 0;
    good = size >= 0 && stride >= 0 && !__builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count) &&
           !__builtin_mul_overflow(std::max<int64_t>(size - 1, 0), stride, &reach) &&
           !__builtin_add_overflow(last, reach, &last);
    empty |= size == 0;
  }
  if (!good || last == INT64_MAX || count > INT64_MAX / 8) return -1;
  return empty ? r.offset : last + 1;
}

class StorageReader final : public pickle::Tensors {
 public:
  StorageReader(ZipReader& zip, std::string prefix, Device device)
      : zip_(zip), prefix_(std::move(prefix)), device_(device) {}

  Tensor read(const pickle::TensorRecord& r) override {
    const int64_t item = size_of(r.dtype);
    check_runtime(r.sizes.size() == r.strides.size(), "{}: tensor on storage \"{}\": {} sizes and {} strides",
                  zip_.where(), shown(r.storage), r.sizes.size(), r.strides.size());
    const Tensor& storage = load(r);
    const int64_t count = storage.numel() / item, end = end_of(r);
    check_runtime(end >= 0 && end <= count,
                  "{}: tensor on storage \"{}\": sizes {}, strides {} and offset {} leave its {} elements",
                  zip_.where(), shown(r.storage), r.sizes, r.strides, r.offset, count);
    Tensor& typed = typed_[{storage.impl().storage.get(), r.dtype}];
    if (!typed.defined()) typed = as_dtype(storage, r.dtype, count);
    return alias(typed, r.sizes, r.strides, r.offset);
  }
  pickle::TensorRecord write(const Tensor&) override { return {}; }

 private:
  const Tensor& load(const pickle::TensorRecord& r) {
    const std::string name = prefix_ + "data/" + std::string(r.storage);
    const ZipMember* member = zip_.find(name);
    check_runtime(member != nullptr, "{}: expected a member {}, found none", zip_.where(), shown(name));
    const int64_t item = r.untyped ? 1 : size_of(r.dtype);
    check_runtime(
        member->size % item == 0 && member->size / item == r.storage_count && member->size % size_of(r.dtype) == 0,
        "{}: storage \"{}\": expected {} elements of {} bytes, the member has {} bytes", zip_.where(), shown(r.storage),
        r.storage_count, item, member->size);
    Tensor& bytes = loaded_[name];
    if (!bytes.defined()) {
      Tensor host = empty({member->size}, {.dtype = kUInt8});
      zip_.read(*member, host.data_ptr());
      auto* p = static_cast<uint8_t*>(host.data_ptr());
      if (r.dtype == kBool)  // a bool of another byte is undefined behaviour in C++
        for (int64_t i = 0; i < member->size; ++i) p[i] = p[i] != 0;
      bytes = device_ == kCPU ? host : host.to(device_);
    }
    return bytes;
  }
  /// The same storage read as another dtype.
  static Tensor as_dtype(const Tensor& bytes, DType dtype, int64_t count) {
    Tensor out = alias(bytes, {0}, {1}, 0);
    TensorImpl& p = out.impl();
    p.dtype = dtype, p.numel = count, p.sizes = {count}, p.view = false;
    return out;
  }

  ZipReader& zip_;
  std::string prefix_;
  Device device_;
  std::unordered_map<std::string, Tensor> loaded_;
  std::map<std::pair<Storage*, DType>, Tensor> typed_;
};

/// What a file that is no zip archive seems to be, as a hint.
void refuse_other_formats(const std::string& path) {
  InputFile file("load_pt", path);
  char head[512] = {};
  file.read(0, head, std::min<int64_t>(file.size(), sizeof head));
  const std::string_view text(head, sizeof head);
  check_runtime(file.size() > 0, "[load_pt] {}: expected a zip archive written by torch.save, the file is empty",
                file.path());
  if (text.starts_with("PK\3\4")) return;
  const bool tar = text.substr(257, 5) == "ustar", stacked = text[0] == '\x80' && text[1] >= 2 && text[1] <= 5;
  check_runtime(!tar && !stacked,
                "[load_pt] {}: expected a zip archive, got the format of PyTorch before 1.6 ({}): load it there and "
                "save it again with torch.save",
                file.path(), tar ? "tar" : "stacked pickles");
  fail(ErrorKind::Runtime,
       "[load_pt] {}: expected a zip archive written by torch.save, which begins with \"PK\", got \"{}\" at byte 0",
       file.path(), shown(text.substr(0, 8)));
}

/// The members' common folder, with its slash: that of the one data.pkl.
std::string find_prefix(ZipReader& zip) {
  std::string prefix;
  int pickles = 0;
  bool script = false;
  for (const auto& m : zip.members()) {
    const std::string_view name = m.name;
    if (name.ends_with("/data.pkl") && name.find('/') == name.size() - 9)
      prefix = name.substr(0, name.size() - 8), ++pickles;
    script |= name.ends_with("/constants.pkl") || name.find("/code/") != name.npos;
  }
  check_runtime(!script, "{}: expected data, got a TorchScript archive: save its state_dict() with torch.save",
                zip.where());
  check_runtime(pickles == 1, "{}: expected one member data.pkl in one folder, found {}", zip.where(), pickles);
  if (const ZipMember* order = zip.find(prefix + "byteorder"))
    if (const std::string text = zip.read(*order, 100); text != "little")
      fail(ErrorKind::Runtime, "{}: expected byte order \"little\", got \"{}\": save it on a little-endian machine",
           zip.where(), shown(text));
  return prefix;
}

}  // namespace

Value load_pt(const std::string& path, const PtOptions& options) {
  refuse_other_formats(path);
  ZipReader zip("load_pt", path);
  const std::string prefix = find_prefix(zip);
  StorageReader storages(zip, prefix, options.device);
  return pickle::read(zip.read(*zip.find(prefix + "data.pkl"), kMaxPickle), zip.where(), storages);
}

}  // namespace tapir::inline v0::io
