#include "zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "../core/error.h"
#include "shown_path.h"

namespace tapir::inline v0::io {

// Note [Zip]
// members, directory, [zip64 record, its locator], end record. The end record is found from the back and must end the
// file; the directory must end where the records begin. All numbers are little-endian.

namespace {

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kEntry = 0x02014b50,
                   kLocal = 0x04034b50, k32 = 0xffffffff;
constexpr int64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46, kLocalBytes = 30;
constexpr int64_t kBestRatio = 1032;  // of deflate
constexpr int64_t kChunk = 1 << 16;
constexpr uint16_t kEncrypted = 1 | 64, kSizesBehind = 8;

template <class T> T get(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
uint16_t get16(const char* p) { return get<uint16_t>(p); }
uint32_t get32(const char* p) { return get<uint32_t>(p); }
uint64_t get64(const char* p) { return get<uint64_t>(p); }

/// Fields that stand as 0xffffffff are taken from the zip64 extra, in their order. False when they are not there.
bool widen(std::string_view extra, std::initializer_list<uint64_t*> fields) {
  bool wanted = false;
  for (const uint64_t* f : fields) wanted |= *f == k32;
  while (wanted && extra.size() >= 4) {
    const size_t size = get16(extra.data() + 2);
    if (size + 4 > extra.size()) return false;
    if (get16(extra.data()) == 1) {
      std::string_view body = extra.substr(4, size);
      for (uint64_t* f : fields) {
        if (*f != k32) continue;
        if (body.size() < 8) return false;
        *f = get64(body.data());
        body.remove_prefix(8);
      }
      return true;
    }
    extra.remove_prefix(size + 4);
  }
  return !wanted;
}

}  // namespace

ZipReader::ZipReader(std::string_view op, const std::string& path)
    : where_("[" + std::string(op) + "] " + shown_path(path)), file_(op, path) {
  const Directory directory = find_directory();
  read_entries(directory);
  for (auto& member : members_) check_local(member);
  flags_ = {};
  check_overlap(directory.at);
}

ZipReader::Directory ZipReader::find_directory() {
  const int64_t size = file_.size(), count = std::min(size, kEndBytes + 0xffff);
  std::string tail(size_t(count), '\0');
  file_.read(size - count, tail.data(), count);
  for (int64_t i = count - kEndBytes; i >= 0; --i) {
    const char* p = tail.data() + i;
    if (get32(p) != kEnd || get16(p + 20) != count - kEndBytes - i) continue;
    const int64_t at = size - count + i;
    Directory d = {get32(p + 16), get32(p + 12), get16(p + 10), at};
    check_runtime(get16(p + 4) == get16(p + 6) && get16(p + 8) == get16(p + 10),
                  "{}: expected a zip archive in one part, the record at byte {} names several", where_, at);
    apply_zip64(d, at);
    check_runtime(d.at >= 0 && d.bytes >= 0 && d.at <= d.end && d.bytes == d.end - d.at,
                  "{}: expected the zip directory to end at byte {}, the record at byte {} places {} bytes at {}",
                  where_, d.end, at, d.bytes, d.at);
    return d;
  }
  fail(ErrorKind::Runtime, "{}: expected a zip archive, found no end of its directory in the last {} of {} bytes",
       where_, count, size);
}

void ZipReader::apply_zip64(Directory& d, int64_t eocd_at) {
  const int64_t locator = eocd_at - kLocatorBytes;
  char p[kEnd64Bytes];
  if (locator >= 0) file_.read(locator, p, kLocatorBytes);
  if (locator < 0 || get32(p) != kLocator64) return;
  const uint64_t at = get64(p + 8);
  check_runtime(locator >= kEnd64Bytes && at <= uint64_t(locator - kEnd64Bytes),
                "{}: expected a zip64 record before byte {}, its locator names byte {}", where_, locator,
                std::to_string(at));
  file_.read(int64_t(at), p, kEnd64Bytes);
  const bool whole = get32(p) == kEnd64 && get64(p + 4) == uint64_t(locator) - at - 12;
  check_runtime(whole, "{}: expected a zip64 record from byte {} to {}, got something else", where_, int64_t(at),
                locator);
  const int64_t entries = int64_t(get64(p + 32)), bytes = int64_t(get64(p + 40)), start = int64_t(get64(p + 48));
  const bool agree = (d.entries == entries || d.entries == 0xffff) && (d.bytes == bytes || d.bytes == k32) &&
                     (d.at == start || d.at == k32) && get64(p + 24) == get64(p + 32);
  check_runtime(agree, "{}: expected the zip and zip64 records at bytes {} and {} to agree, they do not", where_,
                eocd_at, int64_t(at));
  d = {start, bytes, entries, int64_t(at)};
}

void ZipReader::read_entries(const Directory& d) {
  check_runtime(d.entries >= 0 && d.entries <= d.bytes / kEntryBytes,
                "{}: expected at most {} members in a zip directory of {} bytes, got {}", where_, d.bytes / kEntryBytes,
                d.bytes, d.entries);
  std::string text(size_t(d.bytes), '\0');
  file_.read(d.at, text.data(), d.bytes);
  std::string_view rest = text;
  for (int64_t i = 0; i < d.entries; ++i) {
    const int64_t at = d.end - int64_t(rest.size());
    const char* p = rest.data();
    check_runtime(int64_t(rest.size()) >= kEntryBytes && get32(p) == kEntry,
                  "{}: expected entry {} of {} of the zip directory at byte {}", where_, i + 1, d.entries, at);
    const size_t name = get16(p + 28), extra = get16(p + 30), comment = get16(p + 32);
    check_runtime(rest.size() >= kEntryBytes + name + extra + comment, "{}: the zip directory ends within entry {}",
                  where_, i + 1);
    uint64_t stored = get32(p + 20), size = get32(p + 24), header = get32(p + 42);
    ZipMember member;
    member.name = rest.substr(kEntryBytes, name);
    const uint16_t flags = get16(p + 8), method = get16(p + 10);
    check_runtime(!(flags & kEncrypted), "{}: member {} is encrypted", where_, shown(member.name));
    check_runtime(method == 0 || method == 8, "{}: member {}: expected method 0 (stored) or 8 (deflate), got {}",
                  where_, shown(member.name), int(method));
    const bool fits = widen(rest.substr(kEntryBytes + name, extra), {&size, &stored, &header}) &&
                      std::max({stored, header}) <= uint64_t(d.at) && size < uint64_t(1) << 62;
    member.deflated = method == 8;
    check_runtime(fits && (member.deflated ? int64_t(size) <= kBestRatio * int64_t(stored) + 64 : size == stored),
                  "{}: member {}: impossible sizes, {} bytes packed into {} at byte {}", where_, shown(member.name),
                  std::to_string(size), std::to_string(stored), std::to_string(header));
    member.size = int64_t(size), member.stored_size = int64_t(stored), member.header_at = int64_t(header);
    member.crc = get32(p + 16);
    members_.push_back(std::move(member));
    flags_.push_back(flags);
    rest.remove_prefix(kEntryBytes + name + extra + comment);
  }
  check_runtime(rest.empty(), "{}: expected {} members, the zip directory has {} bytes more", where_, d.entries,
                int64_t(rest.size()));
}

/// The member's own header must say what the directory says.
void ZipReader::check_local(ZipMember& m) {
  const uint16_t flags = flags_[size_t(&m - members_.data())];
  char p[kLocalBytes] = {};
  const bool there = file_.size() - m.header_at >= kLocalBytes;
  if (there) file_.read(m.header_at, p, kLocalBytes);
  check_runtime(there && get32(p) == kLocal, "{}: expected the header of member {} at byte {}", where_, shown(m.name),
                m.header_at);
  const int64_t name_bytes = get16(p + 26), extra_bytes = get16(p + 28);
  std::string text(size_t(name_bytes + extra_bytes), '\0');
  file_.read(m.header_at + kLocalBytes, text.data(), int64_t(text.size()));
  uint64_t stored = get32(p + 18), size = get32(p + 22);
  const std::string_view extra = std::string_view(text).substr(size_t(name_bytes));
  const uint32_t crc = get32(p + 14);
  bool same = std::string_view(text).substr(0, size_t(name_bytes)) == m.name && get16(p + 8) == (m.deflated ? 8 : 0) &&
              (get16(p + 6) & (kEncrypted | kSizesBehind)) == (flags & (kEncrypted | kSizesBehind));
  if (flags & kSizesBehind) same = same && (crc == 0 || crc == m.crc);  // sizes stand behind the data
  else
    same = same && widen(extra, {&size, &stored}) && size == uint64_t(m.size) && stored == uint64_t(m.stored_size) &&
           crc == m.crc;
  check_runtime(same, "{}: member {}: its header at byte {} and the directory disagree", where_, shown(m.name),
                m.header_at);
  m.data_at = m.header_at + kLocalBytes + int64_t(text.size());
}

void ZipReader::check_overlap(int64_t directory_at) {
  std::vector<const ZipMember*> order;
  for (const auto& m : members_) order.push_back(&m);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->header_at < b->header_at; });
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t end = i + 1 < order.size() ? order[i + 1]->header_at : directory_at;
    check_runtime(order[i]->data_at <= end && order[i]->stored_size <= end - order[i]->data_at,
                  "{}: member {}: expected {} bytes at byte {} to end before byte {}", where_, shown(order[i]->name),
                  order[i]->stored_size, order[i]->data_at, end);
  }
  std::vector<uint32_t> sorted(members_.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::sort(sorted.begin(), sorted.end(), [&](auto a, auto b) { return members_[a].name < members_[b].name; });
  for (size_t i = 1; i < sorted.size(); ++i)
    check_runtime(members_[sorted[i]].name != members_[sorted[i - 1]].name, "{}: two members are named {}", where_,
                  shown(members_[sorted[i]].name));
  sorted_ = std::move(sorted);
}

