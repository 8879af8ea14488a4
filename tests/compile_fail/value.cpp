// An entry of a dict that no file can hold is refused by itself. CASE 0 is right.
#include <tapir/io/value.h>
using namespace tapir;
// CASE 1: the value under this key is no Value
// CASE 2: this key of a dict is no Value
#ifndef CASE
#define CASE 0
#endif

struct Other {};

io::Value f(const Tensor& x) {
#if CASE == 1
  return io::Value::dict({{"x", x[0]}, {"other", Other()}});
#elif CASE == 2
  return io::Value::dict({{"x", x[0]}, {Other(), 1}});
#else
  return io::Value::dict({{"x", x[0]}, {"number", 1}});
#endif
}
