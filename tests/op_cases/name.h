// A message begins with the function that was called: "[cumsum] expected ...".
#pragma once
#include "case.h"

namespace op_cases {

/// Empty where the message begins with a function that the case names (of several calls, with any of them), and not with one that those
/// call in turn; else what is wrong.
std::string wrong_name(const Case& c, const std::string& message);

}  // namespace op_cases
