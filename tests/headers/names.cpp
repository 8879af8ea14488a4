// Review 10: a program with names of its own that Tapir has, or had, too. -DFIRST and -DLAST set all standard headers before or behind
// Tapir's.
#ifdef FIRST
#include "standard.h"
#endif
#include <tapir/tapir.h>
#ifdef LAST
#include "standard.h"
#endif

using namespace tapir;

// At global scope: names that are Tapir's namespaces too are then called with ::.
using V = double;
struct Net : nn::Module {
  nn::Linear fc;
  std::vector<nn::Linear> blocks;
  std::string name = "net";
  Net() : fc(4, 2) { blocks.emplace_back(2, 2); }
  Tensor forward(const Tensor& x) { return blocks[0](relu(fc(x))); }
  TAPIR_FIELDS(fc, blocks, name)
};
std::string format(Net& net) { return net.str(); }
data::TensorDataset<2> data() { return data::TensorDataset(ones({4, 4}), zeros({4}, {.dtype = kInt64})); }
double train(Net& net) {
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  data::DataLoader loader(::data(), {.batch_size = 2});
  V sum = 0;
  for (auto& [x, y] : loader) {
    opt.zero_grad();
    const Tensor loss = cross_entropy(net(x), y);
    loss.backward();
    opt.step();
    sum += loss.item<double>();
  }
  return sum;
}
double test(Net& net) { return net(::data().get(0)[0]).sum().item<double>(); }
#if !defined FIRST && !defined LAST && defined __STRICT_ANSI__
double y0 = 1;  // with <math.h> a function, and to GNU dialects always: tapir.h brings no <math.h>
#endif

// In a namespace of the program's own they are called as they are.
namespace program {
struct V {
  int train = 0, test = 0, data = 0, y0 = 0;
};
int train(const V& v) { return v.train; }
int data = 1, y0 = 2;
struct test {
  int value = 0;
};
int run() {
  const train::Accuracy accuracy;  // before :: a name is that of a namespace or a type
  return train(V{}) + test{}.value + data + y0;
}
}  // namespace program

int main() {
  Net net;
  check(!format(net).empty() && ::train(net) > 0 && test(net) < 1e9, "[{}] expected numbers, got {}", net.name, "none");
  const auto data = data::TensorDataset(ones({4, 2}));  // a variable beside the namespace
  int train = 0, test = 1, y0 = 2, V = int(data.size());
  const train::Accuracy accuracy;
  return train + test + y0 + V + program::run() > 0 ? 0 : 1;
}
