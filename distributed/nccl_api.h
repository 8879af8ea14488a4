#pragma once
// NCCL as its binary interface is, so that programs are built and start without it. The names, numbers and layouts are those of src/nccl.h.in
// of NVIDIA's NCCL (github.com/NVIDIA/nccl), which keeps them stable: ncclConfig_t is versioned, and its first 24 bytes are those of 2.14,
// the version in which communicators that do not block came. Not public.
#include <cstddef>
#include <cstdint>
#include <string>

namespace tapir::inline v0::distributed::nccl {

struct Comm;  // ncclComm
struct UniqueId {
  char internal[128];
};
enum Result : int {
  kSuccess,
  kUnhandledCudaError,
  kSystemError,
  kInternalError,
  kInvalidArgument,
  kInvalidUsage,
  kRemoteError,
  kInProgress
};
enum RedOp : int { kSum, kProd, kMax, kMin, kAvg };
enum DataType : int {
  kNone = -1,
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};
struct Config {
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef, version = 21400;  // NCCL_VERSION(2, 14, 0)
  int blocking = 0;
};
static_assert(sizeof(Config) == 24);
constexpr int kLeastVersion = 21400;

/// The functions that are used, from the library.
struct Api {
  Result (*ncclGetVersion)(int*);
  Result (*ncclGetUniqueId)(UniqueId*);
  Result (*ncclCommInitRankConfig)(Comm**, int ranks, UniqueId, int rank, Config*);
  Result (*ncclCommFinalize)(Comm*);
  Result (*ncclCommDestroy)(Comm*);
  Result (*ncclCommAbort)(Comm*);
  Result (*ncclCommGetAsyncError)(Comm*, Result*);
  const char* (*ncclGetErrorString)(Result);
  const char* (*ncclGetLastError)(Comm*);
  Result (*ncclAllReduce)(const void*, void*, size_t, DataType, RedOp, Comm*, void* stream);
  Result (*ncclBroadcast)(const void*, void*, size_t, DataType, int root, Comm*, void* stream);
  Result (*ncclReduce)(const void*, void*, size_t, DataType, RedOp, int root, Comm*, void* stream);
  Result (*ncclAllGather)(const void*, void*, size_t each, DataType, Comm*, void* stream);
  Result (*ncclReduceScatter)(const void*, void*, size_t each, DataType, RedOp, Comm*, void* stream);
  Result (*ncclSend)(const void*, size_t, DataType, int peer, Comm*, void* stream);
  Result (*ncclRecv)(void*, size_t, DataType, int peer, Comm*, void* stream);
  Result (*ncclGroupStart)();
  Result (*ncclGroupEnd)();
};
/// From TAPIR_NCCL_LIBRARY, or libnccl.so.2; opened once. Null where that fails: `why` has the loader's words.
const Api* api(std::string& why);

}  // namespace tapir::inline v0::distributed::nccl
