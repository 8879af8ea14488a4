// A message begins with the function that was called: "[cumsum] expected ...".
#pragma once
#include "case.h"

namespace op_cases {

/// Is the case a call of its operation, and of nothing else?
bool is_one_call(const Case& c);
/// Empty where the message begins with a function that the case names, and not with one that it calls in turn; else what is wrong. Of several
/// calls an operator, or a function of the table's own, may be at fault.
std::string wrong_name(const Case& c, const std::string& message);

}  // namespace op_cases
