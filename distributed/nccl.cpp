#include "nccl.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "../core/cuda_libraries.h"
#include "socket.h"

namespace tapir::inline v0::distributed {

namespace nccl {

namespace {
struct Loaded {
  Api api{};
  std::string why;
};

template <class F> void find(void* library, const char* name, F*& f, std::string& why) {
  f = reinterpret_cast<F*>(dlsym(library, name));
  if (!f && why.empty()) why = tapir::format("it has no {}", name);
}

Loaded load() {
  Loaded out;
  setenv("NCCL_GRAPH_REGISTER", "0",
         0);  // else ranks speak with each other while they capture, and none may be without a graph
  const char* const named = std::getenv("TAPIR_NCCL_LIBRARY");
  const CudaLibrary found = open_cuda_library({named ? named : "libnccl.so.2"}, "nccl");
  void* const library = found.handle;
  if (!library) {
    out.why = found.why_not;
    return out;
  }
#define TAPIR_FIND(name) find(library, #name, out.api.name, out.why)
  TAPIR_FIND(ncclGetVersion), TAPIR_FIND(ncclGetUniqueId), TAPIR_FIND(ncclCommInitRankConfig);
  TAPIR_FIND(ncclCommFinalize), TAPIR_FIND(ncclCommDestroy), TAPIR_FIND(ncclCommAbort);
  TAPIR_FIND(ncclCommGetAsyncError), TAPIR_FIND(ncclGetErrorString), TAPIR_FIND(ncclGetLastError);
  TAPIR_FIND(ncclAllReduce), TAPIR_FIND(ncclBroadcast), TAPIR_FIND(ncclReduce), TAPIR_FIND(ncclAllGather);
  TAPIR_FIND(ncclReduceScatter), TAPIR_FIND(ncclSend), TAPIR_FIND(ncclRecv);
  TAPIR_FIND(ncclGroupStart), TAPIR_FIND(ncclGroupEnd);
#undef TAPIR_FIND
  int version = 0;
  if (out.why.empty() && (out.api.ncclGetVersion(&version) != kSuccess || version < kLeastVersion))
    out.why = tapir::format("its version is {}, and 2.14 is the first with communicators that do not block", version);
  return out;
}

DataType type_of(DType dtype) {
  switch (dtype) {
    case tapir::kFloat32: return kFloat32;
    case tapir::kFloat64: return kFloat64;
    case tapir::kFloat16: return kFloat16;
    case tapir::kBFloat16: return kBfloat16;
    case tapir::kInt64: return kInt64;
    case tapir::kInt32: return kInt32;
    case tapir::kInt8: return kInt8;
    case tapir::kUInt8:
    case tapir::kBool: return kUint8;
    default: return kNone;
  }
}
RedOp reduction_of(const Signature& s) {
  constexpr RedOp ops[] = {kSum, kAvg, kMax, kMin, kProd};
  if (s.dtype == kBool)
    return s.reduce == uint8_t(ReduceOp::Product) || s.reduce == uint8_t(ReduceOp::Min) ? kMin : kMax;
  return ops[s.reduce];
}

/// What Tapir itself asks of the driver; empty where there is none: a stand-in for devices.
struct Driver {
  int (*retain)(void**, int) = nullptr;
  int (*get)(void**) = nullptr;
  int (*set)(void*) = nullptr;
};
const Driver& driver() {
  static const auto* const found = [] {
    auto* d = new Driver;
    std::string why;
    if (void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
      find(library, "cuDevicePrimaryCtxRetain", d->retain, why), find(library, "cuCtxGetCurrent", d->get, why),
          find(library, "cuCtxSetCurrent", d->set, why);
    return d;
  }();
  return *found;
}

/// NCCL takes the CUDA device of the calling thread: its primary context is the thread's in this scope.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    const Driver& d = driver();
    if (device < 0 || !d.retain) return;
    static std::mutex mutex;
    static std::map<int, void*> contexts;  // each is retained once
    const std::lock_guard lock(mutex);
    void*& context = contexts[device];
    const bool done = d.get && d.set && (context || d.retain(&context, device) == 0) && d.get(&before_) == 0 &&
                      (before_ == context || d.set(context) == 0);
    check_runtime(done, "[init_process_group] expected the driver to take cuda:{} for this thread, it refused", device);
    if (before_ == context) before_ = nullptr;
  }
  ~OnDevice() {
    if (before_) driver().set(before_);
  }
  OnDevice(const OnDevice&) = delete;

