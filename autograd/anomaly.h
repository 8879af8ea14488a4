#pragma once
#include <string>

#include "node.h"

namespace tapir::inline v0 {

/// Where an operation was called: addresses only, and the modules around it. Turned into text when a report needs it.
CallSite* make_call_site();
void free_call_site(CallSite* site);
/// " (called at net.cpp:12 in main; in module Net > Linear)", as far as it is known; empty for null.
std::string describe(const CallSite* site);

}  // namespace tapir::inline v0
