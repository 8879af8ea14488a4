#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../core/state_dict.h"

namespace tapir::inline v0::train {

/// What has a state of named tensors: modules, optimizers, schedulers, scalers, loaders, EarlyStopping.
template <class T>
concept Stateful = requires(T& t, const StateDict& state) {
  { t.state_dict() } -> std::convertible_to<StateDict>;
  t.load_state_dict(state);
};

struct CheckpointOptions {
  int64_t keep_last = 3;          // newest files that stay; 0: all
  bool keep_best = true;          // the one with the best metric stays too
  bool higher_is_better = false;  // of the metric: an accuracy instead of a loss
};

/// The files of a training run in one folder: checkpoint-<step>.safetensors, each with every part under its name
/// ("model.fc.weight"), the random generator, step and metric. Files appear whole or not at all (io/file.h).
///     train::Checkpoint checkpoint("runs/1");
///     checkpoint.add("model", net).add("optimizer", opt).add("loader", loader);
///     int64_t epoch = checkpoint.resume().value_or(-1) + 1;
///     ...
///     checkpoint.save(epoch, validation_loss);
class Checkpoint {
 public:
  /// Removes what runs that died in a save have left in the folder. RuntimeError where it cannot be read.
  explicit Checkpoint(std::string folder, const CheckpointOptions& options = {});
  /// A part to save and load; it must outlive this. ValueError for a name that is taken, empty or has a dot.
  template <Stateful T> Checkpoint& add(std::string_view name, T& part) {
    return add_part({std::string(name), &part, [](void* p) -> StateDict { return static_cast<T*>(p)->state_dict(); },
                     [](void* p, const StateDict& state) { static_cast<T*>(p)->load_state_dict(state); }});
  }
  /// All parts and the random generator under the names that files have; it shares memory with the parts. So a Checkpoint is what
  /// distributed::Elastic keeps in memory.
  StateDict state_dict() const;
  /// ValueError where it does not fit the parts: they are then as before.
  void load_state_dict(const StateDict& state);
  /// Writes the file of that step, which stays, then removes those that need not. RuntimeError where the disk refuses: every
  /// older file is then as it was.
  void save(int64_t step, std::optional<double> metric = {});
  /// Loads the newest whole file and returns its step; nothing where there is no file. Damaged ones are passed over (see
  /// refused()); RuntimeError where all are.
  std::optional<int64_t> resume();
  /// Loads the file with the best metric and returns its step; nothing where no file has a metric.
  std::optional<int64_t> load_best();
  /// Loads a file. RuntimeError where it is damaged, ValueError where it does not fit the parts: they are then as before.
  int64_t load(const std::string& path);
  /// The files there are, oldest step first.
  std::vector<std::string> files() const;
  /// Why resume() and load_best() passed over files: their errors' texts.
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  struct Part {
    std::string name;
    void* object;
    StateDict (*save)(void*);
    void (*load)(void*, const StateDict&);
  };
  struct File {
    std::string path;
    int64_t step = 0;
    std::optional<double> metric = {};
  };
  Checkpoint& add_part(Part part);
  std::vector<File> list() const;
  std::vector<File> list_with_metrics();
  std::optional<int64_t> load_last(std::vector<File> files);
  bool better(const File& a, const File& b) const;
  void remove_old(int64_t saved);
  std::string folder_;
  CheckpointOptions options_;
  std::vector<Part> parts_;
  std::vector<std::string> refused_;
};

}  // namespace tapir::inline v0::train
