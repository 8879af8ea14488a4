#pragma once
#include "emulation/declare.h"

enum cudaDataType_t { EMULATED_DATA_TYPES(EMULATED_ENUMERATOR) };
