#pragma once
#include "run_ops.h"

namespace conformance {

/// Runs the cases of every family. What a case throws is its failure.
class Runner {
 public:
  explicit Runner(const std::string& folder);
  /// What differed, "" for a case that passed, nothing where the name is not bound.
  std::optional<std::string> run(const Family& family, const Json& json);

 private:
  std::string folder_;
  Signatures signatures_;
};

std::optional<std::string> run_module(const Family& family, const Json& json);
std::optional<std::string> run_models(const Family& family, const Json& json);
std::optional<std::string> run_optimizer(const Family& family, const Json& json);
std::optional<std::string> run_amp(const Family& family, const Json& json, const Signatures& signatures);
std::optional<std::string> run_grad_scaler(const Family& family, const Json& json);
std::optional<std::string> run_scheduler(const Family& family, const Json& json);
/// A call that TAPIR_DUMP wrote.
std::optional<std::string> run_dump(const Family& family, const Json& json);
std::optional<std::string> run_file(const Family& family, const Json& json, const std::string& folder);

}  // namespace conformance
