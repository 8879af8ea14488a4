// Numbers into tensors of any layout and back, by plain loops over memory: none of the operations under test has a part in it.
#pragma once
#include "case.h"

namespace op_cases {

/// f(T()) for the type of that dtype.
template <class F> auto with_type(DType t, F&& f) {
  switch (t) {
    case kFloat32: return f(float());
    case kFloat64: return f(double());
    case kFloat16: return f(Half());
    case kBFloat16: return f(BFloat16());
    case kInt64: return f(int64_t());
    case kInt32: return f(int32_t());
    case kInt16: return f(int16_t());
    case kInt8: return f(int8_t());
    case kUInt8: return f(uint8_t());
    default: return f(bool());
  }
}

/// Step: elements apart everywhere, from an offset. Windows: rows that overlap by half, as unfold makes them.
enum class Layout { Contiguous, Reversed, Rotated, Step, ExpandFirst, ExpandLast, Windows };
const char* name_of(Layout layout);

/// Where the elements of a shape lie; none where the layout means nothing for it.
struct Geometry {
  Strides strides;
  int64_t offset = 0, extent = 0;  // of the storage, in elements
};
std::optional<Geometry> geometry(Layout layout, const Shape& shape);

/// A layout for each input.
struct Variant {
  std::string name;
  std::vector<Layout> layouts;
};
std::vector<Variant> variants(const std::vector<Shape>& shapes, bool expands);

/// The numbers of input k of a case, as its dtype holds them.
Array fill(const Values& values, const Shape& shape, DType dtype, size_t k);
DType dtype_of_input(const Values& values, DType dtype);
/// NaN and infinities put among floating-point numbers.
void spoil(Array& a, size_t k);

struct Placed {
  Tensor base;   // the storage as one dimension
  Tensor view;   // the input
  Array values;  // its numbers: elements that share memory have the first one's
  Geometry geometry;
};
Placed place(const Array& values, DType dtype, Layout layout, Device device);
/// t's numbers, on any device.
Array read(const Tensor& t);
/// The memory of a tensor made by place(), to see whether it changes.
std::vector<char> bytes_of(const Tensor& base);
/// The number that is stored in an integer dtype, wrapped around as C does.
double wrapped(double v, DType dtype);

}  // namespace op_cases
