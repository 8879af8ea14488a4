// Reads case files: <family>.jsonl with <family>.safetensors beside it.
#pragma once
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "value.h"

namespace conformance {
using Json = nlohmann::json;

class Family {
 public:
  Family(const std::string& folder, const std::string& name);
  std::string name;
  std::vector<Json> cases;
  /// A value of the table in the cases' README, its tensors as fresh copies on the device with the recorded strides.
  Value decode(const Json& json) const;
  /// The tensor that an expectation names, on the CPU.
  Tensor expected(const Json& json) const;

 private:
  const Tensor& stored(const std::string& key) const;
  std::unordered_map<std::string, Tensor> tensors_;
};

inline Device run_device = kCPU;

/// Parameter names of every operation; empty where there is no such file.
std::map<std::string, std::vector<std::vector<std::string>>> read_signatures(const std::string& folder);

/// Where got differs from the expectation beyond its tolerance, in words; empty where it does not.
std::string compare(const Tensor& got, const Tensor& want, const Json& facts);

}  // namespace conformance
