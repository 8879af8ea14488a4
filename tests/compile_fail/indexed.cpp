// What x[...] refuses: only x[i] itself is written to, not a name for it. CASE 0 is right.
#include <tapir/core/tensor.h>
using namespace tapir;
// CASE 1: discards qualifiers|not viable|no viable|no match
// CASE 2: discards qualifiers|not viable|no viable|no match
// CASE 3: discards qualifiers|rvalue ref-qualifier|not viable|no viable|no matching|no match
// CASE 4: discards qualifiers|not viable|no viable|no match
#ifndef CASE
#define CASE 0
#endif

void use(Tensor& x) {
  x[0] = 1;
  x[0] = x[1];
  x[0] += x[1];
  x[{0, Slice(1, 3)}] *= 2;
  x[0].fill_(3);
  x[0][1] = 4;
  Tensor row = x[0];  // a view: what is written in place to it is written to x
  row = row.clone();  // a name for something else
  auto place = x[0];
#if CASE == 1
  place = row;
#elif CASE == 2
  place += 1;
#elif CASE == 3
  place.fill_(1);
#elif CASE == 4
  place = x[1];
#endif
  (void)place;
}
