#include "process_group.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

#include "../autograd/record.h"
#include "../core/modes.h"
#include "group_state.h"
#include "nccl.h"
#include "plan.h"
#include "socket.h"

namespace tapir::inline v0::distributed {

namespace {

/// Groups that live, and the default one. Never destroyed: a group may outlive every static object.
struct Registry {
  std::mutex mutex;
  std::vector<GroupState*> groups;
  ProcessGroup main;
  int64_t last_id = 0;
  std::map<std::string, int64_t> meetings;
};
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

/// x as the group's thread wants it: contiguous, and on the host unless the group works on x's device; x itself where it is so.
Tensor placed(const char* op, const GroupState& s, const Tensor& x) {
  NoGrad guard;
  check(!s.runs_on_device(x) || x.device().index == s.nccl->device(),
        "[{}] expected a tensor of the group's device, cuda:{}, got {} of {}", op, s.nccl ? s.nccl->device() : 0, x,
        x.device());
  const Tensor there = x.device() == kCPU || s.runs_on_device(x) ? x : x.cpu();
  return there.is_contiguous() ? there.detach() : there.contiguous().detach();
}

/// x as messages travel: contiguous, on the host, whatever the group's collectives run on.
Tensor on_host(const Tensor& x) {
  NoGrad guard;
  return (x.device() == kCPU ? x : x.cpu()).contiguous().detach();
}

/// Before a collective writes to x.
void check_output(const char* op, const Tensor& x) {
  check_writable(op, x);
  check(!may_overlap(x.shape(), x.strides()),
        "[{}] expected a tensor whose elements have places of their own, got strides {} for shape {} (an expanded "
        "tensor: clone() it)",
        op, x.strides(), x.shape());
  bump_version(x);
}
/// Takes what arrived to where it belongs; nothing where it lies there.
std::function<void()> write_back(const Tensor& x, const Tensor& host) {
  if (x.device() == host.device() && x.data_ptr() == host.data_ptr()) return nullptr;
  return [x, host] {
    NoGrad guard;
    used_here(host);
    Tensor to = x.detach();
    to.copy_(host);
  };
}
void check_reduction(const char* op, const Tensor& x, ReduceOp reduce) {
  check(reduce != ReduceOp::Mean || is_floating(x.dtype()),
        "[{}] expected a floating point dtype for the mean, got {} (take the sum, and divide)", op, x.dtype());
}
void check_rank(const char* op, const char* name, int64_t rank, int64_t size) {
  check(rank >= 0 && rank < size, "[{}] expected {} in [0, {}), got {}", op, name, size, rank);
}
void check_parts(const char* op, const char* whole_name, const Tensor& whole, const Tensor& part, int64_t size) {
  check(whole.dtype() == part.dtype() && whole.device() == part.device() && whole.numel() == part.numel() * size,
        "[{}] expected {} to hold {} times {}, got {}", op, whole_name, size, part, whole);
}

Call call_of(Collective op, const Tensor& in, const Tensor& out, ReduceOp reduce = ReduceOp::Sum, int64_t root = -1) {
  Call call;
  call.signature = {
      .op = op, .reduce = uint8_t(reduce), .dtype = in.dtype(), .root = int32_t(root), .count = in.numel()};
  call.shape = in.shape();
  call.in = in, call.out = out, call.device = in.device();
  mark_ready(call);
  return call;
}

}  // namespace

void mark_ready(Call& call) {
  if (call.in.defined() && call.in.device().is_cuda())
    call.ready = std::make_shared<cuda::Event>(cuda::current_stream(call.in.device().index).record_event());
}

void used_here(const Tensor& x) {
  if (x.device().is_cuda()) cuda::record_stream(x, cuda::current_stream(x.device().index));
}

void retain(GroupState* group) { group->refs.fetch_add(1); }
void release(GroupState* group) {
  if (group->process != getpid()) return;  // its threads and its lock stayed behind
  bool last;
  {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);  // find_group() must not take hold of one that is going
    last = group->refs.fetch_sub(1) == 1;
    if (last) std::erase(r.groups, group);
  }
  if (last) delete group;
}
GroupState& ProcessGroup::state() const {
  check(bool(state_), "[ProcessGroup] expected a group that this process is a member of, got an empty one");
  return *state_;
}
int64_t ProcessGroup::rank() const { return state().rank; }
int64_t ProcessGroup::size() const { return state().size; }
int64_t ProcessGroup::id() const { return state().id; }
const LaunchInfo& ProcessGroup::launch() const { return state().launch; }
std::string ProcessGroup::flight_recorder() const { return state().flight_text(1000); }

