// File cases, and kernel calls written by TAPIR_DUMP.
#include <tapir/io/safetensors.h>

#include "run.h"

namespace conformance {

std::optional<std::string> run_file(const Family& family, const Json& json, const std::string& folder) {
  if (json["format"] != "safetensors") return std::nullopt;
  const std::string path = folder + "/" + json["file"].get<std::string>();
  if (json["expect"] == "error") {
    try {
      io::load_safetensors(path);
    } catch (const RuntimeError&) {
      return "";
    }
    return "expected an error: " + json.value("reason", "");
  }
  io::Metadata metadata;
  const StateDict got = io::load_safetensors(path, &metadata);
  if (got.size() != json["value"].size())
    return format("{} tensors, expected {}", int64_t(got.size()), int64_t(json["value"].size()));
  for (auto& [name, want] : json["value"].items()) {
    const Tensor* t = got.find(name);
    if (!t) return "no tensor \"" + name + "\"";
    if (std::string text = compare(*t, family.expected(want), Json{{"atol", 0.0}}); !text.empty())
      return name + ": " + text;
  }
  for (auto& [key, text] : json["metadata"].items())
    if (std::find(metadata.begin(), metadata.end(),
                  std::pair<std::string, std::string>(key, text.get<std::string>())) == metadata.end())
      return "no metadata \"" + key + "\"";
  return "";
}

}  // namespace conformance
