#pragma once
#include <utility>
#include <vector>

#include "../nn/module.h"

namespace tapir::inline v0::distributed {

/// What does not depend on the module's type.
class Replicas {
 public:
  /// No devices: all CUDA devices. ValueError for none at all.
  explicit Replicas(std::vector<Device> devices);
  const std::vector<Device>& devices() const { return devices_; }
  /// Gradients that reach the replica's parameters go on to the module's.
  void follow(nn::Module& module, nn::Module& replica, Device device);
  /// The module's weights and buffers, and what it trains, into every replica; what has not changed is not written.
  void refresh(nn::Module& module, const std::vector<nn::Module*>& replicas);
  /// Parts of x along dimension 0, each on its device; fewer than there are devices where x is short.
  std::vector<Tensor> scatter(const Tensor& x) const;
  /// The parts again, on the first device.
  Tensor gather(const std::vector<Tensor>& parts) const;

 private:
  struct Seen {  // a tensor of the module, and its copy, when both were equal
    const void* memory = nullptr;
    uint32_t version = 0, copy_version = 0;
  };
  std::vector<Device> devices_;
  std::vector<std::vector<Seen>> seen_;  // of each replica
};

/// One process trains on several devices: a batch is split along dimension 0, each device has a copy of the module, results and gradients come
/// back to the first, where the module must lie. DistributedDataParallel, one process per device, is the better way: it moves gradients while
/// backward runs, copies no weights in each step, and has no thread that feeds all devices. Running statistics are the first device's.
///     distributed::DataParallel parallel(net);  // all CUDA devices
///     cross_entropy(parallel(images), labels).backward();
template <class M> class DataParallel {
 public:
  explicit DataParallel(M& module, std::vector<Device> devices = {}) : module_(module), shared_(std::move(devices)) {
    for (size_t i = 1; i < shared_.devices().size(); ++i) copies_.push_back(module_.clone());
    for (size_t i = 0; i < copies_.size(); ++i) shared_.follow(module_, copies_[i], shared_.devices()[i + 1]);
  }
  /// Tensors in, a tensor out.
  template <class... X> Tensor operator()(const Tensor& x, const X&... more) {
    const std::vector<std::vector<Tensor>> inputs{shared_.scatter(x), shared_.scatter(more)...};
    std::vector<nn::Module*> used;
    for (size_t i = 1; i < inputs[0].size(); ++i) used.push_back(&copies_[i - 1]);
    shared_.refresh(module_, used);
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < inputs[0].size(); ++i)
      outputs.push_back(call(i ? copies_[i - 1] : module_, inputs, i, std::make_index_sequence<1 + sizeof...(X)>()));
    return shared_.gather(outputs);
  }
  M& module() { return module_; }

 private:
  template <size_t... At>
  static Tensor call(M& m, const std::vector<std::vector<Tensor>>& inputs, size_t i, std::index_sequence<At...>) {
    return m(inputs[At].at(i)...);
  }
  M& module_;
  Replicas shared_;
  std::vector<M> copies_;
};

}  // namespace tapir::inline v0::distributed
