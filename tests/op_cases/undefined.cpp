// An undefined tensor in the place of each input: the function that was called says so, and which argument it is.
#include "modes.h"
#include "name.h"
#include "place.h"

namespace op_cases {

static std::string check_call(const Case& c, const std::function<void()>& f) {
  try {
    f();
  } catch (const ValueError& e) {
    const std::string message = e.what();
    if (std::string wrong = wrong_name(c, message); !wrong.empty()) return wrong;
    if (is_one_call(c) && message.find("defined") == message.npos && message.find("none") == message.npos) return "not a word of what is absent: " + message;
    return "";
  } catch (const std::exception& e) {
    return std::string("no ValueError: ") + e.what();
  }
  return "";  // it may be absent
}

void check_undefined(const Case& c, const Settings& s, Report& report) {
  DType dtype = kFloat32;
  while (!contains(c.dtypes, dtype)) dtype = DType(int(dtype) + 1);
  const std::vector<Shape>& shapes = c.shapes[0];
  for (size_t absent = 0; absent < shapes.size(); ++absent) {
    List x;
    for (size_t k = 0; k < shapes.size(); ++k) {
      const DType t = dtype_of_input(c.values_of(k), dtype);
      x.push_back(k == absent ? Tensor() : place(fill(c.values_of(k), shapes[k], t, k), t, Layout::Contiguous, s.device).view);
    }
    const std::string what = "input " + std::to_string(absent) + " undefined";
    report.add(c, what, check_call(c, [&] { c.call(x); }));
    if (c.twin_call)
      report.add(c, what + ", in place", check_call(c, [&] {
                   Tensor self = x[0];
                   c.twin_call(self, x);
                 }));
  }
}

}  // namespace op_cases
