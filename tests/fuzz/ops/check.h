// What must hold for a call.
#pragma once
#include <optional>

#include "run.h"

namespace ops_fuzz {

/// What a call is compared with; the rest is always looked at.
struct Plan {
  bool contiguous = true, compiled = true, reference = true, gradient = true, backward = true;
  std::optional<Device> device = {};
};

struct Counts {
  int64_t errors = 0, unclear = 0;  // ValueErrors; of these, those whose text is not is_clear()
  char unclear_text[200] = "";      // the first
  int64_t calls = 0, results = 0, contiguous = 0, compiled = 0, device = 0, references = 0, gradients = 0, backward = 0;
};

struct Finding {
  std::string check;  // which one it fails
  std::string message;
};

/// Does the text name the operation, what was expected and what came?
bool is_clear(const std::string& message);

/// Runs the call and the comparisons of the plan; the first that fails. Afterwards no memory is held that was not before.
std::optional<Finding> examine(const Call& call, const Plan& plan, Counts& counts);

// The comparisons with another way to get the result (compare.cpp, gradient.cpp); an empty text: they agree, or there is nothing to compare.
std::string beside_contiguous(const Call& call, const Outcome& eager);
std::string beside_compiled(const Call& call, bool& compiled);
std::string beside_device(const Call& call, const Outcome& eager, Device device);
std::string beside_reference(const Call& call, const Outcome& eager, bool& compared);
std::string beside_differences(const Call& call, bool& compared);
/// Runs backward: what is wrong with its end or its gradients.
std::string after_backward(const Built& built, const Outcome& eager, bool& ran);

/// Every input has memory of its own, which no other one sees.
bool all_own(const Call& call);

}  // namespace ops_fuzz
