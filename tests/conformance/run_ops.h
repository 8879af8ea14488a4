#pragma once
#include "case.h"
#include "ops.h"

namespace conformance {
using Signatures = std::map<std::string, std::vector<std::vector<std::string>>>;
Args decode_args(const Family& family, const Json& json, const Signatures& signatures);
/// What differed, "" for a case that passed, nothing where the name is not bound.
std::optional<std::string> run_op(const Family& family, const Json& json, const Signatures& signatures);
}  // namespace conformance
