// What TAPIR_FIELDS refuses, and how it says so: BI-189 (1 to 4), BI-190 (8), BI-197 (9), review 3 (10 to 19), review 9 (5, 9, 20 to 22).
// CASE 0 is right.
#include <tapir/nn/linear.h>

#include <any>
#include <functional>
#include <map>
#include <memory>
#include <variant>
using namespace tapir;
// CASE 1: leaves out a field of this struct
// CASE 2: leaves out a field of this struct
// CASE 3: leaves out a field of this struct
// CASE 4: leaves out a field of this struct
// CASE 5: The struct lacks its last line, TAPIR_FIELDS
// CASE 6: without TAPIR_FIELDS of its own
// CASE 7: is a reference or a raw pointer
// CASE 8: names a field twice
// CASE 9: modules are not copied: net.clone\(\), or std::move
// CASE 10: field a holds a tensor or a module that parameters\(\) and clone\(\) do not see
// CASE 11: field a holds a tensor or a module
// CASE 12: field a holds a tensor or a module
// CASE 13: field a holds a tensor or a module
// CASE 14: field a holds a tensor or a module
// CASE 15: field a holds a tensor or a module
// CASE 16: field a holds a tensor or a module
// CASE 17: field a holds a tensor or a module
// CASE 18: field a holds a tensor or a module
// CASE 19: field a holds a tensor or a module
// CASE 20: error: .*conv3
// CASE 21: error: .*conv3
// CASE 22: modules are not copied: net.clone\(\), or std::move
#ifndef CASE
#define CASE 0
#endif

struct Pair {
  int64_t n = 0;
  Parameter weight;
};
struct Cache {
  std::optional<Tensor> keys;
};
template <> inline constexpr bool tapir::nn::plain_field<Cache> = true;

#if CASE == 0
struct Net : nn::Module {  // a small plain field may be left out
  bool on;
  nn::Linear a{1, 1};
  TAPIR_FIELDS(a)
};
struct Tree {
  std::vector<Tree> children;
  std::string name;
};
struct Plain {
  std::function<Tensor(const Tensor&)> f;
  std::any any;
  std::variant<int, std::string> either;
  int numbers[3];
  std::optional<float> p = {};
  Tree tree = {};
};
struct Opaque;
struct All : nn::Module {
  std::vector<std::map<int64_t, nn::Linear>> a;
  std::shared_ptr<nn::Module> b;
  std::unique_ptr<Parameter> c;
  Plain plain;
  std::function<Tensor(const Tensor&)> f;
  std::pair<int, std::string> pair;
  std::map<int, float> numbers;
  std::vector<bool> bits;
  std::shared_ptr<Opaque> opaque;
  std::shared_ptr<const std::string> text;
  Cache cache;
  const int64_t size = 1;
  TAPIR_FIELDS(a, b, c, plain, f, pair, numbers, bits, opaque, text, cache, size)
};
void use() {
  All all;
  all.eval();
  All twin = all.clone();
}
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
#elif CASE == 10
struct Net : nn::Module {
  std::pair<nn::Linear, int> a{nn::Linear(1, 1), 1};
  TAPIR_FIELDS(a)
};
#elif CASE == 11
struct Net : nn::Module {
  std::tuple<Parameter, Parameter> a;
  TAPIR_FIELDS(a)
};
#elif CASE == 12
struct Net : nn::Module {
  std::variant<int, Parameter> a;
  TAPIR_FIELDS(a)
};
#elif CASE == 13
struct Net : nn::Module {
  std::map<double, nn::Linear> a;
  TAPIR_FIELDS(a)
};
#elif CASE == 14
struct Net : nn::Module {
  Pair a;
  TAPIR_FIELDS(a)
};
#elif CASE == 15
struct Net : nn::Module {
  std::vector<nn::Linear*> a;
  TAPIR_FIELDS(a)
};
#elif CASE == 16
struct Net : nn::Module {
  Parameter a[2];
  TAPIR_FIELDS(a)
};
#elif CASE == 17
struct Net : nn::Module {
  std::vector<std::pair<int64_t, Pair>> a;
  TAPIR_FIELDS(a)
};
#elif CASE == 18
struct Net : nn::Module {
  std::shared_ptr<const Parameter> a;
  TAPIR_FIELDS(a)
};
#elif CASE == 19
struct Net : nn::Module {
  std::weak_ptr<nn::Module> a;
  TAPIR_FIELDS(a)
};
#elif CASE == 20  // a name that is none
struct Net : nn::Module {
  nn::Linear conv1{1, 1}, conv2{1, 1}, fc{1, 1};
  Tensor forward(const Tensor& x) { return fc(conv2(conv1(x))); }
  TAPIR_FIELDS(conv1, conv3, fc)
};
void use() {
  Net net;
  net.to(kCPU).eval();
  Net twin = net.clone();
  net(Tensor());
}
#elif CASE == 21
template <class T> struct Net : nn::Module {
  nn::Linear conv1{1, 1}, conv2{1, 1}, fc{1, 1};
  Tensor forward(const Tensor& x) { return fc(conv2(conv1(x))); }
  TAPIR_FIELDS(conv1, conv3, fc)
};
Net<int> net;
#elif CASE == 22
struct Net : nn::Module {
  nn::Linear a{1, 1};
  TAPIR_FIELDS(a)
};
void use(Net& net) {
  Net twin{};
  twin = net;
}
#endif
