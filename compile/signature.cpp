#include "signature.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "../core/cuda.h"
#include "../core/denormals.h"
#include "../ops/autocast.h"
#include "record/aliases.h"

namespace tapir::inline v0::detail {
namespace {

// The words of an argument: kind, identity, sizes, strides; of one that is undefined -1. Then modes, the number of bytes and the bytes.
constexpr int kRequiresGrad = 32, kInference = 33, kHasGradient = 34, kReadOnly = 35, kRank = 40;
constexpr int64_t kGrad = 1, kInferenceMode = 2;

/// An argument in a key.
struct Part {
  const int64_t* words;
  int64_t rank() const { return words[0] == -1 ? 0 : words[0] >> kRank; }
  size_t size() const { return words[0] == -1 ? 1 : 2 + 2 * size_t(rank()); }
  bool is(int flag) const { return words[0] >> flag & 1; }
};
/// The arguments of a key, `rest`: where its modes begin.
std::vector<Part> parts_of(const std::vector<int64_t>& key, size_t& rest) {
  std::vector<Part> out;
  rest = 2;
  for (int64_t i = 0; i < key[1]; ++i) rest += out.emplace_back(Part{&key[rest]}).size();
  return out;
}

}  // namespace

void write_key(std::vector<int64_t>& key, const CompileCall& call) {
  key.assign({int64_t(uintptr_t(call.types())), int64_t(call.inputs.size())});
  for (const Tensor& x : call.inputs) {
    if (!x.defined()) {
      key.push_back(-1);
      continue;
    }
    size_t same = 0;
    while (!call.inputs[same].is_same(x)) ++same;
    const TensorImpl& p = x.impl();
    key.push_back(int64_t(p.dtype) | int64_t(p.device.type) << 8 | int64_t(p.device.index) << 16 |
                  int64_t(x.requires_grad()) << kRequiresGrad | int64_t(p.inference) << kInference |
                  int64_t(!p.requires_grad && p.autograd.load() && x.grad().defined()) << kHasGradient |
                  int64_t(p.storage && p.storage->read_only) << kReadOnly | p.sizes.size() << kRank);
    key.push_back(is_known_leaf(x) ? int64_t(uintptr_t(&p)) : int64_t(same));
    key.insert(key.end(), p.sizes.begin(), p.sizes.end());
    key.insert(key.end(), p.strides.begin(), p.strides.end());
  }
  int64_t bits = int64_t(modes.grad) * kGrad | int64_t(modes.inference) * kInferenceMode |
                 int64_t(modes.deterministic) << 2 | int64_t(backends::cuda::matmul_allow_tf32()) << 3 |
                 int64_t(backends::cuda::cudnn_allow_tf32()) << 4 | int64_t(backends::cuda::cudnn_benchmark()) << 5 |
                 int64_t(get_flush_denormal()) << 6;
  if (const AutocastRegion* region = modes.autocast)
    for (int i = 0; i < kNumDeviceTypes; ++i)
      bits |= (int64_t(region->on[i]) << 7 | int64_t(region->dtype[i])) << (8 + 8 * i);
  key.push_back(bits);
  key.push_back(int64_t(call.values.size()));
  const size_t words = (call.values.size() + 7) / 8, at = key.size();
  key.resize(at + words);
  if (words) std::memcpy(key.data() + at, call.values.data(), call.values.size());
}

std::shared_ptr<const std::vector<ir::WeakTensor>> leaves_of(const std::vector<Tensor>& arguments) {
  std::vector<ir::WeakTensor> out;
  for (const Tensor& x : arguments)
    if (is_known_leaf(x)) out.emplace_back(x);
  return std::make_shared<const std::vector<ir::WeakTensor>>(std::move(out));
}

std::string text_of_key(const std::vector<int64_t>& key) {
  size_t rest;
  std::string out;
  for (const Part& x : parts_of(key, rest)) {
    out += out.empty() ? "" : ", ";
    if (x.words[0] == -1) {
      out += "undefined";
      continue;
    }
    const Shape shape(std::span(x.words + 2, size_t(x.rank())));
    const Strides strides(std::span(x.words + 2 + x.rank(), size_t(x.rank())));
    out += tapir::format("{} {}", DType(x.words[0] & 0xff), Dims(shape));
    if (!is_contiguous(shape, strides)) out += tapir::format(" strides {}", Dims(strides));
    const Device device(DeviceType(x.words[0] >> 8 & 0xff), int8_t(x.words[0] >> 16 & 0xff));
    if (!device.is_cpu()) out += tapir::format(" on {}", device);
    if (x.is(kRequiresGrad)) out += " that requires a gradient";
  }
  if (key[rest + 1] > 0)
    out += tapir::format("{}{} bytes of numbers and texts", out.empty() ? "" : ", ", key[rest + 1]);
  if (!(key[rest] & kGrad)) out += "; no gradients";
  if (key[rest] >> 8) out += "; autocast";
  return out.empty() ? "no arguments" : out;
}

const char* advice(const std::vector<int64_t>& key, const std::vector<int64_t>& other) {
  size_t rest, other_rest;
  const std::vector<Part> x = parts_of(key, rest), y = parts_of(other, other_rest);
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (std::equal(x[i].words, x[i].words + x[i].size(), y[i].words, y[i].words + y[i].size())) continue;
    const bool leaf = x[i].words[0] == y[i].words[0] && x[i].words[0] != -1 && x[i].words[1] != y[i].words[1];
    return leaf ? "an argument is another leaf that requires a gradient each time: pass its clone()"
                : "raise max_programs, or pad arguments to fewer shapes";
  }
  if (x.size() == y.size() && key[rest] == other[other_rest])
    return "a number or a text among the arguments has many values: pass a tensor";
  return "raise max_programs";
}

}  // namespace tapir::inline v0::detail
