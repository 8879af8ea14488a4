// A library with NCCL's interface, for tests of what Tapir does with it; NVIDIA's own needs GPUs. Every rank sends what it has to rank 0, over
// a socket, which computes and answers. Calls are "in progress" first, as those of a communicator that does not block: a thread does them.
// NCCL_STAND_IN says what goes wrong: "init_hang", "init_error", or, of the K-th collective here, "hang=K" (never ends), "remote_error=K",
// "cuda_error=K", "invalid_argument=K" (the call refuses).
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

enum Result {
  Success,
  UnhandledCudaError,
  SystemError,
  InternalError,
  InvalidArgument,
  InvalidUsage,
  RemoteError,
  InProgress
};
struct UniqueId {
  char internal[128];
};
struct Config {
  size_t size;
  unsigned int magic, version;
  int blocking;
};
using Bytes = std::string;

namespace {

void copy_host(void* to, const void* from, size_t bytes, void*) { std::memcpy(to, from, bytes); }
void (*to_host)(void*, const void*, size_t, void*) = copy_host;
void (*to_device)(void*, const void*, size_t, void*) = copy_host;

constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

float from_bf16(uint16_t v) {
  const uint32_t bits = uint32_t(v) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
uint16_t to_bf16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
template <class A> A combine(A a, A b, int op) {
  return op == 1 ? a * b : op == 2 ? std::max(a, b) : op == 3 ? std::min(a, b) : a + b;
}

template <class T, class A = T, class From, class To>
Bytes reduced(const std::vector<Bytes>& in, int op, From from, To to) {
  Bytes out = in[0];
  for (size_t i = 0; i < out.size() / sizeof(T); ++i) {
    A sum{};
    for (size_t r = 0; r < in.size(); ++r) {
      T v;
      std::memcpy(&v, in[r].data() + i * sizeof(T), sizeof(T));
      sum = r ? combine<A>(sum, from(v), op) : from(v);
    }
    if (op == 4) sum = A(sum / A(in.size()));
    const T y = to(sum);
    std::memcpy(out.data() + i * sizeof(T), &y, sizeof(T));
  }
  return out;
}
Bytes reduced(const std::vector<Bytes>& in, int type, int op) {
  const auto same = [](auto v) { return v; };
  switch (type) {
    case 0: return reduced<int8_t>(in, op, same, same);
    case 1: return reduced<uint8_t>(in, op, same, same);
    case 2: return reduced<int32_t>(in, op, same, same);
    case 4: return reduced<int64_t>(in, op, same, same);
    case 6:
      return reduced<_Float16, float>(
          in, op, [](_Float16 v) { return float(v); }, [](float v) { return _Float16(v); });
    case 7: return reduced<float>(in, op, same, same);
    case 8: return reduced<double>(in, op, same, same);
    default: return reduced<uint16_t, float>(in, op, from_bf16, to_bf16);
  }
}

bool send_all(int fd, const void* data, size_t n) {
  for (auto* p = static_cast<const char*>(data); n > 0;) {
    const ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
    if (k <= 0) return false;
    p += k, n -= size_t(k);
  }
  return true;
}
bool recv_all(int fd, void* data, size_t n) {
  for (auto* p = static_cast<char*>(data); n > 0;) {
    const ssize_t k = recv(fd, p, n, 0);
    if (k <= 0) return false;
    p += k, n -= size_t(k);
  }
  return true;
}
bool send_bytes(int fd, const Bytes& b) {
  const uint64_t n = b.size();
  return send_all(fd, &n, sizeof n) && send_all(fd, b.data(), n);
}
bool recv_bytes(int fd, Bytes& b) {
  uint64_t n = 0;
  if (!recv_all(fd, &n, sizeof n)) return false;
  b.resize(n);
  return recv_all(fd, b.data(), n);
}

int listener = -1;  // of rank 0's process

int number_of(const char* fault) {
  const char* text = std::getenv("NCCL_STAND_IN");
  const size_t n = std::strlen(fault);
  return text && std::strncmp(text, fault, n) == 0 && text[n] == '=' ? std::atoi(text + n + 1) : 0;
}
bool is_fault(const char* fault) {
  const char* text = std::getenv("NCCL_STAND_IN");
  return text && std::strcmp(text, fault) == 0;
}

struct Message {
  bool sends;
  const void* from;
  void* to;
  size_t bytes;
  int peer;
  void* stream;
};

}  // namespace

struct ncclComm {
  int rank, size, calls = 0;
  std::vector<int> fds;  // rank 0: of each rank; else of rank 0
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<Result()>> work;
  std::atomic<int> state{InProgress};
  std::atomic<bool> aborted{false};
  bool stop = false;
  std::string last;
  std::thread thread;

