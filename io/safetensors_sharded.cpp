#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "json.h"
#include "safetensors.h"
#include "shown_path.h"

namespace tapir::inline v0::io {

using Token = JsonReader::Token;

namespace {

using WeightMap = std::vector<std::pair<std::string, std::string>>;  // (shard, tensor)

/// A shard is a file in the folder of the index: whatever could lead out of it is refused.
void check_shard_name(const std::string& name, const JsonReader& json) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                     name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
  check_runtime(plain, "{}: expected a plain file name in the folder of the index, got \"{}\" at byte {}", json.where(),
                shown(name), json.offset());
}

WeightMap read_weight_map(const std::string& path) {
  const std::string text = read_file("load_safetensors", path, 100'000'000);
  JsonReader json(text, "[load_safetensors] " + shown_path(path), 8);
  WeightMap map;
  bool found = false;
  json.expect(Token::BeginObject, "the index");
  while (json.next() != Token::EndObject) {
    if (json.text() != "weight_map") {
      json.skip(json.next());
      continue;
    }
    check_runtime(!std::exchange(found, true), "{}: expected weight_map once", json.where());
    json.expect(Token::BeginObject, "weight_map");
    while (json.next() != Token::EndObject) {
      std::string tensor(json.text());
      json.expect(Token::String, "the file", tensor);
      map.emplace_back(json.text(), std::move(tensor));
      check_shard_name(map.back().first, json);
    }
  }
  json.next();
  check_runtime(found, "{}: expected a weight_map, got none", json.where());
  return map;
}

StateDict load_sharded(const std::string& path) {
  WeightMap map = read_weight_map(path);
  std::vector<std::string_view> names;
  for (const auto& item : map) names.push_back(item.second);
  if (const auto twice = repeated(std::move(names)))
    fail(ErrorKind::Runtime, "[load_safetensors] {}: expected names once, got \"{}\" twice", shown_path(path),
         shown(*twice));

  std::stable_sort(map.begin(), map.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  StateDict out;
  std::optional<SafetensorsFile> shard;
  const std::string* open = nullptr;
  for (const auto& [file, tensor] : map) {
    if (!open || *open != file) {
      struct stat info;
      const bool link = ::lstat((folder + file).c_str(), &info) == 0 && S_ISLNK(info.st_mode);
      check_runtime(!link, "[load_safetensors] {}: expected the shard {} to be a file, it is a symbolic link",
                    shown_path(path), shown(file));
      shard.emplace(folder + file);
      open = &file;
    }
    const int64_t i = shard->find(tensor);
    check_runtime(i >= 0, "[load_safetensors] {}: expected \"{}\" in {}, found none", shown_path(path), shown(tensor),
                  shown(file));
    out.append(tensor, shard->read(i));
  }
  return out;
}

}  // namespace

StateDict load_safetensors(const std::string& path, Metadata* metadata) {
  if (path.ends_with(".index.json")) {
    if (metadata) metadata->clear();
    return load_sharded(path);
  }
  SafetensorsFile file(path);
  StateDict out;
  for (int64_t i = 0; i < file.size(); ++i) out.append(std::string(file.name(i)), file.read(i));
  if (metadata) *metadata = file.metadata();
  return out;
}

}  // namespace tapir::inline v0::io
