#pragma once
// What a device with queues provides beside its kernels, and how the plugin that holds both is opened. Users see core/cuda.h instead.
#include <atomic>
#include <cstdint>

#include "allocator.h"
#include "backend.h"
#include "cuda.h"

namespace tapir::inline v0 {

/// Where kernels on a device get scratch memory in place of the allocator: what replays the same ones keeps it for them.
struct ScratchPool {
  virtual void* take(int64_t bytes) = 0;
  virtual void give(void* piece) = 0;  // it is free for what is queued next; not the pool's: nothing happens

 protected:
  ~ScratchPool() = default;
};
extern thread_local constinit ScratchPool* scratch_pool;  // of this thread's kernels; a plugin has one of its own

/// Ask: it is made in the background, also where that failed before. Look: throws what a compiler said. Wait: it is there, or that is thrown.
enum class Prepare : uint8_t { Ask, Look, Wait };

/// Streams and events are handles of the device's own kind (cudaStream_t, cudaEvent_t); a null stream is the default one.
struct DeviceTable {
  void (*properties)(Device, cuda::DeviceProperties& out);
  void* (*create_stream)(Device, int priority);
  void (*destroy_stream)(Device, void* stream);
  bool (*query_stream)(Device, void* stream);  // true when nothing is left to do
  void (*wait_event)(Device, void* stream, void* event);
  void* (*create_event)(Device, bool timing);
  void (*destroy_event)(Device, void* event);
  void (*record_event)(Device, void* event, void* stream);
  bool (*query_event)(Device, void* event);
  void (*synchronize_event)(Device, void* event);
  double (*elapsed_ms)(Device, void* start, void* end);
  void (*synchronize_device)(Device);  // all queues

  void (*record_stream)(Device, void* data,
                        void* stream);  // the block is not given away before that queue has passed this point
  void (*empty_cache)(Device);
  MemoryStats (*memory_stats)(Device);
  void (*reset_peak)(Device);
  void (*mem_get_info)(Device, int64_t& free, int64_t& total);
  void (*set_memory_fraction)(Device, double fraction);
  void (*for_each_block)(Device, void (*visit)(void* user, const cuda::MemoryBlock&), void* user);
  void* (*allocate_pinned)(int64_t bytes);  // null when there is none left
  void (*release_pinned)(void* data);       // not given away before the copies that use it are done
  bool (*is_pinned)(const void* data);
  void (*name_late_error)(const Context&, std::string_view text);  // see check_values()
  int64_t (*synchronizations)();                                   // how often the host has waited for a device
  // (optional) Named ranges in the vendor's profiler, of this thread.
  void (*range_push)(const char* name);
  void (*range_pop)();
  // (optional) all five: what is queued is kept as a graph, to be queued again by one call. begin_capture() gives the stream whose work
  // this thread captures until end_capture(); nothing runs meanwhile, and what cannot be kept (waits, copies to and from the host) throws.
  // end_capture() gives the graph; null, where `keep` is false or something spoilt it: `why` says what. A graph uses the memory that
  // its kernels were given; bad values that they meet are told as those of kernels are.
  void* (*begin_capture)(Device);
  void* (*end_capture)(Device, bool keep, const char*& why);
  void (*launch_graph)(Device, void* graph, void* stream);
  void (*destroy_graph)(Device, void* graph);
  void (*set_scratch_pool)(ScratchPool*);  // of this thread's kernels
  // (optional) Is the kernel of such a fused call there? Of the operands' addresses it wants the alignment alone.
  bool (*prepare_fused)(Device, const entry::Fused&, Prepare);
};

/// The switches of core/cuda.h that kernels read.
struct CudaSettings {
  std::atomic<bool> matmul_allow_tf32{false}, cudnn_allow_tf32{true}, cudnn_benchmark{false};
};

/// What `extern "C" const CudaPlugin* tapir_cuda_plugin(const CudaSettings*)` of libtapir_cuda.so returns.
struct CudaPlugin {
  static constexpr int kAbi = 11;  // raised with every change of the structs that a plugin shares with the library
  int abi = kAbi;
  int64_t table_bytes = sizeof(BackendTable);
  const BackendTable* table = nullptr;  // null: there is no device, or no driver that fits; why_not says so
  int device_count = 0;
  const char* why_not = "";
  const char* (*library_report)() = nullptr;  // of this thread, until its next call
};
/// The plugin's table, or null; opened at the first call. Never throws.
const BackendTable* cuda_backend();
extern CudaSettings cuda_settings;

}  // namespace tapir::inline v0
