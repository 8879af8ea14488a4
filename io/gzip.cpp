#include "gzip.h"

#include <zlib.h>

#include <algorithm>
#include <climits>

#include "../core/error.h"
#include "shown_path.h"

namespace tapir::inline v0::io {

namespace {
constexpr int kGzipOnly = 16 + MAX_WBITS;
constexpr int64_t kInputBytes = 1 << 16;
Bytef* bytes_of(const char* p) { return reinterpret_cast<Bytef*>(const_cast<char*>(p)); }
}  // namespace

GzipReader::GzipReader(std::string_view op, const std::string& path)
    : where_("[" + std::string(op) + "] " + shown_path(path)), file_(op, path), stream_(new z_stream_s{}) {
  if (::inflateInit2(stream_, kGzipOnly) != Z_OK) {
    delete stream_;
    fail(ErrorKind::OutOfMemory, "{}: no memory for zlib", where_);
  }
}

GzipReader::~GzipReader() {
  ::inflateEnd(stream_);
  delete stream_;
}

void GzipReader::fail_damaged(const char* what) const {
  fail(ErrorKind::Runtime, "{}: expected gzip data, got {} near byte {} of {}", where_, what,
       at_ - int64_t(stream_->avail_in), file_.size());
}

bool GzipReader::refill() {
  const int64_t count = std::min(kInputBytes, file_.size() - at_);
  if (count <= 0) return false;
  input_.resize(size_t(count));
  file_.read(at_, input_.data(), count);
  at_ += count;
  stream_->next_in = bytes_of(input_.data());
  stream_->avail_in = uInt(count);
  return true;
}

int64_t GzipReader::read(void* to, int64_t bytes) {
  char* out = static_cast<char*>(to);
  int64_t left = bytes;
  while (left > 0) {
    if (stream_->avail_in == 0 && !refill()) {
      if (!between_) fail_damaged("a truncated stream");
      break;
    }
    if (between_) {
      ::inflateReset(stream_);
      between_ = false;
    }
    const auto chunk = uInt(std::min<int64_t>(left, INT_MAX));
    stream_->next_out = bytes_of(out);
    stream_->avail_out = chunk;
    const int result = ::inflate(stream_, Z_NO_FLUSH);
    out += chunk - stream_->avail_out;
    left -= chunk - stream_->avail_out;
    if (result == Z_STREAM_END) between_ = true;
    else if (result == Z_MEM_ERROR) fail(ErrorKind::OutOfMemory, "{}: no memory for zlib", where_);
    else if (result != Z_OK && result != Z_BUF_ERROR) fail_damaged(stream_->msg ? stream_->msg : "damaged data");
  }
  return bytes - left;
}

bool is_gzip(InputFile& file) {
  unsigned char magic[2] = {};
  if (file.size() >= 2) file.read(0, magic, 2);
  return magic[0] == 0x1f && magic[1] == 0x8b;
}

std::string gzip(std::string_view bytes) {
  z_stream_s stream{};
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipOnly, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    fail(ErrorKind::OutOfMemory, "[gzip] no memory for zlib");
  std::string out(::deflateBound(&stream, uLong(bytes.size())), '\0');
  check(bytes.size() <= UINT_MAX && out.size() <= UINT_MAX, "[gzip] expected less than 4 GB, got {} bytes",
        int64_t(bytes.size()));
  stream.next_in = bytes_of(bytes.data()), stream.avail_in = uInt(bytes.size());
  stream.next_out = bytes_of(out.data()), stream.avail_out = uInt(out.size());
  const int result = ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  check_internal(result == Z_STREAM_END, "[gzip] deflate ended with {}", result);
  return out;
}

}  // namespace tapir::inline v0::io
