#include "case.h"

#include <tapir/io/safetensors.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace conformance {

Family::Family(const std::string& folder, const std::string& family) : name(family) {
  const std::string tensors = folder + "/" + family + ".safetensors";
  if (std::filesystem::exists(tensors))
    for (auto& [key, t] : io::load_safetensors(tensors)) tensors_.emplace(key, t);
  std::ifstream lines(folder + "/" + family + ".jsonl");
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) cases.push_back(Json::parse(line));
}

const Tensor& Family::stored(const std::string& key) const {
  auto it = tensors_.find(key);
  if (it == tensors_.end()) throw Refused("the case names a tensor that is not in the file: " + key);
  return it->second;
}

static Tensor view_of(const Tensor& flat, const Json& json) {
  if (!json.contains("strides")) return flat;
  return as_strided(flat, json.at("shape").get<std::vector<int64_t>>(), json.at("strides").get<std::vector<int64_t>>(),
                    flat.storage_offset() + json.value("offset", int64_t(0)));
}

Value Family::decode(const Json& json) const {
  using Kind = Value::Kind;
  Value v;
  if (json.is_boolean()) v.kind = Kind::Bool, v.boolean = json.get<bool>();
  else if (json.is_number_integer()) v.kind = Kind::Int, v.integer = json.get<int64_t>();
  else if (json.is_number()) v.kind = Kind::Float, v.number = json.get<double>();
  else if (json.is_string()) v.kind = Kind::String, v.text = json.get<std::string>();
  else if (json.is_array()) {
    v.kind = Kind::List;
    for (auto& item : json) v.list.push_back(decode(item));
  } else if (json.contains("tensor")) {
    v.kind = Kind::Tensor;
    v.tensor = view_of(stored(json["tensor"]).clone().to(run_device), json);
  } else if (json.contains("float")) {
    const std::string text = json["float"];
    v.kind = Kind::Float, v.number = text == "nan" ? NAN : text == "inf" ? INFINITY : -INFINITY;
  } else if (json.contains("dtype")) v.kind = Kind::DType, v.dtype = dtype_from_name(json["dtype"].get<std::string>());
  else if (json.contains("memory_format")) v.kind = Kind::Format, v.text = json["memory_format"].get<std::string>();
  else if (json.contains("slice")) {
    v.kind = Kind::Slice;
    for (auto& item : json["slice"]) v.list.push_back(decode(item));
  } else if (json.contains("ellipsis")) v.kind = Kind::Ellipsis;
  else if (!json.is_null()) throw Refused("a value of an unknown kind: " + json.dump());
  return v;
}

Tensor Family::expected(const Json& json) const { return view_of(stored(json.at("tensor")), json); }

std::map<std::string, std::vector<std::vector<std::string>>> read_signatures(const std::string& folder) {
  std::ifstream in(folder + "/signatures.json");
  if (!in) return {};
  return Json::parse(in).get<std::map<std::string, std::vector<std::vector<std::string>>>>();
}

static std::pair<double, double> tolerance_of(DType t) {
  switch (t) {
    case kFloat64: return {1e-9, 1e-9};
    case kFloat32: return {1e-5, 1e-5};
    case kFloat16: return {2e-3, 2e-3};
    case kBFloat16: return {1.6e-2, 1.6e-2};
    default: return {0, 0};
  }
}

std::string compare(const Tensor& got, const Tensor& want, const Json& facts) {
  if (!got.defined()) return "undefined, expected " + tapir::format("{}", want);
  if (got.dtype() != want.dtype()) return tapir::format("dtype {}, expected {}", got.dtype(), want.dtype());
  if (!(got.shape() == want.shape())) return tapir::format("shape {}, expected {}", got.shape(), want.shape());
  if (!is_floating(want.dtype())) {
    const auto a = got.cpu().to_vector<int64_t>(), b = want.to_vector<int64_t>();
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i]) return tapir::format("element {}: {}, expected {}", int64_t(i), a[i], b[i]);
    return "";
  }
  const auto a = got.detach().cpu().to_vector<double>(), b = want.to_vector<double>();
  double largest = 0;
  for (double x : b)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  auto [rtol, atol] = tolerance_of(want.dtype());
  atol *= largest == 0 ? 0.1 : largest;
  if (facts.contains("atol")) atol = facts["atol"].get<double>();
  double worst = 0;
  std::string text;
  for (size_t i = 0; i < a.size(); ++i) {
    if ((std::isnan(a[i]) && std::isnan(b[i])) || a[i] == b[i]) continue;
    const double error = std::abs(a[i] - b[i]), bound = atol + rtol * std::abs(b[i]);
    if (error <= bound) continue;
    const double excess = std::isfinite(error) && bound > 0 ? error / bound : INFINITY;
    if (excess < worst) continue;
    worst = excess;
    text = tapir::format("element {}: {}, expected {}, off by {}, bound {}", int64_t(i), a[i], b[i], error, bound);
  }
  return text;
}

}  // namespace conformance
