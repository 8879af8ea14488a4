// Turns the lists of library_lists.h into declarations.
#pragma once
#include "library_lists.h"

#define EMULATED_ENUMERATOR(name, value) name = value,
#define EMULATED_ENUM(type, list) enum type { list(EMULATED_ENUMERATOR) };
#define EMULATED_FUNCTION(result, name, parameters) result name parameters;