Work ProcessGroup::all_reduce(const Tensor& x, ReduceOp op, bool async_op) const {
  check_reduction("all_reduce", x, op);
  check_output("all_reduce", x);
  const Tensor host = placed("all_reduce", state(), x);
  return state().submit(call_of(Collective::AllReduce, host, host, op), write_back(x, host), async_op);
}

Work ProcessGroup::broadcast(const Tensor& x, int64_t src, bool async_op) const {
  check_rank("broadcast", "src", src, size());
  check_output("broadcast", x);
  const Tensor host = placed("broadcast", state(), x);
  return state().submit(call_of(Collective::Broadcast, host, host, ReduceOp::Sum, src), write_back(x, host), async_op);
}

Work ProcessGroup::reduce(const Tensor& x, int64_t dst, ReduceOp op, bool async_op) const {
  check_rank("reduce", "dst", dst, size());
  check_reduction("reduce", x, op);
  if (rank() == dst) check_output("reduce", x);
  const Tensor host = placed("reduce", state(), x);
  return state().submit(call_of(Collective::Reduce, host, host, op, dst), rank() == dst ? write_back(x, host) : nullptr,
                        async_op);
}

Work ProcessGroup::all_gather(const Tensor& out, const Tensor& x, bool async_op) const {
  check_parts("all_gather", "out", out, x, size());
  check_output("all_gather", out);
  const Tensor host = placed("all_gather", state(), out);
  return state().submit(call_of(Collective::AllGather, placed("all_gather", state(), x), host), write_back(out, host),
                        async_op);
}

Work ProcessGroup::reduce_scatter(const Tensor& out, const Tensor& x, ReduceOp op, bool async_op) const {
  check_parts("reduce_scatter", "x", x, out, size());
  check_reduction("reduce_scatter", x, op);
  check_output("reduce_scatter", out);
  const Tensor host = placed("reduce_scatter", state(), out);
  return state().submit(call_of(Collective::ReduceScatter, placed("reduce_scatter", state(), x), host, op),
                        write_back(out, host), async_op);
}

static std::vector<int64_t> sizes_or_equal(const char* name, const Tensor& x, std::vector<int64_t> sizes,
                                           int64_t size) {
  check(x.dim() > 0, "[all_to_all] expected {} with a first dimension to split, got shape {}", name, x.shape());
  if (sizes.empty()) {
    check(x.size(0) % size == 0, "[all_to_all] expected {} to split into {} equal parts, got shape {}", name, size,
          x.shape());
    sizes.assign(size_t(size), x.size(0) / size);
  }
  const bool fit = int64_t(sizes.size()) == size &&
                   std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n >= 0; }) &&
                   std::accumulate(sizes.begin(), sizes.end(), int64_t(0)) == x.size(0);
  check(fit, "[all_to_all] expected {} sizes with the sum {} for {}, got {}", size, x.size(0), name, Dims(sizes));
  return sizes;
}

Work ProcessGroup::all_to_all(const Tensor& out, const Tensor& x, const std::vector<int64_t>& out_sizes,
                              const std::vector<int64_t>& in_sizes, bool async_op) const {
  check(out.dtype() == x.dtype() && out.device() == x.device() && out.dim() == x.dim(),
        "[all_to_all] expected out like x, {}, got {}", x, out);
  const Tensor host = placed("all_to_all", state(), out);
  Call call = call_of(Collective::AllToAll, placed("all_to_all", state(), x), host);
  call.signature.count = -1;
  call.in_sizes = sizes_or_equal("x", x, in_sizes, size());
  call.out_sizes = sizes_or_equal("out", out, out_sizes, size());
  check(call.in_sizes[size_t(rank())] == call.out_sizes[size_t(rank())],
        "[all_to_all] expected this rank's own part to have one size, got {} in x and {} in out",
        call.in_sizes[size_t(rank())], call.out_sizes[size_t(rank())]);
  for (int64_t d = 1; d < x.dim(); ++d)
    check(x.size(d) == out.size(d), "[all_to_all] expected out like x but for dimension 0, {}, got {}", x, out);
  check_output("all_to_all", out);
  return state().submit(std::move(call), write_back(out, host), async_op);
}