const ZipMember* ZipReader::find(std::string_view name) const {
  const auto at = std::lower_bound(sorted_.begin(), sorted_.end(), name,
                                   [&](uint32_t i, std::string_view n) { return members_[i].name < n; });
  return at != sorted_.end() && members_[*at].name == name ? &members_[*at] : nullptr;
}

void ZipReader::read(const ZipMember& member, void* to) {
  ZipStream stream(*this, member);
  stream.read(to, member.size);
  stream.finish();
}

std::string ZipReader::read(const ZipMember& member, int64_t limit) {
  check_runtime(member.size <= limit, "{}: member {}: expected at most {} bytes, it has {}", where_, shown(member.name),
                limit, member.size);
  std::string bytes(size_t(member.size), '\0');
  read(member, bytes.data());
  return bytes;
}

ZipStream::ZipStream(ZipReader& zip, const ZipMember& member) : zip_(zip), member_(member) {
  if (!member.deflated) return;
  stream_ = new z_stream_s{};
  if (::inflateInit2(stream_, -MAX_WBITS) == Z_OK) return;
  delete stream_;
  fail(ErrorKind::OutOfMemory, "{}: no memory for zlib", zip.where());
}

ZipStream::~ZipStream() {
  if (!stream_) return;
  ::inflateEnd(stream_);
  delete stream_;
}

