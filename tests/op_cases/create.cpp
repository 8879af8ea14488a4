// Factories. Their dtype and device are those of x[0], whose numbers do not matter where only its shape is used.
#include <cmath>

#include "case.h"

namespace op_cases {

static std::function<Array(const Arrays&)> filled_with(double v) {
  return [v](const Arrays& x) { return Array(x[0].shape, v); };
}

void create_cases(Table& table) {
  const auto line = [](Case& c) -> Case& { return c.of(kAll).no_gradient().on("(2,3,4) | () | (0,3)"); };
  line(CASE(zeros, zeros(x[0].shape(), like(x[0])))).expect(filled_with(0));
  line(CASE(ones, ones(x[0].shape(), like(x[0])))).expect(filled_with(1));
  line(CASE(full, full(x[0].shape(), 3, like(x[0])))).expect(filled_with(3));
  line(CASE(zeros_like, zeros_like(x[0]))).expect(filled_with(0));
  line(CASE(ones_like, ones_like(x[0]))).expect(filled_with(1));
  line(CASE(full_like, full_like(x[0], 3))).expect(filled_with(3));
  line(CASE(fill_, fill_(written(clone(x[0])), 3))).expect(filled_with(3)).TWIN(fill_, 3).differentiable = true;
  line(CASE(zero_, zero_(written(clone(x[0]))))).expect(filled_with(0)).TWIN(zero_).differentiable = true;
  const auto once = [](Case& c) -> Case& { return c.no_gradient().on("()"); };
  once(CASE(arange, arange(5, like(x[0])))).of(kNumbers).expect([](const Arrays&) { return make(5, [](const Dims& i) { return double(i[0]); }); });
  once(CASE(arange, arange(7, -2, -3, like(x[0])))).of(kNumbers & ~set_of({kUInt8})).expect([](const Arrays&) {
    return make(3, [](const Dims& i) { return 7.0 - 3 * double(i[0]); });
  });
  once(CASE(arange, arange(-1, 1.6, 0.3, like(x[0])))).expect([](const Arrays&) { return make(9, [](const Dims& i) { return -1 + 0.3 * double(i[0]); }); });
  once(CASE(linspace, linspace(-1, 2.5, 8, like(x[0])))).expect([](const Arrays&) { return make(8, [](const Dims& i) { return -1 + 0.5 * double(i[0]); }); });
  once(CASE(linspace, linspace(0, 9, 4, like(x[0])))).of(kNumbers).expect([](const Arrays&) {
    return make(4, [](const Dims& i) { return 3.0 * double(i[0]); });
  });
  once(CASE(logspace, logspace(-1, 2, 4, 2, like(x[0])))).expect([](const Arrays&) {
    return make(4, [](const Dims& i) { return std::exp2(double(i[0]) - 1); });
  });
  once(CASE(eye, eye(3, 4, like(x[0])))).of(kAll).expect([](const Arrays&) { return make({3, 4}, [](const Dims& i) { return i[0] == i[1]; }); });
  once(CASE(eye, eye(0, -1, like(x[0])))).of(kAll).EXPECT(Array(Shape{0, 0}));
}

}  // namespace op_cases