Work ProcessGroup::send(const Tensor& x, int64_t dst, uint32_t tag, bool async_op) const {
  check_rank("send", "dst", dst, size());
  check(dst != rank(), "[send] expected another rank than this one, got {}", dst);
  const Tensor host = on_host(x);
  return state().message({.op = Collective::Send, .dtype = x.dtype(), .count = x.numel()}, tag, true, host, dst,
                         nullptr, async_op);
}

Work ProcessGroup::recv(const Tensor& x, int64_t src, uint32_t tag, bool async_op) const {
  check_rank("recv", "src", src, size());
  check(src != rank(), "[recv] expected another rank than this one, got {}", src);
  check_output("recv", x);
  const Tensor host = on_host(x);
  return state().message({.op = Collective::Send, .dtype = x.dtype(), .count = x.numel()}, tag, false, host, src,
                         write_back(x, host), async_op);
}

Work ProcessGroup::barrier(bool async_op) const {
  Call call;
  call.signature = {.op = Collective::Barrier};
  return state().submit(std::move(call), nullptr, async_op);
}

std::vector<std::string> ProcessGroup::all_gather_text(const std::string& text) const {
  Tensor length = empty({1}, {.dtype = kInt64}), lengths = empty({size()}, {.dtype = kInt64});
  length.data<int64_t>()[0] = int64_t(text.size());
  all_gather(lengths, length);
  const auto all = lengths.to_vector<int64_t>();
  const int64_t longest = *std::max_element(all.begin(), all.end());
  Tensor mine = empty({longest}, {.dtype = kUInt8}), texts = empty({size() * longest}, {.dtype = kUInt8});
  if (longest) std::memset(mine.data_ptr(), 0, size_t(longest));
  if (!text.empty()) std::memcpy(mine.data_ptr(), text.data(), text.size());
  all_gather(texts, mine);
  std::vector<std::string> out;
  for (int64_t r = 0; r < size(); ++r)
    out.emplace_back(static_cast<const char*>(texts.data_ptr()) + r * longest, size_t(all[size_t(r)]));
  return out;
}

static void enroll(GroupState& s) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  s.id = ++r.last_id;
  r.groups.push_back(&s);
}

/// "(0, 2)", of any number.
static std::string text_of(const std::vector<int64_t>& ranks) {
  std::string out;
  for (const int64_t r : ranks) out += (out.empty() ? "(" : ", ") + std::to_string(r);
  return out + ")";
}

ProcessGroup ProcessGroup::new_group(const std::vector<int64_t>& ranks) const {
  GroupState& parent = state();
  check_process("new_group", parent.process);
  std::vector<int64_t> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t r : ranks) check_rank("new_group", "ranks", r, size());
  check(!ranks.empty() && std::unique(sorted.begin(), sorted.end()) == sorted.end(),
        "[new_group] expected ranks that differ, at least one, got {}", text_of(ranks));
  const int64_t child = ++parent.children;
  const auto me = std::find(ranks.begin(), ranks.end(), parent.rank);
  if (me == ranks.end()) return ProcessGroup();
  auto* s = new GroupState;
  ProcessGroup group(s);
  enroll(*s);
  s->rank = me - ranks.begin(), s->size = int64_t(ranks.size());
  s->members = tapir::format("new_group of ranks {}", text_of(ranks));
  s->launch = parent.launch, s->options = parent.options, s->debug = parent.debug;
  s->store = parent.store, s->server = parent.server, s->address = parent.address, s->silence = parent.silence;
  s->prefix = tapir::format("{}group{}/", parent.prefix, child);
  s->open();
  return group;
}

