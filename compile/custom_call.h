#pragma once
#include <utility>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0 {

namespace detail {
struct CustomFunction {
  virtual ~CustomFunction() = default;
  virtual void run(const std::vector<Tensor>& reads, const std::vector<Tensor>& writes) const = 0;
  /// May a graph of a device have it? Then capture() queues there what run() would, and what the host does besides stands before and behind
  /// each launch; what before_launch() throws keeps the graph from it.
  virtual bool is_capturable() const { return false; }
  virtual void capture(const std::vector<Tensor>& /*reads*/, const std::vector<Tensor>& /*writes*/) const {}
  virtual void before_launch() const {}
  virtual void after_launch() const {}
};
/// `f` is adopted.
void custom_call(const char* name, const std::vector<Tensor>& reads, const std::vector<Tensor>& writes,
                 const CustomFunction* f);
/// f() in each replay: for what the host keeps count of, without tensors. Where the program is a graph, before the launch.
template <class F> void host_call(const char* name, F f) {
  struct Own final : CustomFunction {
    explicit Own(F&& f) : f(std::move(f)) {}
    void run(const std::vector<Tensor>&, const std::vector<Tensor>&) const override { f(); }
    bool is_capturable() const override { return true; }
    void before_launch() const override { f(); }
    mutable F f;
  };
  custom_call(name, {}, {}, new Own(std::move(f)));
}
}  // namespace detail

/// Calls f(reads, writes), which compile() takes for one kernel call: a replay calls it again in its place, with tensors that stand where these
/// do. For kernels of your own, and other host code that belongs to a step.
///     custom_call("scale_rows", {x, s}, {y}, [](const auto& reads, const auto& writes) { my_kernel(reads[0].data<float>(), ...); });
/// f may touch these tensors alone, and what it captures by value is frozen. It writes all elements of `writes`; what it updates stands in both
/// lists. It runs without a tape: for a gradient, call it inside of a custom function (apply_function). On a CUDA device it queues its
/// kernels on the current stream. `name`: a literal. ValueError for a tensor that may not be written.
template <class F>
void custom_call(const char* name, const std::vector<Tensor>& reads, const std::vector<Tensor>& writes, F f) {
  struct Own final : detail::CustomFunction {
    explicit Own(F&& f) : f(std::move(f)) {}
    void run(const std::vector<Tensor>& reads, const std::vector<Tensor>& writes) const override { f(reads, writes); }
    mutable F f;
  };
  detail::custom_call(name, reads, writes, new Own(std::move(f)));
}

}  // namespace tapir::inline v0
