// What a module may not return to DistributedDataParallel, which must see all tensors of the result. CASE 0 is right.
#include <tapir/distributed/ddp.h>
#include <tapir/nn/linear.h>

#include <memory>
#include <string>
using namespace tapir;
// CASE 1: the result of forward holds tensors that are not seen
// CASE 2: the result of forward holds tensors that are not seen
// CASE 3: the result of forward holds tensors that are not seen
#ifndef CASE
#define CASE 0
#endif

struct Pair {
  Tensor a, b;
};
#if CASE == 0
struct Result {
  Pair pair;
  std::vector<Tensor> more;
  std::string text;
  int64_t steps = 0;
};
#elif CASE == 1
struct Result {
  std::shared_ptr<Tensor> shared;
};
#elif CASE == 2  // a base
struct Result : Pair {
  Tensor c;
};
#elif CASE == 3  // more than 8 fields
struct Result {
  Tensor a, b, c, d, e, f, g, h, i;
};
#endif
struct Net : nn::Module {
  nn::Linear fc{1, 1};
  Result forward(const Tensor&) { return {}; }
  TAPIR_FIELDS(fc)
};
void use(Net& net) {
  distributed::DistributedDataParallel ddp(net);
  ddp(Tensor());
}
