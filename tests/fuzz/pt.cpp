// The input is a pickle (an archive is made around it, with storages of 0, 16 and 64 bytes), or a whole archive when it begins as one.
#include <tapir/io/pt.h>

#include <zlib.h>

#include "fuzz.h"

namespace {

template <class T> void put(std::string& out, T v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); }

/// A zip archive of stored members, in memory: a file for each input would be a hundred times slower.
struct Archive {
  std::string bytes, directory;
  uint16_t count = 0;
  static void fields(std::string& out, const std::string& name, const std::string& data) {
    put(out, uint16_t(20)), put(out, uint64_t(0));  // version, flags, method, time
    put(out, uint32_t(crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size())));
    put(out, uint32_t(data.size())), put(out, uint32_t(data.size()));
    put(out, uint16_t(name.size())), put(out, uint16_t(0));
  }
  void add(const std::string& name, const std::string& data) {
    const auto at = uint32_t(bytes.size());
    bytes += "PK\3\4", fields(bytes, name, data), bytes += name + data;
    directory += "PK\1\2", put(directory, uint16_t(20)), fields(directory, name, data);
    directory.append(10, '\0'), put(directory, at), directory += name;
    ++count;
  }
  std::string finish() {
    const auto at = uint32_t(bytes.size());
    bytes += directory + "PK\5\6", put(bytes, uint32_t(0)), put(bytes, count), put(bytes, count);
    put(bytes, uint32_t(directory.size())), put(bytes, at), put(bytes, uint16_t(0));
    return bytes;
  }
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto load = [](const std::string& path) { tapir::io::load_pt(path); };
  if (size >= 2 && data[0] == 'P' && data[1] == 'K') return fuzz(data, size, load);
  Archive archive;
  archive.add("archive/data.pkl", {reinterpret_cast<const char*>(data), size});
  for (const size_t bytes : {0, 16, 64}) archive.add("archive/data/" + std::to_string(bytes), std::string(bytes, '\1'));
  const std::string whole = archive.finish();
  return fuzz(reinterpret_cast<const uint8_t*>(whole.data()), whole.size(), load);
}
