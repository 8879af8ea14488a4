// A library with NCCL's interface, for tests of what Tapir does with it; NVIDIA's own needs GPUs. Every rank sends what it has to rank 0, over
// a socket, which computes and answers. A thread does the calls, in their order. They are "in progress" first, as those of a communicator that
// does not block: on emulated devices until somebody has asked, and the call then is on its stream; on the host until it is done.
// What would hang, race or crash in NVIDIA's library is refused here, with words for ncclGetLastError: ranks whose calls or messages differ;
// operands that overlap otherwise than in place, or are not aligned; calls before the last one is over, in a group that takes none, of a
// communicator that is gone; and where Tapir's devices are emulated (../../cuda_emulation/beside.h): a stream or memory that is not the
// communicator's device's, a missing wait, memory that is freed before the end. Calls on a captured stream are made by each launch of the graph.
// nccl_stand_in_calls() tells what was called: "captured ..." first for those.
// NCCL_STAND_IN says what goes wrong: "init_hang", "init_error", or, of the K-th collective here, "hang=K" (never ends), "remote_error=K",
// "cuda_error=K", "invalid_argument=K" (the call refuses), "slow=K" (it takes half a second).
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
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../cuda_emulation/beside.h"
#include "bytes.h"

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
struct ncclComm;
extern "C" const char* ncclGetLastError(ncclComm*);

namespace {

using cuda_emulation::Part, cuda_emulation::Parts;
const cuda_emulation::Beside* const devices = cuda_emulation::beside();  // null: memory is the host's

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

std::mutex words_mutex;
/// What ncclGetLastError() says: of the whole process, as NVIDIA's; texts stay where they are.
std::deque<std::string>& words() {
  static auto* const all = new std::deque<std::string>{""};
  return *all;
}
Result refuse(Result result, std::string why) {
  const std::lock_guard lock(words_mutex);
  words().push_back(std::move(why));
  return result;
}

struct Message {
  int64_t peer, bytes, sends;
};

/// One operation of one rank: what it is called, which must be the same on all, and its memory.
struct Operation {
  std::string text;
  std::vector<Part> reads, writes;  // host memory is filled in when it starts
  /// What rank 0 makes of all ranks' bytes: for each rank, its writes one after the other.
  using Answers = std::vector<Bytes>(const std::vector<Bytes>&);
  std::function<Answers> answer;
  std::vector<Message> messages = {};  // in place of an answer
};
/// An operation on its way: its bytes here, and the emulation's call.
struct Flight {
  std::shared_ptr<Operation> op;
  Bytes mine, plan, results;  // plan: the messages
  void* call = nullptr;
  ~Flight() {
    if (call) devices->drop_call(call);
  }
  static void place(std::vector<Part>& parts, Bytes& bytes) {
    size_t total = 0;
    for (const Part& p : parts) total += p.bytes;
    bytes.resize(total);
    total = 0;
    for (Part& p : parts) p.host = bytes.data() + total, total += p.bytes;
  }
  static Parts all(const std::vector<Part>& parts) { return {parts.data(), parts.size()}; }
  /// "", or why it cannot be.
  std::string begin(int device, void* stream) {
    place(op->reads, mine), place(op->writes, results);
    plan.assign(reinterpret_cast<const char*>(op->messages.data()), op->messages.size() * sizeof(Message));
    const char* why = "";
    if (devices)
      call = devices->begin_call(("nccl " + op->text).c_str(), device, stream, all(op->reads), all(op->writes), why);
    return devices && !call ? why : "";
  }
  std::string run() {
    if (devices) return devices->run_call(call, all(op->reads), all(op->writes));
    for (const Part& p : op->reads) std::memcpy(p.host, p.device, p.bytes);
    return {};
  }
  std::string end() {
    if (devices) return devices->end_call(std::exchange(call, nullptr), all(op->writes));
    for (const Part& p : op->writes) std::memcpy(p.device, p.host, p.bytes);
    return {};
  }
};

/// The messages of a group: to each rank what it receives, in its order. The k-th from one rank to another meets the k-th receive there.
std::vector<Bytes> deliver(const std::vector<Bytes>& plans, const std::vector<Bytes>& data, std::string& wrong) {
  const size_t n = plans.size();
  std::vector<std::vector<Message>> rows(n);
  std::vector<std::vector<std::deque<Bytes>>> sent(n, std::vector<std::deque<Bytes>>(n));  // [from][to]
  for (size_t r = 0; r < n; ++r) {
    rows[r].resize(plans[r].size() / sizeof(Message));
    if (!plans[r].empty()) std::memcpy(rows[r].data(), plans[r].data(), plans[r].size());
    size_t at = 0;
    for (const Message& m : rows[r])
      if (m.sends) sent[r][size_t(m.peer)].push_back(data[r].substr(at, size_t(m.bytes))), at += size_t(m.bytes);
  }
  const auto rank = [](size_t r) { return "rank " + std::to_string(r); };
  std::vector<Bytes> out(n);
  for (size_t r = 0; r < n; ++r)
    for (const Message& m : rows[r]) {
      if (m.sends) continue;
      auto& from = sent[size_t(m.peer)][r];
      if (from.empty() || int64_t(from.front().size()) != m.bytes)
        return wrong = rank(r) + " expects " + std::to_string(m.bytes) + " bytes from " + rank(size_t(m.peer)) +
                       ", which sends " + (from.empty() ? "none" : std::to_string(from.front().size())),
               out;
      out[r] += from.front();
      from.pop_front();
    }
  for (size_t r = 0; r < n; ++r)
    for (size_t to = 0; to < n; ++to)
      if (!sent[r][to].empty())
        return wrong = rank(r) + " sends " + std::to_string(sent[r][to].front().size()) + " bytes to " + rank(to) +
                       ", which does not receive them",
               out;
  return out;
}

std::mutex comms_mutex;
std::set<ncclComm*>& comms() {  // that live
  static auto* const all = new std::set<ncclComm*>;
  return *all;
}
std::deque<std::string>& calls_made() {
  static auto* const all = new std::deque<std::string>;
  return *all;
}

}  // namespace