void ZipStream::fail_damaged(const char* what) const {
  fail(ErrorKind::Runtime, "{}: member {}: expected {} bytes in {} packed ones at byte {}, got {}", zip_.where(),
       shown(member_.name), member_.size, member_.stored_size, member_.data_at, what);
}

int64_t ZipStream::inflate_some(char* to, int64_t bytes) {
  stream_->next_out = reinterpret_cast<Bytef*>(to);
  const auto room = uInt(std::min<int64_t>(bytes, 1 << 30));
  stream_->avail_out = room;
  while (!ended_ && stream_->avail_out > 0) {
    if (stream_->avail_in == 0) {
      const int64_t count = std::min(kChunk, member_.stored_size - taken_);
      if (count == 0) fail_damaged("a truncated stream");
      input_.resize(size_t(count));
      zip_.file_.read(member_.data_at + taken_, input_.data(), count);
      taken_ += count;
      stream_->next_in = reinterpret_cast<Bytef*>(input_.data());
      stream_->avail_in = uInt(count);
    }
    const int result = ::inflate(stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) ended_ = true;
    else if (result == Z_MEM_ERROR) fail(ErrorKind::OutOfMemory, "{}: no memory for zlib", zip_.where());
    else if (result != Z_OK && result != Z_BUF_ERROR) fail_damaged(stream_->msg ? stream_->msg : "damaged data");
  }
  return int64_t(room - stream_->avail_out);
}

void ZipStream::read(void* to, int64_t bytes) {
  char* out = static_cast<char*>(to);
  check_runtime(bytes <= member_.size - done_, "{}: member {}: expected {} bytes at its byte {}, it has {} in all",
                zip_.where(), shown(member_.name), bytes, done_, member_.size);
  if (!stream_) zip_.file_.read(member_.data_at + done_, out, bytes);
  for (int64_t got = 0; stream_ && got < bytes;) {
    const int64_t more = inflate_some(out + got, bytes - got);
    if (more == 0) fail_damaged("fewer");
    got += more;
  }
  if (bytes > 0) crc_ = uint32_t(::crc32_z(crc_, static_cast<const Bytef*>(to), size_t(bytes)));
  done_ += bytes;
}

void ZipStream::finish() {
  check_runtime(done_ == member_.size, "{}: member {}: expected {} bytes, it has {}", zip_.where(), shown(member_.name),
                done_, member_.size);
  if (char extra; stream_ && inflate_some(&extra, 1) != 0) fail_damaged("more");
  if (stream_ && (stream_->avail_in > 0 || taken_ < member_.stored_size)) fail_damaged("bytes behind their end");
  char sums[2][12];
  std::snprintf(sums[0], sizeof sums[0], "%08x", member_.crc);
  std::snprintf(sums[1], sizeof sums[1], "%08x", crc_);
  check_runtime(crc_ == member_.crc, "{}: member {}: expected CRC-32 {}, got {}", zip_.where(), shown(member_.name),
                sums[0], sums[1]);
}

}  // namespace tapir::inline v0::io
