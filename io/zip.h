#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../core/no_copy.h"
#include "file.h"

struct z_stream_s;

namespace tapir::inline v0::io {

struct ZipMember {
  std::string name;  // only a name, never a path to write to
  int64_t size = 0, stored_size = 0, header_at = 0, data_at = 0;
  uint32_t crc = 0;
  bool deflated = false;
};

/// A zip archive (zip64 too) whose directory has been read and checked against every member's own header: members lie
/// inside the file, do not overlap and have different names.
class ZipReader {
 public:
  /// RuntimeError for a file that breaks the format, is encrypted, or is packed in other ways than deflate.
  ZipReader(std::string_view op, const std::string& path);
  const std::vector<ZipMember>& members() const { return members_; }
  /// The member of that name, or null.
  const ZipMember* find(std::string_view name) const;
  /// The whole member into `to`, which has room for member.size bytes. RuntimeError where the CRC-32 does not fit.
  void read(const ZipMember& member, void* to);
  /// The same as a string; RuntimeError for more than `limit` bytes.
  std::string read(const ZipMember& member, int64_t limit);
  /// "[op] path", which begins every message.
  const std::string& where() const { return where_; }

 private:
  friend class ZipStream;
  struct Directory {
    int64_t at, bytes, entries, end;
  };
  Directory find_directory();
  void apply_zip64(Directory& directory, int64_t eocd_at);
  void read_entries(const Directory& directory);
  void check_local(ZipMember& member);
  void check_overlap(int64_t directory_at);
  std::string where_;
  InputFile file_;
  std::vector<ZipMember> members_;
  std::vector<uint16_t> flags_;   // of each member, until its own header has been checked
  std::vector<uint32_t> sorted_;  // positions by name
};

/// The bytes of one member, front to back, unpacked as they are asked for.
class ZipStream : NoCopy {
 public:
  ZipStream(ZipReader& zip, const ZipMember& member);
  ~ZipStream();
  /// Exactly `bytes` more; RuntimeError where the member holds less.
  void read(void* to, int64_t bytes);
  /// After the last byte: RuntimeError where more is packed than was stated, or the CRC-32 is wrong.
  void finish();

 private:
  int64_t inflate_some(char* to, int64_t bytes);
  [[noreturn]] void fail_damaged(const char* what) const;
  ZipReader& zip_;
  const ZipMember& member_;
  z_stream_s* stream_ = nullptr;
  std::string input_;
  int64_t done_ = 0, taken_ = 0;  // bytes made and bytes loaded
  uint32_t crc_ = 0;
  bool ended_ = false;
};

struct ZipAddOptions {
  int64_t align = 1;  // of the data in the file, by padding as PyTorch does
  bool deflate = false;
};

/// Writes a zip archive into a file; what is 4 GB or more becomes zip64.
class ZipWriter {
 public:
  explicit ZipWriter(OutputFile& file) : file_(file) {}
  void add(std::string_view name, const void* data, int64_t bytes, const ZipAddOptions& options = {});
  void add(std::string_view name, std::string_view data, const ZipAddOptions& options = {}) {
    add(name, data.data(), int64_t(data.size()), options);
  }
  /// Writes the directory. The file is the caller's to commit.
  void finish();

 private:
  void put(std::string_view bytes);
  OutputFile& file_;
  std::string directory_;
  int64_t at_ = 0, entries_ = 0;
};

}  // namespace tapir::inline v0::io
