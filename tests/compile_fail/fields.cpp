// What TAPIR_FIELDS refuses: BI-189 (1 to 4), BI-190 (8), BI-197 (9). CASE 0 is right.
#include <tapir/nn/linear.h>
using namespace tapir;
// CASE 1: leaves out a field of this struct
// CASE 2: leaves out a field of this struct
// CASE 3: leaves out a field of this struct
// CASE 4: leaves out a field of this struct
// CASE 5: abstract|pure
// CASE 6: without TAPIR_FIELDS of its own
// CASE 7: is a reference or a raw pointer
// CASE 8: names a field twice
// CASE 9: deleted
#ifndef CASE
#define CASE 0
#endif

#if CASE == 0  // a small plain field may be left out
struct Net : nn::Module {
  bool on;
  nn::Linear a{1, 1};
  TAPIR_FIELDS(a)
};
#elif CASE == 1  // a module in the middle
struct Net : nn::Module {
  nn::Linear a{1, 1}, b{1, 1}, c{1, 1};
  TAPIR_FIELDS(a, c)
};
#elif CASE == 2  // a tensor at the end
struct Net : nn::Module {
  nn::Linear a{1, 1};
  Parameter scale;
  TAPIR_FIELDS(a)
};
#elif CASE == 3  // a container
struct Net : nn::Module {
  nn::Linear a{1, 1};
  std::vector<nn::Linear> more;
  TAPIR_FIELDS(a)
};
#elif CASE == 4  // the fields of the base
struct Base : nn::Module {
  nn::Linear a{1, 1};
  TAPIR_FIELDS(a)
};
struct Net : Base {
  nn::Linear b{1, 1};
  TAPIR_FIELDS(b)
};
#elif CASE == 5  // the whole line
struct Net : nn::Module {
  nn::Linear a{1, 1};
};
void use() { Net net; }
#elif CASE == 6  // the line of a struct that is a field
struct Wide : nn::Linear {
  using Linear::Linear;
  Parameter more;
};
struct Net : nn::Module {
  Wide a{1, 1};
  TAPIR_FIELDS(a)
};
#elif CASE == 7
struct Net : nn::Module {
  nn::Linear* a;
  TAPIR_FIELDS(a)
};
#elif CASE == 8
struct Net : nn::Module {
  nn::Linear a{1, 1};
  TAPIR_FIELDS(a, a)
};
#elif CASE == 9
nn::Linear twin(const nn::Linear& a) { return a; }
#endif
