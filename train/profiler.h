#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "../core/no_copy.h"
#include "../core/recording.h"

namespace tapir::inline v0::profiler {

/// All events of one name. Times in seconds: `cpu` from begin to end, `self_cpu` without what other rows have within it; the same of the
/// kernels on CUDA devices. Bytes: allocated less released. `flops` and `traffic` are what the row's own kernels compute and the bytes that
/// they read and write, by the rules of Note [Work] in core/work.h.
struct ProfileRow {
  std::string name, input_shapes;  // shapes: where they were asked for
  int64_t count = 0;
  double self_cpu = 0, cpu = 0, self_cuda = 0, cuda = 0;
  int64_t self_bytes = 0, bytes = 0;
  double flops = 0, traffic = 0;
};
struct TableOptions {
  /// Or "cpu_time_total", "self_cuda_time_total", "cuda_time_total", "self_memory_usage", "memory_usage", "count". ValueError for others.
  std::string sort_by = "self_cpu_time_total";
  int64_t row_limit = 100;
  bool group_by_input_shape = false;
};

/// Records what all threads do, from its making to stop() or its end: operations, modules, backward nodes, optimizer steps, the loader's
/// work, ranges of your own, kernels and memory.
///     profiler::Profile profile;
///     for (...) step();
///     profile.stop();
///     std::puts(profile.table().c_str()), profile.export_chrome_trace("trace.json");
/// ValueError where another one runs, in any thread. It ends in the thread where it began.
class [[nodiscard]] Profile : NoCopy {
 public:
  explicit Profile(const ProfileOptions& options = {});
  ~Profile();
  /// Ends the recording, where it has not ended.
  void stop();
  /// How long it recorded, in seconds.
  double duration() const;

  /// A row for each name, over all threads, the most expensive first.
  std::vector<ProfileRow> key_averages(const TableOptions& options = {}) const;
  /// The same for people; the share is that of the time recorded, GFLOP/s and GB/s are flops and traffic by the self time, on CUDA devices
  /// by the kernels'.
  std::string table(const TableOptions& options = {}) const;
  /// For chrome://tracing and ui.perfetto.dev: a track for each thread and each CUDA stream, and the memory in use.
  void export_chrome_trace(const std::string& path) const;

 private:
  const Recording& recording() const;
  Recording recording_;
  bool running_ = true;
};

}  // namespace tapir::inline v0::profiler
