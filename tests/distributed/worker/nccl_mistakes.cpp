// What NVIDIA's library would not survive, and its stand-in refuses by name: mistakes that a program, or Tapir itself, could make with NCCL.
#include <dlfcn.h>

#include <chrono>
#include <thread>

#include "communicator.h"

namespace worker {
namespace {

namespace nccl = distributed::nccl;

/// Rank 1 does something else than the others: all are told, and the communicator is no more.
void differs(const char* theirs, Collective op, const Tensor& x, Op reduce = Op::Sum) {
  static int communicators = 0;
  Communicator c{.prefix = tapir::format("test{}/", communicators++)};
  const std::string why = c.run(op, x, x, reduce, op == Collective::Broadcast ? 0 : -1);
  EXPECT(c.fatal &&
         has(why, std::string("call 1: rank 0 calls all_reduce(sum) of 100 x float32, rank 1 calls ") + theirs));
}
void order() {
  const bool two = second();
  const auto all_reduce = Collective::AllReduce;
  differs("broadcast(root 0) of 100 x float32", two ? Collective::Broadcast : all_reduce, ones({100}));
  differs("all_reduce(sum) of 99 x float32", all_reduce, ones({two ? 99 : 100}));
  differs("all_reduce(max) of 100 x float32", all_reduce, ones({100}), two ? Op::Max : Op::Sum);
  differs("all_reduce(sum) of 100 x int32", all_reduce, ones({100}, {.dtype = two ? kInt32 : kFloat32}));
}

/// Rank 1 expects three rows of rank 0, which sends two.
void rows() {
  Communicator c;
  const bool two = second();
  const Tensor in = ones({3, 4}), out = zeros({two ? 4 : 2, 4});
  const std::string why = c.run(Collective::AllToAll, in, out, Op::Sum, -1, {1, 2},
                                two ? std::vector<int64_t>{3, 1} : std::vector<int64_t>{1, 1});
  EXPECT(c.fatal && has(why, "rank 1 expects 48 bytes from rank 0, which sends 32"));
}

/// The library without Tapir's class around it; a communicator of one rank.
struct Plain {
  std::string why;
  const nccl::Api& api = *nccl::api(why);
  nccl::Comm* comm = nullptr;
  Plain() {
    nccl::UniqueId id{};
    nccl::Config config;
    EXPECT(api.ncclGetUniqueId(&id) == nccl::kSuccess);
    EXPECT(api.ncclCommInitRankConfig(&comm, 1, id, 0, &config) == nccl::kInProgress && settle() == nccl::kSuccess);
  }
  nccl::Result settle() {
    nccl::Result now = nccl::kInProgress;
    while (now == nccl::kInProgress) {
      EXPECT(api.ncclCommGetAsyncError(comm, &now) == nccl::kSuccess);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return now;
  }
  nccl::Result reduce(const void* in, void* out, size_t n, void* stream = nullptr) {
    return api.ncclAllReduce(in, out, n, nccl::kFloat32, nccl::kSum, comm, stream);
  }
  bool refuses(nccl::Result got, nccl::Result expected, const char* words) {
    std::printf("caught: %s\n", api.ncclGetLastError(comm));
    return got == expected && has(api.ncclGetLastError(comm), words);
  }
};

void misuse() {
  setenv("NCCL_STAND_IN", "slow=1", 1);
  Plain p;
  const Tensor x = ones({64}), y = zeros({64});
  float *const a = x.data<float>(), *const b = y.data<float>();
  EXPECT(p.reduce(a, b, 64) == nccl::kInProgress);
  EXPECT(p.refuses(p.reduce(a, b, 64), nccl::kInvalidArgument, "before the previous call is over"));
  EXPECT(p.settle() == nccl::kSuccess && equal(x, y));
  EXPECT(p.refuses(p.reduce(a, a + 1, 8), nccl::kInvalidArgument, "overlap"));
  EXPECT(p.refuses(p.reduce(reinterpret_cast<char*>(a) + 2, b, 8), nccl::kInvalidArgument, "not aligned"));
  EXPECT(p.refuses(p.api.ncclGroupEnd(), nccl::kInvalidUsage, "without ncclGroupStart"));

  EXPECT(p.api.ncclGroupStart() == nccl::kSuccess && p.api.ncclGroupStart() == nccl::kSuccess);
  EXPECT(p.reduce(a, a, 32) == nccl::kSuccess && p.reduce(a + 32, a + 32, 32) == nccl::kSuccess);
  EXPECT(p.refuses(p.api.ncclCommFinalize(p.comm), nccl::kInvalidUsage, "between ncclGroupStart and ncclGroupEnd"));
  EXPECT(p.refuses(p.api.ncclCommAbort(p.comm), nccl::kInvalidUsage, "between ncclGroupStart and ncclGroupEnd"));
  EXPECT(p.api.ncclGroupEnd() == nccl::kSuccess && p.api.ncclGroupEnd() == nccl::kInProgress);
  EXPECT(p.settle() == nccl::kSuccess);
  EXPECT(p.api.ncclGroupStart() == nccl::kSuccess);  // an error within a group is the group's
  EXPECT(p.reduce(a, a + 1, 8) == nccl::kInvalidArgument && p.api.ncclGroupEnd() == nccl::kInvalidArgument);

  EXPECT(p.api.ncclCommFinalize(p.comm) == nccl::kSuccess);
  EXPECT(p.refuses(p.reduce(a, b, 8), nccl::kInvalidUsage, "after ncclCommFinalize"));
  EXPECT(p.api.ncclCommDestroy(p.comm) == nccl::kSuccess);
  EXPECT(p.refuses(p.reduce(a, b, 8), nccl::kInvalidArgument, "destroyed or aborted"));
  EXPECT(p.refuses(p.api.ncclCommAbort(p.comm), nccl::kInvalidArgument, "that is gone"));

  void* const library = dlopen(std::getenv("TAPIR_NCCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  const auto calls = reinterpret_cast<size_t (*)(size_t, const char**)>(dlsym(library, "nccl_stand_in_calls"));
  const char* text = "";
  EXPECT(calls(2, &text) == 3 && has(text, "all_reduce(sum) of 32 x float32"));
}

/// The driver's way.
void choose_device(int device) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* context = nullptr;
  EXPECT(driver);
  EXPECT(reinterpret_cast<int (*)(void**, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, device) == 0);
  EXPECT(reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"))(context) == 0);
}

/// On emulated devices: what Tapir's class is told to do, and what only a caller of the library could.
void devices() {
  const int me = my_rank();
  const Device device(kCUDA.type, me), other(kCUDA.type, 1 - me);
  cuda::set_device(me);
  {
    Communicator c{.device = me, .prefix = "ordered/"};
    const Tensor x = full({1000}, double(me + 1), {.device = device}), y = zeros({1000}, {.device = device});
    EXPECT(c.run(Collective::AllReduce, x, y).empty() && y.cpu().max().item() == 3);
  }
  {
    Communicator c{.device = me, .prefix = "unordered/"};
    c.waits = false;
    const Tensor x = full({1000}, double(me + 1), {.device = device});
    const std::string why = c.run(Collective::AllReduce, x, x);
    EXPECT(c.fatal && has(why, "[nccl all_reduce(sum) of 1000 x float32]") &&
           has(why, "no event or synchronization orders the two"));
  }
  choose_device(me);
  Plain p;  // its device is the thread's
  const cuda::Stream here(me), there(1 - me);
  const Tensor x = full({64}, 1.0, {.device = device}), far = full({64}, 1.0, {.device = other}), host = ones({64});
  cuda::synchronize(0), cuda::synchronize(1);
  float* const a = x.data<float>();
  const auto refused = [&](nccl::Result r, const char* words) { return p.refuses(r, nccl::kInvalidUsage, words); };
  EXPECT(refused(p.reduce(a, a, 64, there.handle()), "expected a stream of device"));
  EXPECT(refused(p.reduce(a, a, 64, &p), "expected a live stream"));
  EXPECT(refused(p.reduce(far.data_ptr(), a, 64, here.handle()), "expected memory of device"));
  EXPECT(refused(p.reduce(host.data_ptr(), a, 64, here.handle()), "got a host pointer"));
  EXPECT(refused(p.reduce(a, a, 65, here.handle()), "at byte 256"));
  const auto* freed = static_cast<float*>(full({64}, 1.0, {.device = device}).data_ptr());
  EXPECT(refused(p.reduce(freed, a, 64, here.handle()), "stray or freed"));
  EXPECT(p.reduce(a, a, 64, here.handle()) == nccl::kInProgress && p.settle() == nccl::kSuccess);
  EXPECT(has(error_of<std::exception>([&] { (void)(x + 1); }), "no event or synchronization orders the two"));
  here.synchronize();
  EXPECT((x + 1).cpu().max().item() == 2);
}

/// Ends in terminate(): memory goes while the call is on its way, or done but not waited for.
void freed(const char* fault) {
  if (fault) setenv("NCCL_STAND_IN", fault, 1);
  cuda::set_device(0);
  Plain p;
  const cuda::Stream stream(0);
  Tensor x = full({64}, 1.0, {.device = kCUDA});
  cuda::synchronize();
  EXPECT(p.reduce(x.data_ptr(), x.data_ptr(), 64, stream.handle()) == nccl::kInProgress);
  if (!fault) EXPECT(p.settle() == nccl::kSuccess);
  x = Tensor();
  std::printf("nobody minded\n");
}
void freed_on_its_way() { freed("slow=1"); }
void freed_unwaited() { freed(nullptr); }

/// NVIDIA's own library where there is no driver.
void real() {
  std::string why;
  const nccl::Api* api = nccl::api(why);
  check_runtime(api, "no NCCL: {}", why);
  int version = 0;
  EXPECT(api->ncclGetVersion(&version) == nccl::kSuccess && version >= nccl::kLeastVersion);
  options.init_timeout = 10;
  const std::string text = error_of<RuntimeError>([] { Communicator c; });
  EXPECT(has(text, "expected NCCL to connect 1 ranks within 10 s, got: NCCL: ") && has(text, "CUDA driver"));
}

}  // namespace

std::vector<Scenario> nccl_mistakes() {
  return {{"nccl_order", order},
          {"nccl_rows", rows},
          {"nccl_misuse", misuse},
          {"nccl_devices", devices},
          {"nccl_freed_on_its_way", freed_on_its_way},
          {"nccl_freed_unwaited", freed_unwaited},
          {"nccl_real", real}};
}

}  // namespace worker