  Result hang() {
    while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return RemoteError;
  }
  Result connect_all(uint16_t port) {
    if (is_fault("init_hang")) return hang();
    if (is_fault("init_error")) return last = "no such network", SystemError;
    fds.assign(size_t(size), -1);
    if (rank == 0) {
      for (int i = 1; i < size; ++i) {
        const int fd = accept(listener, nullptr, nullptr);
        int32_t who = 0;
        if (fd < 0 || !recv_all(fd, &who, sizeof who)) return SystemError;
        fds[size_t(who)] = fd;
      }
      return Success;
    }
    sockaddr_in to{};
    to.sin_family = AF_INET, to.sin_port = htons(port), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    const int32_t me = rank;
    const bool done =
        connect(fds[0], reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 && send_all(fds[0], &me, sizeof me);
    return done ? Success : SystemError;
  }
  /// What rank 0 makes of all ranks' bytes, for this rank.
  Result exchange(const Bytes& mine, Bytes& reply,
                  const std::function<std::vector<Bytes>(const std::vector<Bytes>&)>& f) {
    const auto lost = [&] { return last = "connection closed by remote peer", RemoteError; };
    if (rank != 0) return send_bytes(fds[0], mine) && recv_bytes(fds[0], reply) ? Success : lost();
    std::vector<Bytes> all{mine};
    for (int r = 1; r < size; ++r)
      if (!recv_bytes(fds[size_t(r)], all.emplace_back())) return lost();
    const std::vector<Bytes> out = f(all);
    for (int r = 1; r < size; ++r)
      if (!send_bytes(fds[size_t(r)], out[size_t(r)])) return lost();
    reply = out[0];
    return Success;
  }
  void run() {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return stop || !work.empty(); });
      if (stop) return;
      const auto f = std::move(work.front());
      lock.unlock();
      const Result r = f();
      lock.lock();
      work.pop_front();
      if (r != Success || work.empty()) state = r;
      if (r != Success) return;
    }
  }
  Result put(std::function<Result()> f) {
    const int call = ++calls;
    if (call == number_of("invalid_argument")) return last = "count is none", InvalidArgument;
    if (call == number_of("hang")) f = [this] { return hang(); };
    if (call == number_of("remote_error")) f = [this] { return last = "remote process has ended", RemoteError; };
    if (call == number_of("cuda_error")) f = [this] { return last = "an illegal memory access", UnhandledCudaError; };
    return put_now(std::move(f));
  }
  Result put_now(std::function<Result()> f) {
    std::lock_guard lock(mutex);
    work.push_back(std::move(f));
    state = InProgress;
    changed.notify_all();
    return InProgress;
  }
  /// One collective: `in` bytes of this rank, `out` bytes come back (none: this rank takes nothing).
  Result collective(const void* in, size_t in_bytes, void* out, void* stream,
                    std::function<std::vector<Bytes>(const std::vector<Bytes>&)> f) {
    return put([=, this] {
      Bytes mine(in_bytes, '\0'), reply;
      if (in_bytes) to_host(mine.data(), in, in_bytes, stream);
      const Result r = exchange(mine, reply, f);
      if (r == Success && !reply.empty()) to_device(out, reply.data(), reply.size(), stream);
      return r;
    });
  }
  void end() {
    aborted = true;
    for (const int fd : fds)
      if (fd >= 0) shutdown(fd, SHUT_RDWR);
    {
      std::lock_guard lock(mutex);
      stop = true;
      changed.notify_all();
    }
    if (rank == 0 && state == InProgress && listener >= 0) shutdown(listener, SHUT_RDWR);  // still in accept()
    thread.join();
    for (const int fd : fds)
      if (fd >= 0) close(fd);
    delete this;
  }
};

namespace {
thread_local int group_depth = 0;
thread_local std::vector<Message> group_messages;
thread_local ncclComm* group_comm = nullptr;

/// Every rank sends each other one row of bytes.
Result run_messages(ncclComm* comm, const std::vector<Message>& messages) {
  const int n = comm->size;
  Bytes mine;
  for (int r = 0; r < n; ++r) {
    Bytes row;
    for (const Message& m : messages)
      if (m.sends && m.peer == r) {
        row.resize(m.bytes);
        to_host(row.data(), m.from, m.bytes, m.stream);
      }
    const uint64_t bytes = row.size();
    mine.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(row);
  }
  const auto rows = [n](const Bytes& all) {
    std::vector<Bytes> out;
    for (size_t at = 0; int(out.size()) < n;) {
      uint64_t bytes;
      std::memcpy(&bytes, all.data() + at, sizeof bytes);
      out.push_back(all.substr(at + sizeof bytes, bytes));
      at += sizeof bytes + bytes;
    }
    return out;
  };
  Bytes reply;
  const Result result = comm->exchange(mine, reply, [&](const std::vector<Bytes>& all) {
    std::vector<Bytes> out(all.size());
    for (const Bytes& from : all) {
      const auto parts = rows(from);
      for (size_t r = 0; r < out.size(); ++r) {
        const uint64_t bytes = parts[r].size();
        out[r].append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(parts[r]);
      }
    }
    return out;
  });
  if (result != Success) return result;
  const auto got = rows(reply);
  for (const Message& m : messages)
    if (!m.sends && got[size_t(m.peer)].size() == m.bytes)
      to_device(m.to, got[size_t(m.peer)].data(), m.bytes, m.stream);
  return Success;
}
Result message(ncclComm* comm, const Message& m) {
  if (group_depth == 0) return InvalidUsage;  // this library knows them in groups only
  group_comm = comm;
  group_messages.push_back(m);
  return Success;
}
}  // namespace

