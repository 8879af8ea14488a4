#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/state_dict.h"
#include "file.h"

namespace tapir::inline v0::io {

class JsonReader;

/// The texts of a file's `__metadata__`, in its order. {"format", "pt"} by habit.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// A safetensors file whose header has been read and checked; tensors are read when asked for. See Note [Safetensors].
class SafetensorsFile {
 public:
  /// RuntimeError for a file that breaks the format in any place of its header, or whose sizes do not fit its bytes.
  explicit SafetensorsFile(const std::string& path);
  int64_t size() const { return int64_t(entries_.size()); }
  std::string_view name(int64_t i) const;
  /// The position of that name, or -1.
  int64_t find(std::string_view name) const;
  /// A new CPU tensor. RuntimeError for a dtype that Tapir lacks, and where our checksum does not fit.
  Tensor read(int64_t i);
  /// The same by name; ValueError when there is none.
  Tensor read(std::string_view name);
  /// Without the entries that hold our checksum.
  const Metadata& metadata() const { return metadata_; }

 private:
  struct Entry {  // texts and shapes lie in two pools: a million tensors are a few allocations
    uint64_t name_at = 0, shape_at = 0, dtype_at = 0;
    uint32_t name_size = 0, rank = 0, dtype_size = 0;
    int64_t begin = 0, end = 0;
  };
  void parse_header(std::string_view text);
  void parse_tensor(JsonReader& json, std::string_view name);
  void parse_metadata(JsonReader& json);
  void parse_shape(JsonReader& json, Entry& entry);
  void check_size(const Entry& entry) const;
  void check_layout(int64_t data_bytes) const;
  void index_names();
  void take_checksums();
  std::string_view dtype_text(const Entry& e) const { return std::string_view(text_).substr(e.dtype_at, e.dtype_size); }
  std::string_view name_text(const Entry& e) const { return std::string_view(text_).substr(e.name_at, e.name_size); }
  std::string shape_text(const Entry& e) const;

  InputFile file_;
  std::string where_, text_;
  int64_t data_at_ = 0;
  std::vector<Entry> entries_;
  std::vector<int64_t> shapes_;
  std::vector<std::pair<uint64_t, int64_t>> by_hash_;  // (hash of the name, position), sorted
  std::vector<uint32_t> sums_;                         // of each tensor, or empty
  Metadata metadata_;
};

/// Every tensor of the file, on the CPU, in the header's order. RuntimeError as SafetensorsFile. A path that ends in
/// ".index.json" is the index of a sharded checkpoint: the shards are read from its folder.
StateDict load_safetensors(const std::string& path, Metadata* metadata = nullptr);

struct SafetensorsOptions {
  bool checksum = true;  // add a CRC-32 of each tensor, which load_safetensors checks, and {"format", "pt"}
};
/// Writes the file as the reference writer does, atomically (io/file.h): logical elements only, whatever the strides
/// and device. ValueError for undefined tensors, duplicate or non-UTF-8 names.
void save_safetensors(const std::string& path, const StateDict& tensors, const Metadata& metadata = {},
                      const SafetensorsOptions& options = {});

}  // namespace tapir::inline v0::io