struct ncclComm {
  int rank, size, device = -1, calls = 0;
  bool finalized = false;
  std::vector<int> fds;  // rank 0: of each rank; else of rank 0. The thread alone writes them, under the mutex
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<Result()>> work;
  std::atomic<int> state{InProgress};
  std::atomic<bool> aborted{false}, connected{false}, unasked{false};
  bool stop = false;
  std::thread thread;

  Result hang() {
    while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return RemoteError;
  }
  void keep(size_t who, int fd) {
    const std::lock_guard lock(mutex);
    fds[who] = fd;
    if (aborted && fd >= 0) shutdown(fd, SHUT_RDWR);
  }
  Result connect_all(uint16_t port) {
    if (is_fault("init_hang")) return hang();
    if (is_fault("init_error")) return refuse(SystemError, "no such network");
    if (rank == 0) {
      for (int i = 1; i < size; ++i) {
        const int fd = accept(listener, nullptr, nullptr);
        int32_t who = 0;
        if (fd < 0 || !recv_all(fd, &who, sizeof who)) return SystemError;
        keep(size_t(who), fd);
      }
      return Success;
    }
    sockaddr_in to{};
    to.sin_family = AF_INET, to.sin_port = htons(port), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    keep(0, socket(AF_INET, SOCK_STREAM, 0));
    const int32_t me = rank;
    const bool done =
        connect(fds[0], reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 && send_all(fds[0], &me, sizeof me);
    return done ? Success : SystemError;
  }
  /// Rank 0 compares what the ranks call, and answers each with its results, or with what is wrong.
  Result exchange(int number, Flight& f) {
    const auto lost = [] { return refuse(RemoteError, "connection closed by remote peer"); };
    Bytes wrong, reply;
    if (wrong = f.run(); !wrong.empty()) return refuse(InvalidUsage, wrong);
    if (rank != 0) {
      if (!send_bytes(fds[0], f.op->text) || !send_bytes(fds[0], f.plan) || !send_bytes(fds[0], f.mine)) return lost();
      if (!recv_bytes(fds[0], wrong) || !recv_bytes(fds[0], reply)) return lost();
    } else {
      std::vector<Bytes> texts{f.op->text}, plans{f.plan}, all{f.mine};
      for (int r = 1; r < size; ++r)
        for (auto* list : {&texts, &plans, &all})
          if (!recv_bytes(fds[size_t(r)], list->emplace_back())) return lost();
      for (int r = 1; r < size && wrong.empty(); ++r)
        if (texts[size_t(r)] != texts[0])
          wrong = "call " + std::to_string(number) + ": rank 0 calls " + texts[0] + ", rank " + std::to_string(r) +
                  " calls " + texts[size_t(r)];
      std::vector<Bytes> out(texts.size());
      if (wrong.empty()) out = f.op->answer ? f.op->answer(all) : deliver(plans, all, wrong);
      for (int r = 1; r < size; ++r)
        if (!send_bytes(fds[size_t(r)], wrong) || !send_bytes(fds[size_t(r)], out[size_t(r)])) return lost();
      reply = out[0];
    }
    if (!wrong.empty()) return refuse(InvalidUsage, wrong);
    if (reply.size() == f.results.size()) std::memcpy(f.results.data(), reply.data(), reply.size());
    wrong = f.end();
    return wrong.empty() ? Success : refuse(InvalidUsage, wrong);
  }
  void run() {
    for (;;) {
      std::function<Result()> f;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return stop || !work.empty(); });
        if (stop) return;
        f = std::move(work.front());
      }
      const Result r = f();
      const std::lock_guard lock(mutex);
      if (r != Success) {  // what is on its way hangs until ncclCommAbort
        work.front() = std::move(f);
        state = r;
        return;
      }
      work.pop_front();
      if (work.empty()) state = r;
      connected = true;
    }
  }
  Result put(Operation operation, void* stream) {
    const int call = ++calls;
    {
      const std::lock_guard lock(comms_mutex);
      calls_made().push_back(operation.text);
    }
    if (call == number_of("invalid_argument")) return refuse(InvalidArgument, "count is none");
    if (devices && devices->is_captured(stream)) {
      calls_made().back().insert(0, "captured ");
      devices->keep_call(stream, [this, operation](void* s) { return launched(operation, s); });
      return unasked = true, InProgress;
    }
    return put_flight(call, std::move(operation), stream);
  }
  /// By a graph: "", or why not.
  std::string launched(const Operation& operation, void* stream) {
    {
      const std::lock_guard lock(comms_mutex);
      if (!comms().contains(this)) return "a graph holds " + operation.text + " of a communicator that is gone";
      calls_made().push_back(operation.text);
    }
    const Result r = put_flight(++calls, operation, stream);
    unasked = false;
    return r == InProgress ? "" : ncclGetLastError(this);
  }
  Result put_flight(int call, Operation operation, void* stream) {
    const auto flight = std::make_shared<Flight>();
    flight->op = std::make_shared<Operation>(std::move(operation));
    if (const std::string why = flight->begin(device, stream); !why.empty()) return refuse(InvalidUsage, why);
    std::function<Result()> f = [=, this] { return exchange(call, *flight); };
    if (call == number_of("slow"))
      f = [slow = std::move(f)] { return std::this_thread::sleep_for(std::chrono::milliseconds(500)), slow(); };
    if (call == number_of("hang")) f = [this, flight] { return hang(); };
    if (call == number_of("remote_error")) f = [] { return refuse(RemoteError, "remote process has ended"); };
    if (call == number_of("cuda_error")) f = [] { return refuse(UnhandledCudaError, "an illegal memory access"); };
    return put_now(std::move(f));
  }
  Result put_now(std::function<Result()> f) {
    std::lock_guard lock(mutex);
    work.push_back(std::move(f));
    state = InProgress, unasked = true;
    changed.notify_all();
    return InProgress;
  }
  /// What its user can see: is the last call on its stream?
  Result seen(bool asks) {
    const auto now = Result(state.load());
    if (now != InProgress || !devices || !connected || finalized) return now;
    return (asks ? unasked.exchange(false) : unasked.load()) ? InProgress : Success;
  }
  void end() {
    aborted = true;
    {
      std::lock_guard lock(mutex);
      for (const int fd : fds)
        if (fd >= 0) shutdown(fd, SHUT_RDWR);
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

// ---- what is called when
thread_local int group_depth = 0;
thread_local Result group_error = Success;
struct Grouped {
  ncclComm* comm;
  void* stream;
  Operation operation;  // or one message, and its memory
  std::vector<Message> message = {};
};
thread_local std::vector<Grouped> group;

/// Before a call of the communicator; in_progress: may the last one still be?
Result ready(const char* call, ncclComm* comm, bool in_progress = false) {
  {
    const std::lock_guard lock(comms_mutex);
    if (!comms().contains(comm))
      return refuse(InvalidArgument,
                    std::string(call) + " of a communicator that was destroyed or aborted, or is none");
  }
  const auto state = comm->seen(false);
  if (state != Success && state != InProgress) return state;
  if (state == InProgress && !in_progress)
    return refuse(InvalidArgument, std::string(call) + " before the previous call is over");
  return Success;
}
Result outside_groups(const char* call) {
  return group_depth ? refuse(InvalidUsage, std::string(call) + " between ncclGroupStart and ncclGroupEnd") : Success;
}
Result finish(Result r) { return group_depth && r != Success ? group_error = r : r; }

/// Operands are one or apart; where one is a part of the other, `part` bytes of it, it is the rank's own.
std::string overlap(const ncclComm& comm, const void* in, size_t in_bytes, const void* out, size_t out_bytes) {
  const auto a = uintptr_t(in), b = uintptr_t(out);
  const size_t own = size_t(comm.rank) * std::min(in_bytes, out_bytes);
  const bool in_place = in_bytes == out_bytes ? a == b : in_bytes < out_bytes ? a == b + own : b == a + own;
  if (in_place || a + in_bytes <= b || b + out_bytes <= a) return {};
  return "operands overlap, and not as in-place ones do";
}

std::string text_of(const char* name, size_t n, int type, int op = -1, int root = -1) {
  std::string text = name;
  if (op >= 0) text += "(" + std::string(kReductions[op]) + ")";
  if (root >= 0) text += "(root " + std::to_string(root) + ")";
  return text + " of " + std::to_string(n) + " x " + kTypes[type];
}

Result collective(const std::string& text, const void* in, size_t in_bytes, void* out, size_t out_bytes, size_t item,
                  ncclComm* comm, void* stream, std::function<Operation::Answers> answer) {
  if (const Result r = ready(text.c_str(), comm); r != Success) return finish(r);
  if (comm->finalized) return finish(refuse(InvalidUsage, text + " after ncclCommFinalize"));
  std::string why = out_bytes ? overlap(*comm, in, in_bytes, out, out_bytes) : "";
  if (uintptr_t(in) % item || uintptr_t(out) % item) why = "operands are not aligned to their elements";
  if (!why.empty()) return finish(refuse(InvalidArgument, text + ": " + why));
  Operation op{text, {{const_cast<void*>(in), nullptr, in_bytes}}, {}, std::move(answer)};
  if (out_bytes) op.writes.push_back({out, nullptr, out_bytes});
  if (group_depth == 0) return comm->put(std::move(op), stream);
  group.push_back({comm, stream, std::move(op)});
  return Success;
}

Result message(bool sends, void* data, size_t n, int type, int peer, ncclComm* comm, void* stream) {
  const char* name = sends ? "ncclSend" : "ncclRecv";
  if (const Result r = ready(name, comm); r != Success) return finish(r);
  if (comm->finalized) return finish(refuse(InvalidUsage, std::string(name) + " after ncclCommFinalize"));
  if (peer < 0 || peer >= comm->size) return finish(refuse(InvalidArgument, std::string(name) + ": no such peer"));
  if (group_depth == 0) return refuse(InvalidUsage, std::string(name) + ": this library knows it in groups only");
  const Part part{data, nullptr, n * kSizes[type]};
  Operation memory;
  (sends ? memory.reads : memory.writes).push_back(part);
  group.push_back({comm, stream, std::move(memory), {{peer, int64_t(part.bytes), sends}}});
  return Success;
}

/// The calls of a group, all messages of a communicator as one.
Result start_group(std::vector<Grouped> all) {
  Result result = Success;
  const auto put = [&](ncclComm* comm, Operation op, void* stream) {
    const Result r = comm->put(std::move(op), stream);
    if (result == Success || (result == InProgress && r != Success)) result = r;
  };
  for (Grouped& g : all) {
    if (!g.comm) continue;
    if (g.message.empty()) {
      put(g.comm, std::move(g.operation), g.stream);
      continue;
    }
    Operation op{"a group of messages", {}, {}, {}};
    for (Grouped& m : all) {
      if (m.comm != g.comm || m.message.empty()) continue;
      if (m.stream != g.stream) return refuse(InvalidUsage, "a group of messages on two streams");  // here alone
      for (const Part& p : m.operation.reads) op.reads.push_back(p);
      for (const Part& p : m.operation.writes) op.writes.push_back(p);
      op.messages.push_back(m.message[0]);
      if (&m != &g) m.comm = nullptr;
    }
    put(g.comm, std::move(op), g.stream);
  }
  return result;
}
}  // namespace

extern "C" {

/// How many calls, and the text of one.
size_t nccl_stand_in_calls(size_t index, const char** text) {
  const std::lock_guard lock(comms_mutex);
  if (index < calls_made().size()) *text = calls_made()[index].c_str();
  return calls_made().size();
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
  if (const Result r = outside_groups("ncclCommInitRankConfig"); r != Success) return r;
  if (config->size != 24 || config->magic != 0xcafebeef || config->version < 21400 || config->blocking != 0)
    return refuse(InvalidArgument, "no such configuration");
  auto* comm = *out = new ncclComm{};
  comm->rank = rank, comm->size = size, comm->fds.assign(size_t(size), -1),
  comm->device = devices ? devices->current_device() : -1;
  uint16_t port;
  std::memcpy(&port, id.internal, sizeof port);
  comm->put_now([comm, port] { return comm->connect_all(port); });
  comm->thread = std::thread([comm] { comm->run(); });
  const std::lock_guard lock(comms_mutex);
  return comms().insert(comm), InProgress;
}
Result ncclCommFinalize(ncclComm* comm) {
  if (const Result r = outside_groups("ncclCommFinalize"); r != Success) return r;
  if (const Result r = ready("ncclCommFinalize", comm, true); r != Success) return r;
  comm->finalized = true;
  return comm->state == Success ? Success : InProgress;
}
static Result destroy(const char* call, ncclComm* comm) {
  if (const Result r = outside_groups(call); r != Success) return r;
  {
    const std::lock_guard lock(comms_mutex);
    if (!comms().erase(comm)) return refuse(InvalidArgument, std::string(call) + " of a communicator that is gone");
  }
  return comm->end(), Success;
}
Result ncclCommDestroy(ncclComm* comm) { return destroy("ncclCommDestroy", comm); }
Result ncclCommAbort(ncclComm* comm) { return destroy("ncclCommAbort", comm); }
Result ncclCommGetAsyncError(ncclComm* comm, Result* result) {
  const std::lock_guard lock(comms_mutex);
  if (!comms().contains(comm)) return refuse(InvalidArgument, "ncclCommGetAsyncError of a communicator that is gone");
  return *result = comm->seen(true), Success;
}
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
const char* ncclGetLastError(ncclComm*) {
  const std::lock_guard lock(words_mutex);
  return words().back().c_str();
}

Result ncclAllReduce(const void* in, void* out, size_t n, int type, int op, ncclComm* comm, void* stream) {
  const size_t bytes = n * kSizes[type];
  return collective(text_of("all_reduce", n, type, op), in, bytes, out, bytes, kSizes[type], comm, stream,
                    [=](const std::vector<Bytes>& all) { return std::vector(all.size(), reduced(all, type, op)); });
}
Result ncclBroadcast(const void* in, void* out, size_t n, int type, int root, ncclComm* comm, void* stream) {
  const size_t bytes = n * kSizes[type];
  return collective(text_of("broadcast", n, type, -1, root), in, bytes, out, bytes, kSizes[type], comm, stream,
                    [=](const std::vector<Bytes>& all) { return std::vector(all.size(), all[size_t(root)]); });
}
Result ncclReduce(const void* in, void* out, size_t n, int type, int op, int root, ncclComm* comm, void* stream) {
  const size_t bytes = n * kSizes[type], written = comm->rank == root ? bytes : 0;
  return collective(text_of("reduce", n, type, op, root), in, bytes, out, written, kSizes[type], comm, stream,
                    [=](const std::vector<Bytes>& all) {
                      std::vector<Bytes> replies(all.size());
                      replies[size_t(root)] = reduced(all, type, op);
                      return replies;
                    });
}
Result ncclAllGather(const void* in, void* out, size_t n, int type, ncclComm* comm, void* stream) {
  const size_t bytes = n * kSizes[type];
  return collective(text_of("all_gather", n, type), in, bytes, out, bytes * size_t(comm->size), kSizes[type], comm,
                    stream, [](const std::vector<Bytes>& all) {
                      Bytes joined;
                      for (const Bytes& b : all) joined += b;
                      return std::vector(all.size(), joined);
                    });
}
Result ncclReduceScatter(const void* in, void* out, size_t n, int type, int op, ncclComm* comm, void* stream) {
  const size_t bytes = n * kSizes[type];
  return collective(text_of("reduce_scatter", n, type, op), in, bytes * size_t(comm->size), out, bytes, kSizes[type],
                    comm, stream, [=](const std::vector<Bytes>& all) {
                      const Bytes sum = reduced(all, type, op);
                      std::vector<Bytes> parts;
                      for (size_t r = 0; r < all.size(); ++r) parts.push_back(sum.substr(r * bytes, bytes));
                      return parts;
                    });
}
Result ncclSend(const void* data, size_t n, int type, int peer, ncclComm* comm, void* stream) {
  return message(true, const_cast<void*>(data), n, type, peer, comm, stream);
}
Result ncclRecv(void* data, size_t n, int type, int peer, ncclComm* comm, void* stream) {
  return message(false, data, n, type, peer, comm, stream);
}
Result ncclGroupStart() { return ++group_depth, Success; }
Result ncclGroupEnd() {
  if (group_depth == 0) return refuse(InvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group_depth > 0) return Success;
  const Result error = std::exchange(group_error, Success);
  const auto all = std::exchange(group, {});
  return error == Success ? start_group(all) : error;
}

}  // extern "C"
