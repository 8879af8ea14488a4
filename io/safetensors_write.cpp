#include <algorithm>
#include <cstdio>

#include "json.h"
#include "safetensors.h"
#include "safetensors_format.h"

namespace tapir::inline v0::io {

using namespace safetensors;

namespace {

struct Piece {
  std::string_view name;
  Tensor data;  // contiguous, on the CPU
  int order;    // in kDTypes
  int64_t bytes() const { return data.numel() * size_of(data.dtype()); }
};

int order_of(DType dtype) {
  int i = 0;
  while (kDTypes[i].dtype != int(dtype)) ++i;
  return i;
}

/// Refuses what the format cannot hold, before the file is touched.
void check_metadata(const Metadata& metadata) {
  for (size_t i = 0; i < metadata.size(); ++i) {
    const auto& key = metadata[i].first;
    check(key != kSumsKey && key != kVersionKey, "[save_safetensors] expected metadata without our own key {}", key);
    for (const std::string* text : {&key, &metadata[i].second})
      check(valid_utf8(*text), "[save_safetensors] expected metadata in UTF-8, got \"{}\"", shown(*text));
    for (size_t k = 0; k < i; ++k)
      check(metadata[k].first != key, "[save_safetensors] expected metadata keys once, got \"{}\" twice", shown(key));
  }
}

/// In the reference writer's order: dtypes by falling alignment, then names.
std::vector<Piece> sorted_pieces(const StateDict& tensors) {
  std::vector<Piece> pieces;
  pieces.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    check(tensor.defined(), "[save_safetensors] expected defined tensors, got an undefined one as \"{}\"", shown(name));
    check(valid_utf8(name), "[save_safetensors] expected names in UTF-8, got \"{}\"", shown(name));
    check(name != kMetadataKey, "[save_safetensors] expected tensor names other than {}", kMetadataKey);
    pieces.push_back({name, tensor, order_of(tensor.dtype())});
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.name == b.name; });
  if (twice != pieces.end())
    fail(ErrorKind::Value, "[save_safetensors] expected names once, got \"{}\" twice", shown(twice->name));
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.order > b.order; });
  for (auto& piece : pieces) piece.data = piece.data.detach().cpu().contiguous();
  return pieces;
}

std::string hex8(uint32_t value) {
  char text[12];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

void append_metadata(std::string& out, Metadata metadata, const std::vector<Piece>& pieces, bool checksum) {
  if (checksum) {
    metadata.emplace_back(kVersionKey, "1");
    std::string sums = hex8(metadata_sum(metadata));
    for (const auto& p : pieces)
      sums += hex8(tensor_sum(p.name, p.data.dtype(), p.data.shape(), p.data.data_ptr(), p.bytes()));
    metadata.emplace_back(kSumsKey, std::move(sums));
  }
  if (metadata.empty()) return;
  append_json_string(out, kMetadataKey);
  out += ":{";
  for (const auto& [key, value] : metadata) {
    if (out.back() != '{') out += ',';
    append_json_string(out, key);
    out += ':';
    append_json_string(out, value);
  }
  out += '}';
}

std::string make_header(const Metadata& metadata, const std::vector<Piece>& pieces, bool checksum) {
  std::string out = "{";
  append_metadata(out, metadata, pieces, checksum);
  int64_t at = 0;
  for (const auto& p : pieces) {
    if (out.back() != '{') out += ',';
    append_json_string(out, p.name);
    ((out += ":{\"dtype\":\"") += kDTypes[p.order].name) += "\",\"shape\":[";
    for (const int64_t extent : p.data.shape()) (out += out.back() == '[' ? "" : ",") += std::to_string(extent);
    out += tapir::format("],\"data_offsets\":[{},{}]}", at, at + p.bytes());
    at += p.bytes();
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  check(int64_t(out.size()) <= kMaxHeader, "[save_safetensors] expected a header of at most {} bytes, got {}",
        kMaxHeader, int64_t(out.size()));
  return out;
}

}  // namespace

void save_safetensors(const std::string& path, const StateDict& tensors, const Metadata& metadata,
                      const SafetensorsOptions& options) {
  check_metadata(metadata);
  const auto pieces = sorted_pieces(tensors);
  Metadata all = metadata;
  const bool has_format = std::any_of(all.begin(), all.end(), [](const auto& item) { return item.first == "format"; });
  if (!has_format && options.checksum) all.emplace_back("format", "pt");
  const std::string header = make_header(all, pieces, options.checksum);
  const uint64_t size = header.size();
  OutputFile file("save_safetensors", path);
  file.write(&size, sizeof size);
  file.write(header);
  for (const auto& p : pieces)
    if (p.bytes() > 0) file.write(p.data.data_ptr(), p.bytes());
  file.commit();
}

}  // namespace tapir::inline v0::io
