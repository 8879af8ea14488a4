#include "dtype.h"

#include <string>

#include "error.h"

namespace tapir::inline v0 {
namespace {
constexpr std::string_view kNames[kNumDTypes] = {"float32", "float64", "float16", "bfloat16", "int64",
                                                 "int32",   "int16",   "int8",    "uint8",    "bool"};
}

std::string_view name_of(DType t) { return kNames[int(t)]; }

DType dtype_from_name(std::string_view name) {
  std::string known;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (kNames[i] == name) return DType(i);
    known += i ? ", " : "";
    known += kNames[i];
  }
  fail(ErrorKind::Value, "[dtype] expected one of {}, got \"{}\"", known, name);
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (a == kBool || b == kBool) return a == kBool ? b : a;
  // What is left: two different floating types, or two different integers.
  if (is_floating(a)) return a == kFloat64 || b == kFloat64 ? kFloat64 : kFloat32;
  if (size_of(a) != size_of(b)) return size_of(a) > size_of(b) ? a : b;
  return kInt16;  // int8 and uint8
}

}  // namespace tapir::inline v0