extern "C" {

/// How memory of the tests' devices is reached; by default it is the host's.
void nccl_stand_in_copies(void (*host)(void*, const void*, size_t, void*),
                          void (*device)(void*, const void*, size_t, void*)) {
  to_host = host, to_device = device;
}

Result ncclGetVersion(int* version) {
  const char* text = std::getenv("NCCL_STAND_IN_VERSION");
  return *version = text ? std::atoi(text) : 22809, Success;
}
Result ncclGetUniqueId(UniqueId* id) {
  listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof at;
  if (bind(listener, reinterpret_cast<sockaddr*>(&at), n) != 0 || listen(listener, 64) != 0) return SystemError;
  getsockname(listener, reinterpret_cast<sockaddr*>(&at), &n);
  const uint16_t port = ntohs(at.sin_port);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &port, sizeof port);
  return Success;
}
Result ncclCommInitRankConfig(ncclComm** out, int size, UniqueId id, int rank, Config* config) {
  if (config->size != 24 || config->magic != 0xcafebeef || config->version < 21400 || config->blocking != 0)
    return InvalidArgument;
  auto* comm = *out = new ncclComm{};
  comm->rank = rank, comm->size = size;
  uint16_t port;
  std::memcpy(&port, id.internal, sizeof port);
  comm->put_now([comm, port] { return comm->connect_all(port); });
  comm->thread = std::thread([comm] { comm->run(); });
  return InProgress;
}
Result ncclCommFinalize(ncclComm* comm) { return comm->state == Success ? Success : InProgress; }
Result ncclCommDestroy(ncclComm* comm) { return comm->end(), Success; }
Result ncclCommAbort(ncclComm* comm) { return comm->end(), Success; }
Result ncclCommGetAsyncError(ncclComm* comm, Result* result) { return *result = Result(comm->state.load()), Success; }
const char* ncclGetErrorString(Result result) {
  constexpr const char* texts[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "operation in progress"};
  return texts[result];
}
const char* ncclGetLastError(ncclComm* comm) { return comm->last.c_str(); }

Result ncclAllReduce(const void* in, void* out, size_t n, int type, int op, ncclComm* comm, void* stream) {
  return comm->collective(in, n * kSizes[type], out, stream, [=](const std::vector<Bytes>& all) {
    return std::vector<Bytes>(all.size(), reduced(all, type, op));
  });
}
Result ncclBroadcast(const void* in, void* out, size_t n, int type, int root, ncclComm* comm, void* stream) {
  return comm->collective(in, n * kSizes[type], out, stream, [=](const std::vector<Bytes>& all) {
    return std::vector<Bytes>(all.size(), all[size_t(root)]);
  });
}
Result ncclReduce(const void* in, void* out, size_t n, int type, int op, int root, ncclComm* comm, void* stream) {
  return comm->collective(in, n * kSizes[type], out, stream, [=](const std::vector<Bytes>& all) {
    std::vector<Bytes> replies(all.size());
    replies[size_t(root)] = reduced(all, type, op);
    return replies;
  });
}
Result ncclAllGather(const void* in, void* out, size_t n, int type, ncclComm* comm, void* stream) {
  return comm->collective(in, n * kSizes[type], out, stream, [](const std::vector<Bytes>& all) {
    Bytes joined;
    for (const Bytes& b : all) joined += b;
    return std::vector<Bytes>(all.size(), joined);
  });
}
Result ncclReduceScatter(const void* in, void* out, size_t n, int type, int op, ncclComm* comm, void* stream) {
  const size_t bytes = n * kSizes[type];
  return comm->collective(in, bytes * size_t(comm->size), out, stream, [=](const std::vector<Bytes>& all) {
    const Bytes sum = reduced(all, type, op);
    std::vector<Bytes> parts;
    for (size_t r = 0; r < all.size(); ++r) parts.push_back(sum.substr(r * bytes, bytes));
    return parts;
  });
}
Result ncclSend(const void* data, size_t n, int type, int peer, ncclComm* comm, void* stream) {
  return message(comm, {true, data, nullptr, n * kSizes[type], peer, stream});
}
Result ncclRecv(void* data, size_t n, int type, int peer, ncclComm* comm, void* stream) {
  return message(comm, {false, nullptr, data, n * kSizes[type], peer, stream});
}
Result ncclGroupStart() { return ++group_depth, Success; }
Result ncclGroupEnd() {
  if (--group_depth > 0 || group_messages.empty()) return Success;
  return group_comm->put(
      [comm = group_comm, messages = std::exchange(group_messages, {})] { return run_messages(comm, messages); });
}

}  // extern "C"