/// How often this process has met others at that store, since the last restart: a launcher's store outlives destroy_process_group().
static int64_t times_before(const LaunchInfo& l) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  return r.meetings[tapir::format("{}:{} {} {}", l.address, l.port, l.rank, l.restart_count)]++;
}

/// Meets the others at the store.
static void rendezvous(GroupState& s) {
  const LaunchInfo& l = s.launch;
  if (s.rank == 0 && !l.store_hosted) {
    if (l.local_world_size < l.world_size) check_far("init_process_group", l.address);
    s.server = std::make_shared<StoreServer>(l.address, l.port, l.secret);
  }
  StoreOptions options{.secret = l.secret, .timeout = s.options.init_timeout};
  if (l.store_hosted) options.patience = options.timeout;  // it is there: perhaps it is held up
  s.store = std::make_shared<Store>(l.address, l.port, options);
  s.prefix = meeting_prefix(l.restart_count, times_before(l));
  check_runtime(s.store->add(tapir::format("{}claim/{}", s.prefix, s.rank), 1) == 1,
                "[init_process_group] expected one process of rank {}, got two", s.rank);
  const char* named = std::getenv("GLOO_SOCKET_IFNAME");
  const std::string interface = s.options.interface.empty() && named ? named : s.options.interface;
  s.address = interface.empty() ? s.store->local_address() : address_of_interface(interface);
}

ProcessGroup init_process_group(const ProcessGroupOptions& o) { return GroupState::join(o, launch_info(o.launch)); }

ProcessGroupOptions GroupState::checked(ProcessGroupOptions o) {
  check(o.backend == "tcp" || o.backend == "gloo" || o.backend == "nccl",
        "[init_process_group] expected backend tcp, gloo or nccl, got \"{}\"", o.backend);
  check_runtime(o.backend != "nccl" || cuda::is_available(),
                "[init_process_group] expected a CUDA device for backend nccl, got none: {}", cuda::why_not());
  check(o.timeout > 0 && o.init_timeout > 0, "[init_process_group] expected timeouts above 0, got {} and {}", o.timeout,
        o.init_timeout);
  check_runtime(
      o.backend != "gloo" || gloo_is_available(),
      "[init_process_group] expected a Tapir built with gloo, got one without: install libgloo-dev and configure "
      "again, or take backend \"tcp\"");
  constexpr double kForEver = 1e9;  // 30 years
  o.timeout = std::min(o.timeout, kForEver), o.init_timeout = std::min(o.init_timeout, kForEver);
  return o;
}

ProcessGroup GroupState::join(const ProcessGroupOptions& o, const LaunchInfo& place, double silence) {
  const ProcessGroupOptions options = checked(o);
  auto* s = new GroupState;
  ProcessGroup group(s);
  enroll(*s);
  s->launch = place;
  s->options = options, s->silence = silence;
  s->rank = s->launch.rank, s->size = s->launch.world_size;
  s->members = tapir::format("WORLD_SIZE {}", s->size);
  const char* debug = std::getenv("TAPIR_DISTRIBUTED_DEBUG");
  s->debug = o.debug.value_or(debug && std::strcmp(debug, "0") != 0);
  if (s->size > 1) rendezvous(*s);
  s->open();
  registry().main = group;
  return group;
}

bool is_initialized() { return bool(registry().main); }
ProcessGroup default_group() {
  check(is_initialized(), "[default_group] expected a group, got none: call init_process_group first");
  return registry().main;
}
void destroy_process_group() { registry().main = ProcessGroup(); }

ProcessGroup find_group(int64_t id) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  for (GroupState* s : r.groups)
    if (s->id == id) {
      s->refs.fetch_add(1);
      return ProcessGroup(s);
    }
  fail(ErrorKind::Value, "[find_group] expected the number of a group that lives, got {}", id);
}

Tensor all_reduce_sum(const Tensor& x, const ProcessGroup& group) {
  Tensor y;
  {
    NoGrad guard;
    y = x.detach().clone();
  }
  group.all_reduce(y);
  return record("all_reduce_sum", y, {x},
                [id = group.id()](const Tensor& g) { return Grads{all_reduce_sum(g, find_group(id))}; });
}

}  // namespace tapir::inline v0::distributed