 private:
  void* before_ = nullptr;
};
}  // namespace

const Api* api(std::string& why) {
  static const auto* const loaded = new Loaded(load());
  why = loaded->why;
  return why.empty() ? &loaded->api : nullptr;
}

}  // namespace nccl

using nccl::Result;

bool Nccl::has(DType dtype) { return nccl::type_of(dtype) != nccl::kNone; }

Nccl::Nccl(Store* store, const TransportOptions& options, int device, Transport* watched)
    : device_(device), size_(options.size), watched_(watched) {
  std::string why;
  api_ = nccl::api(why);
  check_runtime(api_ != nullptr,
                "[init_process_group] expected NCCL, libnccl.so.2 or the file of TAPIR_NCCL_LIBRARY, got: {}", why);
  constexpr int kFirst = -5;  // no device knows more levels
  const nccl::OnDevice on(device);
  if (device >= 0) stream_ = std::make_unique<cuda::Stream>(device, kFirst);
  if (store) check_devices(*store, options);
  open(store, options);
}

/// One device for two ranks may hang NCCL for ever.
void Nccl::check_devices(Store& store, const TransportOptions& options) {
  if (device_ < 0) return;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  TransportOptions o = options;
  o.prefix += "devices/";
  const auto devices = meet(store, o,
                            tapir::format("cuda:{} of {}{}{}", device_, host, visible ? ", CUDA_VISIBLE_DEVICES " : "",
                                          visible ? visible : ""));
  for (size_t a = 0; a < devices.size(); ++a)
    for (size_t b = a + 1; b < devices.size(); ++b)
      check_runtime(devices[a] != devices[b],
                    "[init_process_group] expected a device for each rank, got {} for the ranks {} and {}", devices[a],
                    a, b);
}

void Nccl::open(Store* store, const TransportOptions& o) {
  const double deadline = now() + o.init_timeout;
  nccl::UniqueId id{};
  const auto refuse = [&](const std::string& why) {
    if (comm_) api_->ncclCommAbort(std::exchange(comm_, nullptr));
    fail(ErrorKind::Runtime, "[init_process_group] expected NCCL to connect {} ranks within {} s, got: {}", o.size,
         o.init_timeout, why);
  };
  if (o.rank == 0) {
    if (const Result r = api_->ncclGetUniqueId(&id); r != nccl::kSuccess) refuse(words(r).text);
    if (store) store->set(o.prefix + "nccl", std::string(id.internal, sizeof id.internal));
  } else {
    const std::string text = store->get(o.prefix + "nccl", o.init_timeout);
    std::memcpy(id.internal, text.data(), std::min(text.size(), sizeof id.internal));
  }
  nccl::Config config;
  const Result r = api_->ncclCommInitRankConfig(&comm_, o.size, id, o.rank, &config);
  if (const Failure why = settle(r, deadline, o.init_timeout)) refuse(why.text);
}

Nccl::~Nccl() {
  if (!comm_) return;
  const nccl::OnDevice on(device_);
  if (settle(api_->ncclCommFinalize(comm_), now() + 0.5, 0.5)) api_->ncclCommAbort(comm_);
  else api_->ncclCommDestroy(comm_);
}

void Nccl::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failed_.empty()) failed_ = why;
  if (comm_) api_->ncclCommAbort(std::exchange(comm_, nullptr));
}

Failure Nccl::words(Result result) const {
  const char *name = api_->ncclGetErrorString(result), *last = api_->ncclGetLastError(comm_);  // null: of the process
  std::string text = tapir::format("NCCL: {}", name ? name : "unknown error");
  if (last && *last) text += tapir::format(": {}", last);
  if (result != nccl::kRemoteError) return {text};
  return {tapir::format("a peer is gone ({})", text), Failure::Kind::PeerGone};
}

/// Why there is nothing more to wait for. A peer that is gone may have done its part before: what is on its way then still arrives.
Failure Nccl::hopeless(double deadline, double timeout, double& lost) const {
  constexpr double kGrace = 0.3;
  if (const Failure gone = watched_ ? watched_->gone() : Failure()) {
    if (lost == 0) lost = now();
    if (now() >= lost + kGrace) return gone;
  }
  return now() >= deadline ? timed_out(timeout) : Failure();
}

