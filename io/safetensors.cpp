#include "safetensors.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <functional>
#include <numeric>

#include "json.h"
#include "safetensors_format.h"
#include "shown_path.h"

namespace tapir::inline v0::io {

// Note [Safetensors]
// u64 N (little-endian, at most 100,000,000), N bytes of JSON, data. Each tensor names [begin, end) in the data; these
// ranges cover it from 0 to its end without hole or overlap, and end - begin is what dtype and shape need: so every
// size is proved against the bytes present before anything is allocated. Beyond the format, our writer adds to
// `__metadata__`
//   tapir.crc32: 8 hex digits for the metadata, then 8 for each tensor in the header's order
//   tapir.version: a file with this key but without the sums is damaged; so no single flipped bit can hide.

static_assert(std::endian::native == std::endian::little);
using namespace safetensors;
using Token = JsonReader::Token;

namespace {

const DTypeName* find_dtype(std::string_view name) {
  for (const auto& d : kDTypes)
    if (d.name == name) return &d;
  return nullptr;
}

std::string known_dtypes() {
  std::string list;
  for (const auto& d : kDTypes)
    if (d.dtype >= 0) (list += list.empty() ? "" : " ") += d.name;
  return list;
}

uint32_t add_text(uint32_t sum, std::string_view text) {
  const uint64_t size = text.size();
  sum = uint32_t(::crc32_z(sum, reinterpret_cast<const Bytef*>(&size), sizeof size));
  return uint32_t(::crc32_z(sum, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

bool next_hex(std::string_view& text, uint32_t& out) {
  const auto digits = text.substr(0, 8);
  for (const char c : digits)
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  text.remove_prefix(digits.size());
  return std::from_chars(digits.data(), digits.data() + digits.size(), out, 16).ec == std::errc() && digits.size() == 8;
}

int64_t read_header_size(InputFile& file, const std::string& where) {
  check_runtime(file.size() >= 8, "{}: expected at least 8 bytes, the file has {}", where, file.size());
  uint64_t size = 0;
  file.read(0, &size, 8);
  const bool fits = size <= uint64_t(kMaxHeader) && int64_t(size) <= file.size() - 8;
  check_runtime(fits, "{}: expected a header of at most {} bytes in a file of {}, got a length of {} at byte 0", where,
                kMaxHeader, file.size(), std::to_string(size));
  return int64_t(size);
}

}  // namespace

uint32_t safetensors::tensor_sum(std::string_view name, DType dtype, const Shape& shape, const void* data,
                                 int64_t bytes) {
  uint32_t sum = add_text(add_text(0, name), tapir::name_of(dtype));
  sum = uint32_t(::crc32_z(sum, reinterpret_cast<const Bytef*>(shape.data()), size_t(shape.size()) * 8));
  return bytes == 0
             ? sum
             : uint32_t(::crc32_z(sum, static_cast<const Bytef*>(data), size_t(bytes)));  // null data would reset it
}

uint32_t safetensors::metadata_sum(const Metadata& metadata) {
  uint32_t sum = 0;
  for (const auto& [key, value] : metadata)
    if (key != kSumsKey) sum = add_text(add_text(sum, key), value);
  return sum;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_("load_safetensors", path), where_("[load_safetensors] " + shown_path(path)) {
  const int64_t header = read_header_size(file_, where_);
  data_at_ = 8 + header;
  std::string text(size_t(header), '\0');
  file_.read(8, text.data(), header);
  parse_header(text);
  index_names();
  check_layout(file_.size() - data_at_);
  take_checksums();
}

void SafetensorsFile::parse_header(std::string_view text) {
  JsonReader json(text, where_, 4, 8);
  json.expect(Token::BeginObject, "the header");
  bool has_metadata = false;
  for (Token token = json.next(); token != Token::EndObject; token = json.next()) {
    if (json.text() == kMetadataKey) {
      check_runtime(!has_metadata, "{}: expected one {}, got a second at byte {}", where_, kMetadataKey, json.offset());
      has_metadata = true;
      parse_metadata(json);
    } else {
      parse_tensor(json, json.text());
    }
  }
  json.next();  // refuses what follows
}

void SafetensorsFile::parse_metadata(JsonReader& json) {
  json.expect(Token::BeginObject, kMetadataKey);
  while (json.next() != Token::EndObject) {
    std::string key(json.text());
    json.expect(Token::String, "the metadata", key);
    metadata_.emplace_back(std::move(key), json.text());
  }
  std::vector<std::string_view> keys;
  for (const auto& item : metadata_) keys.push_back(item.first);
  if (const auto twice = repeated(std::move(keys)))
    fail(ErrorKind::Runtime, "{}: expected keys once in __metadata__, got \"{}\" twice", where_, shown(*twice));
}

void SafetensorsFile::parse_shape(JsonReader& json, Entry& entry) {
  json.expect(Token::BeginArray, "the shape", name_text(entry));
  entry.shape_at = shapes_.size();
  for (Token token = json.next(); token != Token::EndArray; token = json.next()) {
    int64_t extent = 0;
    if (token != Token::Number || !json.to_int(extent))
      json.fail_at("a whole number from 0 on in the shape of \"" + shown(name_text(entry)) + "\"");
    shapes_.push_back(extent);
  }
  entry.rank = uint32_t(shapes_.size() - entry.shape_at);
}

void SafetensorsFile::parse_tensor(JsonReader& json, std::string_view name) {
  Entry e;
  e.name_at = text_.size(), e.name_size = uint32_t(name.size());
  text_ += name;
  const auto expect = [&](Token token, const char* what) { json.expect(token, what, name_text(e)); };
  expect(Token::BeginObject, "the value");
  bool dtype = false, shape = false, offsets = false;
  const auto once = [&](bool& seen, const char* field) {
    if (std::exchange(seen, true)) json.fail_at(tapir::format("{} of \"{}\" once", field, shown(name_text(e))));
  };
  for (Token token = json.next(); token != Token::EndObject; token = json.next()) {
    if (json.text() == "dtype") {
      once(dtype, "the dtype");
      expect(Token::String, "the dtype");
      e.dtype_at = text_.size(), e.dtype_size = uint32_t(json.text().size());
      text_ += json.text();
    } else if (json.text() == "shape") {
      once(shape, "the shape");
      parse_shape(json, e);
    } else if (json.text() == "data_offsets") {
      once(offsets, "the data_offsets");
      expect(Token::BeginArray, "the data_offsets");
      for (int64_t* to : {&e.begin, &e.end})
        if (json.next() != Token::Number || !json.to_int(*to))
          json.fail_at("two whole numbers from 0 on as the data_offsets of \"" + shown(name_text(e)) + "\"");
      expect(Token::EndArray, "the data_offsets");
    } else {
      json.skip(json.next());  // a field of a later version
    }
  }
  check_runtime(dtype && shape && offsets, "{}: expected dtype, shape and data_offsets of \"{}\", got no {}", where_,
                shown(name_text(e)),
                !dtype   ? "dtype"
                : !shape ? "shape"
                         : "data_offsets");
  check_size(e);
  entries_.push_back(e);
}

/// end - begin is what dtype and shape need.
void SafetensorsFile::check_size(const Entry& e) const {
  check_runtime(e.begin <= e.end, "{}: expected data_offsets of \"{}\" in order, got [{}, {}]", where_,
                shown(name_text(e)), e.begin, e.end);
  const DTypeName* dtype = find_dtype(dtype_text(e));
  uint64_t bits = 1, steps = dtype ? std::max<uint64_t>(dtype->bits / 8, 1) : 8;  // steps: of an empty tensor in bytes
  bool fits = true;
  for (uint32_t i = 0; i < e.rank; ++i) {
    const auto extent = uint64_t(shapes_[e.shape_at + i]);
    fits = fits && !__builtin_mul_overflow(bits, extent, &bits) &&
           !__builtin_mul_overflow(steps, std::max<uint64_t>(extent, 1), &steps);
  }
  fits =
      fits && !__builtin_mul_overflow(bits, uint64_t(dtype ? dtype->bits : 1), &bits) && steps <= uint64_t(INT64_MAX);
  check_runtime(fits, "{}: expected a size below 2^63 bits of \"{}\", got shape {}", where_, shown(name_text(e)),
                shape_text(e));
  if (!dtype) return;  // the other tensors are still readable
  check_runtime(bits % 8 == 0, "{}: expected whole bytes of \"{}\", got {} of shape {}", where_, shown(name_text(e)),
                dtype->name, shape_text(e));
  check_runtime(bits / 8 == uint64_t(e.end - e.begin),
                "{}: expected {} bytes of \"{}\" ({} {}), got data_offsets [{}, {}]: {} bytes", where_, bits / 8,
                shown(name_text(e)), dtype->name, shape_text(e), e.begin, e.end, e.end - e.begin);
}

std::string SafetensorsFile::shape_text(const Entry& e) const {
  std::string text = "(";
  for (uint32_t i = 0; i < std::min<uint32_t>(e.rank, 20); ++i)
    (text += i ? ", " : "") += std::to_string(shapes_[e.shape_at + i]);
  return text + (e.rank > 20 ? ", ...)" : ")");
}

/// The ranges cover the data from 0 to its end, each byte once.
void SafetensorsFile::check_layout(int64_t data_bytes) const {
  std::vector<int64_t> order(entries_.size());
  std::iota(order.begin(), order.end(), int64_t(0));
  const auto before = [&](int64_t a, int64_t b) {
    const Entry &x = entries_[size_t(a)], &y = entries_[size_t(b)];
    return x.begin != y.begin ? x.begin < y.begin : x.end < y.end;
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);
  int64_t at = 0;
  for (const int64_t i : order) {
    const Entry& e = entries_[size_t(i)];
    const bool inside = e.begin == at && e.end <= data_bytes;
    check_runtime(inside,
                  "{}: expected the data of \"{}\" from byte {} on and at most to {}, got data_offsets [{}, {}]",
                  where_, shown(name_text(e)), at, data_bytes, e.begin, e.end);
    at = e.end;
  }
  check_runtime(at == data_bytes, "{}: expected {} bytes of data, the file has {}", where_, at, data_bytes);
}

/// Sorted by hash; equal hashes by name, so that many names of one hash cost n log n too.
void SafetensorsFile::index_names() {
  by_hash_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i)
    by_hash_.emplace_back(std::hash<std::string_view>()(name_text(entries_[i])), int64_t(i));
  const auto name_at = [&](const auto& item) { return name_text(entries_[size_t(item.second)]); };
  std::sort(by_hash_.begin(), by_hash_.end(), [&](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : name_at(a) < name_at(b);
  });
  const auto twice = std::adjacent_find(by_hash_.begin(), by_hash_.end(), [&](const auto& a, const auto& b) {
    return a.first == b.first && name_at(a) == name_at(b);
  });
  if (twice != by_hash_.end())
    fail(ErrorKind::Runtime, "{}: expected names once, got the key \"{}\" twice", where_, shown(name_at(*twice)));
}

int64_t SafetensorsFile::find(std::string_view name) const {
  const std::pair<uint64_t, int64_t> first(std::hash<std::string_view>()(name), -1);
  auto it = std::lower_bound(by_hash_.begin(), by_hash_.end(), first,
                             [](const auto& a, const auto& b) { return a.first < b.first; });
  for (; it != by_hash_.end() && it->first == first.first; ++it)
    if (name_text(entries_[size_t(it->second)]) == name) return it->second;
  return -1;
}

std::string_view SafetensorsFile::name(int64_t i) const {
  check(i >= 0 && i < size(), "[SafetensorsFile] expected a position in [0, {}), got {}", size(), i);
  return name_text(entries_[size_t(i)]);
}

/// Moves the checksum out of the metadata into sums_.
void SafetensorsFile::take_checksums() {
  const auto entry = [&](std::string_view key) {
    return std::find_if(metadata_.begin(), metadata_.end(), [&](const auto& item) { return item.first == key; });
  };
  const auto sums = entry(kSumsKey);
  if (sums == metadata_.end()) {
    check_runtime(entry(kVersionKey) == metadata_.end(), "{}: expected {} beside {} in __metadata__, got none", where_,
                  kSumsKey, kVersionKey);
    return;
  }
  std::string_view text = sums->second;
  uint32_t stored = 0;
  check_runtime(text.size() == 8 * (entries_.size() + 1) && next_hex(text, stored),
                "{}: expected {} hexadecimal digits in {}, got \"{}\"", where_, 8 * (int64_t(entries_.size()) + 1),
                kSumsKey, shown(text));
  const uint32_t found = metadata_sum(metadata_);
  check_runtime(stored == found, "{}: expected checksum {} of __metadata__, got {}", where_, stored, found);
  sums_.resize(entries_.size());
  for (auto& sum : sums_)
    check_runtime(next_hex(text, sum), "{}: expected hexadecimal digits in {}, got \"{}\"", where_, kSumsKey,
                  shown(text));
  std::erase_if(metadata_, [](const auto& item) { return item.first == kSumsKey || item.first == kVersionKey; });
}

Tensor SafetensorsFile::read(int64_t i) {
  check(i >= 0 && i < size(), "[SafetensorsFile] expected a position in [0, {}), got {}", size(), i);
  const Entry& e = entries_[size_t(i)];
  const DTypeName* dtype = find_dtype(dtype_text(e));
  check_runtime(dtype && dtype->dtype >= 0, "{}: expected the dtype of \"{}\" to be one of {}, got {}", where_,
                shown(name_text(e)), known_dtypes(), shown(dtype_text(e)));
  check_runtime(e.rank <= uint32_t(kMaxRank), "{}: expected at most {} dimensions of \"{}\", got {}", where_, kMaxRank,
                shown(name_text(e)), e.rank);
  const Shape shape(std::span<const int64_t>(shapes_.data() + e.shape_at, e.rank));
  Tensor out = empty(shape, {.dtype = DType(dtype->dtype)});
  const int64_t bytes = e.end - e.begin;
  if (bytes > 0) file_.read(data_at_ + e.begin, out.data_ptr(), bytes);
  if (!sums_.empty()) {
    const uint32_t found = tensor_sum(name_text(e), out.dtype(), shape, bytes ? out.data_ptr() : nullptr, bytes);
    check_runtime(found == sums_[size_t(i)], "{}: expected checksum {} of \"{}\", got {}", where_, sums_[size_t(i)],
                  shown(name_text(e)), found);
  }
  if (out.dtype() == kBool && bytes > 0) {  // a bool of any other byte would be undefined behaviour later
    auto* p = static_cast<uint8_t*>(out.data_ptr());
    for (int64_t k = 0; k < bytes; ++k) p[k] = p[k] != 0;
  }
  return out;
}

Tensor SafetensorsFile::read(std::string_view name) {
  const int64_t i = find(name);
  check(i >= 0, "[SafetensorsFile] expected a tensor named \"{}\" in {}, found none", shown(name), file_.path());
  return read(i);
}

}  // namespace tapir::inline v0::io
