#include <zlib.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "../core/error.h"
#include "zip.h"

namespace tapir::inline v0::io {

namespace {

constexpr int64_t kMax32 = 0xffffffff;
constexpr uint16_t kUtf8 = 0x0800, kDate = 0x0021;  // 1 January 1980: the same content is the same file

void put16(std::string& out, int64_t v) {
  const auto x = uint16_t(v);
  out.append(reinterpret_cast<const char*>(&x), 2);
}
void put32(std::string& out, int64_t v) {
  const auto x = uint32_t(v);
  out.append(reinterpret_cast<const char*>(&x), 4);
}
void put64(std::string& out, int64_t v) { out.append(reinterpret_cast<const char*>(&v), 8); }

std::string deflated(const void* data, int64_t bytes) {
  z_stream_s stream{};
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    fail(ErrorKind::OutOfMemory, "[zip] no memory for zlib");
  std::string out;
  const auto* from = static_cast<const Bytef*>(data);
  char buffer[1 << 14];
  for (int result = Z_OK; result != Z_STREAM_END;) {
    if (stream.avail_in == 0 && bytes > 0) {
      stream.avail_in = uInt(std::min<int64_t>(bytes, 1 << 30)), stream.next_in = const_cast<Bytef*>(from);
      from += stream.avail_in, bytes -= stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer), stream.avail_out = sizeof buffer;
    result = ::deflate(&stream, bytes > 0 ? Z_NO_FLUSH : Z_FINISH);
    out.append(buffer, sizeof buffer - stream.avail_out);
  }
  ::deflateEnd(&stream);
  return out;
}

/// What headers and entries share, from the version to the extra's length.
void put_common(std::string& out, bool wide, bool deflate, uint32_t crc, int64_t stored, int64_t size, size_t name,
                size_t extra) {
  put16(out, wide ? 45 : 20), put16(out, kUtf8), put16(out, deflate ? 8 : 0), put16(out, 0), put16(out, kDate);
  put32(out, crc), put32(out, wide ? kMax32 : stored), put32(out, wide ? kMax32 : size);
  put16(out, int64_t(name)), put16(out, int64_t(extra));
}

}  // namespace

void ZipWriter::put(std::string_view bytes) {
  file_.write(bytes);
  at_ += int64_t(bytes.size());
}

void ZipWriter::add(std::string_view name, const void* data, int64_t bytes, const ZipAddOptions& options) {
  check(name.size() <= 0xffff, "[zip] expected a name of at most 65535 bytes, got {}", int64_t(name.size()));
  const auto crc = uint32_t(bytes ? ::crc32_z(0, static_cast<const Bytef*>(data), size_t(bytes)) : 0);
  std::string packed;
  if (options.deflate) packed = deflated(data, bytes);
  const int64_t stored = options.deflate ? int64_t(packed.size()) : bytes, header_at = at_;
  const bool wide = bytes >= kMax32 || stored >= kMax32, far = header_at >= kMax32;
  std::string extra, header = "PK\3\4";
  if (wide) put16(extra, 1), put16(extra, 16), put64(extra, bytes), put64(extra, stored);
  if (options.align > 1) {
    const int64_t unpadded = at_ + 30 + int64_t(name.size() + extra.size()) + 4;
    const int64_t padding = (options.align - unpadded % options.align) % options.align;
    extra += "FB", put16(extra, padding);
    extra.append(size_t(padding), 'Z');
  }
  put_common(header, wide, options.deflate, crc, stored, bytes, name.size(), extra.size());
  put(header.append(name).append(extra));
  if (options.deflate) file_.write(packed);
  else if (bytes > 0) file_.write(data, bytes);
  at_ += stored;

  extra.clear();
  if (wide || far) {
    put16(extra, 1), put16(extra, (wide ? 16 : 0) + (far ? 8 : 0));
    if (wide) put64(extra, bytes), put64(extra, stored);
    if (far) put64(extra, header_at);
  }
  directory_ += "PK\1\2", put16(directory_, 45);
  put_common(directory_, wide, options.deflate, crc, stored, bytes, name.size(), extra.size());
  directory_.append(10, '\0'), put32(directory_, far ? kMax32 : header_at);
  directory_.append(name).append(extra);
  ++entries_;
}

void ZipWriter::finish() {
  const int64_t start = at_, bytes = int64_t(directory_.size());
  put(directory_);
  const bool wide = entries_ >= 0xffff || start >= kMax32 || bytes >= kMax32;
  std::string end;
  if (wide) {
    const int64_t at = at_;
    end += "PK\6\6", put64(end, 44), put16(end, 45), put16(end, 45), put32(end, 0), put32(end, 0);
    put64(end, entries_), put64(end, entries_), put64(end, bytes), put64(end, start);
    end += "PK\6\7", put32(end, 0), put64(end, at), put32(end, 1);
  }
  end += "PK\5\6", put32(end, 0);
  for (int i = 0; i < 2; ++i) put16(end, wide ? 0xffff : entries_);
  put32(end, wide ? kMax32 : bytes), put32(end, wide ? kMax32 : start), put16(end, 0);
  put(end);
}

}  // namespace tapir::inline v0::io