Failure Nccl::settle(Result result, double deadline, double timeout) {
  auto pause = std::chrono::microseconds(20);
  double lost = 0;
  while (result == nccl::kInProgress && comm_) {
    if (const Result asked = api_->ncclCommGetAsyncError(comm_, &result); asked != nccl::kSuccess) return words(asked);
    if (result != nccl::kInProgress) break;
    if (Failure why = hopeless(deadline, timeout, lost)) return why;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
  return result == nccl::kSuccess ? Failure() : words(result);
}

Result Nccl::all_to_all(const Call& call, nccl::DataType type, void* stream) {
  const auto row = [](const Tensor& x) { return x.size(0) > 0 ? x.numel() / x.size(0) : 0; };
  const int64_t item = size_of(call.signature.dtype), in_row = row(call.in), out_row = row(call.out);
  const char* from = static_cast<const char*>(call.in.data_ptr());
  char* to = static_cast<char*>(call.out.data_ptr());
  Result result = api_->ncclGroupStart();
  for (int r = 0; r < size_ && result == nccl::kSuccess; ++r) {
    const int64_t n_in = call.in_sizes[size_t(r)] * in_row, n_out = call.out_sizes[size_t(r)] * out_row;
    if (n_in) result = api_->ncclSend(from, size_t(n_in), type, r, comm_, stream);
    if (n_out && (result == nccl::kSuccess || result == nccl::kInProgress))
      result = api_->ncclRecv(to, size_t(n_out), type, r, comm_, stream);
    if (result == nccl::kInProgress) result = nccl::kSuccess;
    from += n_in * item, to += n_out * item;
  }
  const Result ended = api_->ncclGroupEnd();
  return result == nccl::kSuccess ? ended : result;
}

Result Nccl::enqueue(const Call& call, void* stream) {
  const Signature& s = call.signature;
  const nccl::DataType type = nccl::type_of(s.dtype);
  const nccl::RedOp op = nccl::reduction_of(s);
  const void* in = call.in.data_ptr();
  void* out = call.out.data_ptr();
  const auto n_in = size_t(call.in.numel()), n_out = size_t(call.out.numel());
  if (n_in == 0 && s.op != Collective::AllToAll) return nccl::kSuccess;
  switch (s.op) {
    case Collective::AllReduce: return api_->ncclAllReduce(in, out, n_in, type, op, comm_, stream);
    case Collective::Broadcast: return api_->ncclBroadcast(in, out, n_in, type, s.root, comm_, stream);
    case Collective::Reduce: return api_->ncclReduce(in, out, n_in, type, op, s.root, comm_, stream);
    case Collective::AllGather: return api_->ncclAllGather(in, out, n_in, type, comm_, stream);
    case Collective::ReduceScatter: return api_->ncclReduceScatter(in, out, n_out, type, op, comm_, stream);
    case Collective::AllToAll: return all_to_all(call, type, stream);
    default: return nccl::kInvalidUsage;
  }
}

Failure Nccl::start(const Call& call, double timeout, bool& fatal, Started& started) {
  const std::lock_guard lock(mutex_);
  fatal = true;
  if (!comm_) return {failed_};
  const nccl::OnDevice on(device_);
  started = {.deadline = now() + timeout, .timeout = timeout};
  if (stream_ && call.ready) stream_->wait_event(*call.ready);
  const Result result = enqueue(call, stream_ ? stream_->handle() : nullptr);
  const Failure why = settle(result, started.deadline, timeout);
  if (!why && stream_) started.done = std::make_shared<cuda::Event>(stream_->record_event());
  fatal = why && result != nccl::kInvalidArgument;
  return why;
}

bool Nccl::is_over(Started& s, Failure& why) {
  const bool passed = !s.done || s.done->query();
  const std::lock_guard lock(mutex_);
  if (passed) {  // by its end, or by the abort's
    if (!comm_ && s.done) why = {failed_};
    return !why;
  }
  Result state = nccl::kSuccess;
  // The device still works on it: an error, or a peer's end, shows here.
  if (!comm_) why = {failed_};
  else if (const Result asked = api_->ncclCommGetAsyncError(comm_, &state); asked != nccl::kSuccess) why = words(asked);
  else if (state != nccl::kSuccess && state != nccl::kInProgress) why = words(state);
  else why = hopeless(s.deadline, s.timeout, s.lost);
  return false;
}

}  // namespace tapir::inline v0::distributed
