// Values against the reference, for every dtype, set of shapes and layout; in-place twins against the op.
#include <cmath>
#include <limits>

#include "modes.h"
#include "place.h"

namespace op_cases {

static double epsilon(DType t) { return t == kFloat64 ? 0x1p-52 : t == kFloat32 ? 0x1p-23 : t == kFloat16 ? 0x1p-10 : t == kBFloat16 ? 0x1p-7 : 0; }
static double smallest(DType t) { return t == kFloat16 ? 0x1p-24 : t == kFloat64 ? 0x1p-1022 : 0x1p-126; }
static double largest(DType t) { return t == kFloat16 ? 65504 : t == kFloat64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max(); }

static DType expected_dtype(Gives gives, DType t) {
  switch (gives) {
    case Gives::Floats: return is_floating(t) ? t : kFloat32;
    case Gives::Sums: return is_floating(t) ? t : kInt64;
    case Gives::Bool: return kBool;
    case Gives::Truth: return t == kUInt8 ? kUInt8 : kBool;
    case Gives::Int64: return kInt64;
    default: return t;
  }
}

static std::string number(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", v);
  return text;
}

/// |got - want| <= ulps epsilon (|want| + the mean of all |want|); integers are equal.
static std::string differs(const Array& want, const Array& got, DType dtype, double ulps) {
  if (!(want.shape == got.shape)) return "expected shape " + want.shape.str() + ", got " + got.shape.str();
  if (want.v.size() != got.v.size()) return "the reference has the wrong number of elements";
  double sum = 0, count = 0;
  for (double w : want.v)
    if (std::isfinite(w)) sum += std::abs(w), ++count;
  const double mean = count ? sum / count : 0;
  for (size_t i = 0; i < want.v.size(); ++i) {
    const double w = is_floating(dtype) ? want.v[i] : wrapped(want.v[i], dtype), g = got.v[i];
    if (w == g || (std::isnan(w) && std::isnan(g))) continue;
    if (is_floating(dtype)) {
      if (std::isinf(g) && std::abs(w) > largest(dtype) * (1 - ulps * epsilon(dtype)) && (w > 0) == (g > 0)) continue;
      if (std::isfinite(w) && std::abs(g - w) <= ulps * epsilon(dtype) * (std::abs(w) + mean) + smallest(dtype)) continue;
    }
    return "element " + std::to_string(i) + ": expected " + number(w) + ", got " + number(g);
  }
  return "";
}

static List call(const Case& c, const List& x) {
  manual_seed(7);
  return c.call(x);
}

/// The results from a reference: the line's own, or the op on contiguous float64 (on the same dtype for random numbers).
static Arrays wanted(const Case& c, const std::vector<Placed>& inputs, DType dtype) {
  Arrays values, out;
  for (const Placed& p : inputs) values.push_back(p.values);
  if (c.reference) return c.reference(values);
  List x;
  for (size_t k = 0; k < inputs.size(); ++k)
    x.push_back(place(values[k], dtype_of_input(c.values_of(k), c.property ? dtype : kFloat64), Layout::Contiguous, kCPU).view);
  for (const Tensor& y : call(c, x)) out.push_back(read(y));
  return out;
}

static std::vector<Placed> place_all(const Case& c, const std::vector<Shape>& shapes, DType dtype, const Variant& v, bool spoiled, Device device) {
  std::vector<Placed> inputs;
  for (size_t k = 0; k < shapes.size(); ++k) {
    Array a = fill(c.values_of(k), shapes[k], dtype, k);
    const DType t = dtype_of_input(c.values_of(k), dtype);
    if (spoiled && is_floating(t)) spoil(a, k);
    inputs.push_back(place(a, t, v.layouts[k], device));
  }
  return inputs;
}
static List views_of(const std::vector<Placed>& inputs) {
  List x;
  for (const Placed& p : inputs) x.push_back(p.view);
  return x;
}

static std::string check_sharing(const Case& c, const List& x, const List& y) {
  for (const Tensor& t : y) {
    bool shared = false;
    for (const Tensor& i : x) shared |= t.numel() > 0 && t.impl().storage->data == i.impl().storage->data;
    if (shared && c.shares == Shares::Never) return "the result shares memory with an input";
    if (!shared && t.numel() > 0 && c.shares == Shares::Always) return "expected a view of the input, got a copy";
  }
  return "";
}

static std::string check_one(const Case& c, const std::vector<Placed>& inputs, DType dtype) {
  const List x = views_of(inputs);
  std::vector<std::vector<char>> before;
  for (const Placed& p : inputs) before.push_back(bytes_of(p.base));
  const List y = call(c, x);
  for (size_t k = 0; k < inputs.size() && !c.mutates; ++k)
    if (bytes_of(inputs[k].base) != before[k]) return "input " + std::to_string(k) + " was written";
  if (std::string text = check_sharing(c, x, y); !text.empty()) return text;
  if (c.result != Gives::Other && y[0].dtype() != expected_dtype(c.result, dtype))
    return "expected " + std::string(name_of(expected_dtype(c.result, dtype))) + ", got " + std::string(name_of(y[0].dtype()));
  if (c.property)
    if (std::string text = c.property(x, y[0]); !text.empty()) return text;
  const Arrays want = wanted(c, inputs, dtype);
  if (want.size() != y.size()) return "expected " + std::to_string(want.size()) + " results, got " + std::to_string(y.size());
  for (size_t k = 0; k < y.size(); ++k)
    if (std::string text = differs(want[k], read(y[k]), y[k].dtype(), c.ulps); !text.empty())
      return (y.size() > 1 ? "result " + std::to_string(k) + ", " : "") + text;
  return "";
}

void check_values(const Case& c, const Settings& s, Report& report) {
  for (const std::vector<Shape>& shapes : c.shapes)
    for (int t = 0; t < kNumDTypes; ++t) {
      const DType dtype = DType(t);
      if (!contains(c.dtypes, dtype)) continue;
      for (const Variant& v : variants(shapes, c.expands))
        for (bool spoiled : {false, true}) {
          if (spoiled && (!c.nonfinite || !is_floating(dtype))) continue;
          const std::string what = text_of(shapes) + " " + std::string(name_of(dtype)) + " " + v.name + (spoiled ? " nonfinite" : "");
          report.at(c, what);
          report.add(c, what, outcome([&] { return check_one(c, place_all(c, shapes, dtype, v, spoiled, s.device), dtype); }));
        }
    }
}

/// The memory around the elements of self is as it was.
static std::string check_around(const Placed& self, const std::vector<char>& before) {
  const std::vector<char> after = bytes_of(self.base);
  std::vector<bool> inside(size_t(self.base.numel()));
  Dims index = Dims::filled(self.values.shape.size(), 0);
  if (!self.values.v.empty()) do {
      int64_t at = self.geometry.offset;
      for (int64_t d = 0; d < index.size(); ++d) at += index[d] * self.geometry.strides[d];
      inside[size_t(at)] = true;
    } while (next(index, self.values.shape));
  const size_t size = size_t(size_of(self.base.dtype()));
  for (size_t i = 0; i < after.size(); ++i)
    if (!inside[i / size] && after[i] != before[i]) return "memory beside the view was written";
  return "";
}

static std::string must_refuse(const Case& c, const std::vector<Placed>& inputs, const char* why) {
  List x = views_of(inputs);
  Tensor self = x[0];
  const std::vector<char> before = bytes_of(inputs[0].base);
  try {
    manual_seed(7);
    c.twin_call(self, x);
  } catch (const ValueError&) {
    return bytes_of(inputs[0].base) == before ? "" : "a refused call has written";
  }
  return std::string("expected a ValueError: ") + why;
}

/// The twin gives what the op gives, in self's dtype; where it adds elsewhere, what the reference gives.
static std::string check_inplace(const Case& c, const std::vector<Placed>& inputs) {
  List x = views_of(inputs);
  Tensor self = x[0];
  const Tensor y = call(c, x)[0];
  const bool by_reference = c.adds_elsewhere && y.dtype() == self.dtype();
  const Array want = by_reference ? wanted(c, inputs, y.dtype())[0] : read(y);
  if (!c.reshapes && !(y.shape() == self.shape())) return must_refuse(c, inputs, "the result has another shape than self");
  if (is_floating(y.dtype()) && !is_floating(self.dtype())) return must_refuse(c, inputs, "a float does not go into integers");
  const std::vector<char> before = bytes_of(inputs[0].base);
  const uint32_t version = self.version();
  manual_seed(7);
  if (c.twin_call(self, x) != &self) return "the twin does not return self";
  if (bytes_of(inputs[0].base) != before && self.version() == version) return "the version has not moved";
  if (std::string text = check_around(inputs[0], before); !text.empty()) return text;
  if (c.reshapes && bytes_of(inputs[0].base) != before) return "memory was written";
  return differs(want, read(self), self.dtype(), by_reference ? c.ulps : y.dtype() == self.dtype() ? 0 : 1);
}

void check_twin(const Case& c, const Settings& s, Report& report) {
  const auto add = [&](const std::vector<Shape>& shapes, DType t, const std::string& what, const std::function<std::string()>& f) {
    const std::string whole = c.twin_name + " " + text_of(shapes) + " " + std::string(name_of(t)) + " " + what;
    report.at(c, whole);
    report.add(c, whole, outcome(f));
  };
  for (const std::vector<Shape>& shapes : c.shapes)
    for (int i = 0; i < kNumDTypes; ++i) {
      const DType t = DType(i);
      if (!contains(c.dtypes, t)) continue;
      for (const Variant& v : variants(shapes, c.expands)) {
        const auto inputs = [&] { return place_all(c, shapes, t, v, false, s.device); };
        const bool overlaps = may_overlap(shapes[0], geometry(v.layouts[0], shapes[0])->strides);
        add(shapes, t, v.name, [&] { return overlaps && !c.reshapes ? must_refuse(c, inputs(), "self is expanded") : check_inplace(c, inputs()); });
      }
    }
  // A float does not go into an integer tensor, where the op makes one.
  if (c.shapes[0].size() > 1 && contains(c.dtypes, kInt32) && !c.values_of(1).dtype && c.result != Gives::Bool)
    add(c.shapes[0], kInt32, "with float32", [&] {
      std::vector<Placed> inputs = place_all(c, c.shapes[0], kInt32, variants(c.shapes[0], false)[0], false, s.device);
      inputs[1] = place(fill(c.values_of(1), c.shapes[0][1], kFloat32, 1), kFloat32, Layout::Contiguous, s.device);
      try {
        if (!is_floating(call(c, views_of(inputs))[0].dtype())) return std::string();
      } catch (const ValueError&) {  // then the twin refuses it too
      }
      return must_refuse(c, inputs, "float32 does not go into int32");
    });
}

}  // namespace op_cases
