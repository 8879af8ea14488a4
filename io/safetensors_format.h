#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "../core/dims.h"
#include "../core/dtype.h"
#include "safetensors.h"

// What the reader and the writer of safetensors share.
namespace tapir::inline v0::io::safetensors {

inline constexpr int64_t kMaxHeader = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__", kSumsKey = "tapir.crc32",
                                  kVersionKey = "tapir.version";

struct DTypeName {
  std::string_view name;
  int bits;
  int dtype;  // int(DType), or -1: the format has it, Tapir does not
};
/// In the format's order, that of the reference writer reversed.
inline constexpr DTypeName kDTypes[] = {
    {"BOOL", 8, int(kBool)},
    {"F4", 4, -1},
    {"F6_E2M3", 6, -1},
    {"F6_E3M2", 6, -1},
    {"U8", 8, int(kUInt8)},
    {"I8", 8, int(kInt8)},
    {"F8_E5M2", 8, -1},
    {"F8_E4M3", 8, -1},
    {"F8_E8M0", 8, -1},
    {"I16", 16, int(kInt16)},
    {"U16", 16, -1},
    {"F16", 16, int(kFloat16)},
    {"BF16", 16, int(kBFloat16)},
    {"I32", 32, int(kInt32)},
    {"U32", 32, -1},
    {"F32", 32, int(kFloat32)},
    {"C64", 64, -1},
    {"F64", 64, int(kFloat64)},
    {"I64", 64, int(kInt64)},
    {"U64", 64, -1},
};

/// CRC-32 of a tensor: its name, dtype, shape and elements, so that no flipped bit of the header goes unseen.
uint32_t tensor_sum(std::string_view name, DType dtype, const Shape& shape, const void* data, int64_t bytes);
/// CRC-32 of every metadata entry but the sums themselves.
uint32_t metadata_sum(const Metadata& metadata);

}  // namespace tapir::inline v0::io::safetensors
