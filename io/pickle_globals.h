#pragma once
#include <cstdint>
#include <string_view>

#include "../core/dtype.h"

// The names that a pickle may mention; nothing else is looked up anywhere.
namespace tapir::inline v0::io::pickle {

constexpr int kMaxDepth = 200;  // of objects within one another

enum class Global : uint8_t {
  OrderedDict,
  Counter,
  Set,
  Size,
  Device,
  Layout,
  Encode,
  ByteArray,
  RebuildTensor,
  RebuildTensorV2,
  RebuildTensorV3,
  RebuildParameter,
  RebuildFromType,
  TensorType,
  UntypedStorage,
  Storage,
  DType,
  LackingStorage,
  LackingDType,
};
struct GlobalName {
  std::string_view module, name;
  Global global;
  DType dtype = kFloat32;
};
inline constexpr GlobalName kGlobals[] = {
    {"collections", "OrderedDict", Global::OrderedDict},
    {"collections", "Counter", Global::Counter},
    {"__builtin__", "set", Global::Set},
    {"builtins", "set", Global::Set},
    {"__builtin__", "frozenset", Global::Set},
    {"builtins", "frozenset", Global::Set},
    {"__builtin__", "bytearray", Global::ByteArray},
    {"builtins", "bytearray", Global::ByteArray},
    {"__builtin__", "bytes", Global::ByteArray},  // of no bytes: what protocol 2 writes for b""
    {"_codecs", "encode", Global::Encode},
    {"torch", "Size", Global::Size},
    {"torch", "device", Global::Device},
    {"torch.serialization", "_get_layout", Global::Layout},
    {"torch._utils", "_rebuild_tensor", Global::RebuildTensor},
    {"torch._utils", "_rebuild_tensor_v2", Global::RebuildTensorV2},
    {"torch._utils", "_rebuild_tensor_v3", Global::RebuildTensorV3},
    {"torch._utils", "_rebuild_parameter", Global::RebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", Global::RebuildParameter},
    {"torch._tensor", "_rebuild_from_type_v2", Global::RebuildFromType},
    {"torch", "Tensor", Global::TensorType},
    {"torch.nn.parameter", "Parameter", Global::TensorType},
    {"torch.storage", "UntypedStorage", Global::UntypedStorage},
    {"torch", "UntypedStorage", Global::UntypedStorage},
    {"torch", "FloatStorage", Global::Storage, kFloat32},
    {"torch", "DoubleStorage", Global::Storage, kFloat64},
    {"torch", "HalfStorage", Global::Storage, kFloat16},
    {"torch", "BFloat16Storage", Global::Storage, kBFloat16},
    {"torch", "LongStorage", Global::Storage, kInt64},
    {"torch", "IntStorage", Global::Storage, kInt32},
    {"torch", "ShortStorage", Global::Storage, kInt16},
    {"torch", "CharStorage", Global::Storage, kInt8},
    {"torch", "ByteStorage", Global::Storage, kUInt8},
    {"torch", "BoolStorage", Global::Storage, kBool},
    {"torch", "ComplexFloatStorage", Global::LackingStorage},
    {"torch", "ComplexDoubleStorage", Global::LackingStorage},
    {"torch", "QInt8Storage", Global::LackingStorage},
    {"torch", "QUInt8Storage", Global::LackingStorage},
    {"torch", "QInt32Storage", Global::LackingStorage},
    {"torch", "float32", Global::DType, kFloat32},
    {"torch", "float64", Global::DType, kFloat64},
    {"torch", "float16", Global::DType, kFloat16},
    {"torch", "bfloat16", Global::DType, kBFloat16},
    {"torch", "int64", Global::DType, kInt64},
    {"torch", "int32", Global::DType, kInt32},
    {"torch", "int16", Global::DType, kInt16},
    {"torch", "int8", Global::DType, kInt8},
    {"torch", "uint8", Global::DType, kUInt8},
    {"torch", "bool", Global::DType, kBool},
    {"torch", "uint16", Global::LackingDType},
    {"torch", "uint32", Global::LackingDType},
    {"torch", "uint64", Global::LackingDType},
    {"torch", "complex32", Global::LackingDType},
    {"torch", "complex64", Global::LackingDType},
    {"torch", "complex128", Global::LackingDType},
    {"torch", "float8_e4m3fn", Global::LackingDType},
    {"torch", "float8_e5m2", Global::LackingDType},
    {"torch", "float8_e4m3fnuz", Global::LackingDType},
    {"torch", "float8_e5m2fnuz", Global::LackingDType},
    {"torch", "float8_e8m0fnu", Global::LackingDType},
};

}  // namespace tapir::inline v0::io::pickle
