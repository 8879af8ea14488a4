// File cases, and kernel calls written by TAPIR_DUMP.
#include <tapir/io/npy.h>
#include <tapir/io/pt.h>
#include <tapir/io/safetensors.h>

#include <cstdlib>

#include "run.h"

namespace conformance {

namespace {

std::string compare_dict(const Family& family, const Json& want, const io::Value& got, const std::string& at);

/// Where a value read differs from the expected one, "" where it does not.
std::string compare_value(const Family& family, const Json& want, const io::Value& got, const std::string& at) {
  using Kind = io::Value::Kind;
  const auto wrong = [&] { return at + ": got " + got.kind_name() + ", expected " + want.dump(); };
  switch (got.kind()) {
    case Kind::Tensor: {
      if (!want.is_object() || !want.contains("tensor")) return wrong();
      std::string text = compare(got.to_tensor(), family.expected(want), Json{{"atol", 0.0}});
      return text.empty() ? text : at + ": " + text;
    }
    case Kind::None: return want.is_null() ? "" : wrong();
    case Kind::Bool: return want.is_boolean() && want == got.to_bool() ? "" : wrong();
    case Kind::Int: return want.is_number_integer() && want.dump() == got.decimal() ? "" : wrong();
    case Kind::BigInt:
      return want.is_number() &&
                     (want.dump() == got.decimal() || want.get<double>() == std::strtod(got.decimal().c_str(), nullptr))
                 ? ""
                 : wrong();
    case Kind::Float: {
      const double v = got.to_double();
      if (want.is_object() && want.contains("float")) {
        const double w = std::strtod(want["float"].get<std::string>().c_str(), nullptr);
        return v == w || (v != v && w != w) ? "" : wrong();
      }
      return want.is_number_float() && want.get<double>() == v ? "" : wrong();
    }
    case Kind::DType:
      return want.is_object() && want.contains("dtype") && want["dtype"] == std::string(name_of(got.to_dtype()))
                 ? ""
                 : wrong();
    case Kind::Text:
    case Kind::Bytes: return want.is_string() && want == got.to_text() ? "" : wrong();
    case Kind::List:
    case Kind::Tuple: {
      if (!want.is_array() || want.size() != got.size()) return wrong();
      for (size_t i = 0; i < want.size(); ++i)
        if (auto text = compare_value(family, want[i], got[int64_t(i)], at + "." + std::to_string(i)); !text.empty())
          return text;
      return "";
    }
    case Kind::Dict: return want.is_object() ? compare_dict(family, want, got, at) : wrong();
  }
  return wrong();
}

std::string compare_dict(const Family& family, const Json& want, const io::Value& got, const std::string& at) {
  if (want.size() != got.size())
    return tapir::format("{}: {} keys, expected {}", at, int64_t(got.size()), int64_t(want.size()));
  for (auto& [key, value] : want.items()) {
    const io::Value* found = got.find(key);
    if (!found) return at + ": no key \"" + key + "\"";
    if (auto text = compare_value(family, value, *found, at + "." + key); !text.empty()) return text;
  }
  return "";
}

/// Names that must share one storage.
std::string compare_sharing(const Json& groups, const io::Value& got) {
  for (const Json& group : groups) {
    const Storage* first = nullptr;
    for (const Json& name : group) {
      const io::Value* v = got.find(name.get<std::string>());
      if (!v) return "no key " + name.dump();
      const Storage* storage = v->to_tensor().impl().storage.get();
      if (!first) first = storage;
      if (storage != first) return name.dump() + " has a storage of its own";
    }
  }
  return "";
}

std::optional<io::Value> read(const std::string& kind, const std::string& path, io::Metadata& metadata) {
  if (kind == "pt") return io::load_pt(path);
  if (kind == "npy") return io::Value(io::load_npy(path));
  if (kind == "npz") return io::Value(io::load_npz(path));
  if (kind == "safetensors") return io::Value(io::load_safetensors(path, &metadata));
  return {};
}

}  // namespace

std::optional<std::string> run_file(const Family& family, const Json& json, const std::string& folder) {
  const std::string path = folder + "/" + json["file"].get<std::string>();
  io::Metadata metadata;
  std::optional<io::Value> got;
  if (json["expect"] == "error") {
    try {
      got = read(json["format"], path, metadata);
    } catch (const RuntimeError& e) {
      return "";
    }
    if (!got) return std::nullopt;
    return "expected an error: " + json.value("reason", "");
  }
  got = read(json["format"], path, metadata);
  if (!got) return std::nullopt;
  if (auto text = compare_value(family, json["value"], *got, "value"); !text.empty()) return text;
  if (json.contains("shared"))
    if (auto text = compare_sharing(json["shared"], *got); !text.empty()) return text;
  if (json.contains("metadata"))
    for (auto& [key, text] : json["metadata"].items())
      if (std::find(metadata.begin(), metadata.end(),
                    std::pair<std::string, std::string>(key, text.get<std::string>())) == metadata.end())
        return "no metadata \"" + key + "\"";
  return "";
}

}  // namespace conformance
