#include "idx.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "gzip.h"
#include "shown_path.h"

namespace tapir::inline v0::io {

namespace {

struct Type {
  unsigned char code;
  DType dtype;
};
constexpr Type kIdxTypes[] = {{0x08, kUInt8}, {0x09, kInt8},    {0x0B, kInt16},
                              {0x0C, kInt32}, {0x0D, kFloat32}, {0x0E, kFloat64}};
constexpr int64_t kMaxDeflateRatio =
    1032;  // a deflate stream cannot grow more: a lower bound on what a claim must weigh

/// The two kinds of file behind one read().
class IdxSource {
 public:
  explicit IdxSource(const std::string& path) : file_("read_idx", path), where_("[read_idx] " + shown_path(path)) {
    if (is_gzip(file_)) gzip_.emplace("read_idx", path);
  }
  int64_t read(void* to, int64_t bytes) {
    if (gzip_) return gzip_->read(to, bytes);
    const int64_t count = std::min(bytes, file_.size() - at_);
    file_.read(at_, to, count);
    at_ += count;
    return count;
  }
  void read_header(void* to, int64_t at, int64_t bytes) {
    const int64_t got = read(to, bytes);
    check_runtime(got == bytes, "{}: expected a header of at least {} bytes, the content has {}", where_, at + bytes,
                  at + got);
  }
  bool compressed() const { return gzip_.has_value(); }
  int64_t file_size() const { return file_.size(); }
  const std::string& where() const { return where_; }

 private:
  InputFile file_;
  std::optional<GzipReader> gzip_;
  std::string where_;
  int64_t at_ = 0;
};

DType read_magic(IdxSource& source, int& rank) {
  unsigned char magic[4];
  source.read_header(magic, 0, 4);
  const auto* type =
      std::find_if(std::begin(kIdxTypes), std::end(kIdxTypes), [&](const Type& t) { return t.code == magic[2]; });
  const int64_t word = int64_t(magic[0]) << 24 | magic[1] << 16 | magic[2] << 8 | magic[3];
  check_runtime(magic[0] == 0 && magic[1] == 0 && type != std::end(kIdxTypes),
                "{}: expected an IDX file (bytes 0, 0, a type of 08 09 0B 0C 0D 0E, the rank), got magic {} at byte 0",
                source.where(), word);
  rank = magic[3];
  check_runtime(rank >= 1 && rank <= kMaxRank, "{}: expected 1 to {} dimensions at byte 3, got {}", source.where(),
                kMaxRank, rank);
  return type->dtype;
}

Shape read_shape(IdxSource& source, int rank, DType dtype, int64_t& bytes) {
  unsigned char raw[4 * kMaxRank];
  source.read_header(raw, 4, 4 * rank);
  Shape shape;
  int64_t steps = size_of(dtype);
  bytes = size_of(dtype);
  bool fits = true;
  for (int i = 0; i < rank; ++i) {
    const unsigned char* p = raw + 4 * i;
    shape.push_back(int64_t(p[0]) << 24 | p[1] << 16 | p[2] << 8 | p[3]);
    fits = fits && !__builtin_mul_overflow(bytes, shape[i], &bytes) &&
           !__builtin_mul_overflow(steps, std::max<int64_t>(shape[i], 1), &steps);
  }
  check_runtime(fits, "{}: expected a size below 2^63 bytes, got shape {} of {} at byte 4", source.where(), shape,
                dtype);
  return shape;
}

/// Big-endian in the file, native in memory.
void copy_elements(void* to, const char* from, int64_t bytes, int64_t size) {
  char* out = static_cast<char*>(to);
  if (size == 1) {
    std::memcpy(out, from, size_t(bytes));
    return;
  }
  for (int64_t i = 0; i < bytes; i += size)
    for (int64_t k = 0; k < size; ++k) out[i + k] = from[i + size - 1 - k];
}

/// Grows with what really comes out, so that a lying header costs no memory.
std::string inflate_payload(IdxSource& source, int64_t header, int64_t bytes) {
  const int64_t bound = source.file_size() * kMaxDeflateRatio;
  check_runtime(bytes <= bound, "{}: expected {} bytes of elements, a compressed file of {} bytes has at most {}",
                source.where(), bytes, source.file_size(), bound);
  std::string payload;
  while (int64_t(payload.size()) < bytes) {
    const int64_t at = int64_t(payload.size());
    const int64_t wanted = std::min(bytes - at, std::max<int64_t>(at, 1 << 20));
    payload.resize(size_t(at + wanted));
    const int64_t got = source.read(payload.data() + at, wanted);
    check_runtime(got == wanted, "{}: expected {} bytes of elements after byte {}, got {}", source.where(), bytes,
                  header, at + got);
  }
  char extra;
  check_runtime(source.read(&extra, 1) == 0, "{}: expected {} bytes of elements after byte {}, got more",
                source.where(), bytes, header);
  return payload;
}

}  // namespace

Tensor read_idx(const std::string& path) {
  IdxSource source(path);
  int rank = 0;
  const DType dtype = read_magic(source, rank);
  int64_t bytes = 0;
  const Shape shape = read_shape(source, rank, dtype, bytes);
  const int64_t header = 4 + 4 * rank;
  if (source.compressed()) {
    const std::string payload = inflate_payload(source, header, bytes);
    Tensor out = empty(shape, {.dtype = dtype});
    if (bytes > 0) copy_elements(out.data_ptr(), payload.data(), bytes, size_of(dtype));
    return out;
  }
  const int64_t present = source.file_size() - header;
  check_runtime(bytes == present, "{}: expected {} bytes of elements after byte {} (shape {}, {}), got {}: {} too {}",
                source.where(), bytes, header, shape, dtype, present,
                bytes > present ? bytes - present : present - bytes, bytes > present ? "few" : "many");
  Tensor out = empty(shape, {.dtype = dtype});
  if (bytes == 0) return out;
  char* data = static_cast<char*>(out.data_ptr());
  source.read(data, bytes);
  if (const int64_t size = size_of(dtype); size > 1)
    for (int64_t i = 0; i < bytes; i += size) std::reverse(data + i, data + i + size);
  return out;
}

void write_idx(const std::string& path, const Tensor& x) {
  const auto* type =
      std::find_if(std::begin(kIdxTypes), std::end(kIdxTypes), [&](const Type& t) { return t.dtype == x.dtype(); });
  check(type != std::end(kIdxTypes), "[write_idx] expected uint8, int8, int16, int32, float32 or float64, got {}",
        x.dtype());
  check(x.dim() >= 1, "[write_idx] expected at least 1 dimension, got {}", x.shape());
  std::string out = {'\0', '\0', char(type->code), char(x.dim())};
  for (const int64_t extent : x.shape()) {
    check(extent <= int64_t(UINT32_MAX), "[write_idx] expected extents below 2^32, got {}", x.shape());
    for (int shift = 24; shift >= 0; shift -= 8) out += char(extent >> shift);
  }
  const Tensor host = x.detach().cpu().contiguous();
  const size_t header = out.size();
  const int64_t bytes = host.numel() * size_of(host.dtype());
  out.resize(header + size_t(bytes));
  if (bytes > 0)
    copy_elements(out.data() + header, static_cast<const char*>(host.data_ptr()), bytes, size_of(host.dtype()));
  write_file("write_idx", path, path.ends_with(".gz") ? gzip(out) : out);
}

}  // namespace tapir::inline v0::io
