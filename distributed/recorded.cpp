// Collectives in programs of compile().
#include "../compile/custom_call.h"
#include "../core/modes.h"
#include "group_state.h"
#include "nccl.h"
#include "socket.h"

// Note [Collectives in a program]
// A collective is two custom calls of a program: one begins it, and one stands where somebody waits for it, so that a replay
// computes meanwhile what eager code does. A collective that nobody waits for inside is waited for at once, as all are in the recording.
// With NCCL a program on a device is one graph: capturing puts the collectives on the communicator's stream, which so joins the capture, in the
// order of the program; waits let the captured stream wait for them. A launch then runs them all in that order, as a run call by call would, so
// that ranks may differ in it. Before a launch the group is asked whether it has failed: the graph has kernels of a communicator
// that is gone then. Behind a launch one event stands for all its collectives: the watching thread asks after it.
namespace tapir::inline v0::distributed {

namespace {

struct Running {
  Work work;
  std::shared_ptr<cuda::Event> captured;
  ProcessGroup group;                     // which a graph keeps: its kernels belong to the communicator
  bool waited = false, recorded = false;  // recorded: now
};
using Tensors = std::vector<Tensor>;

struct Begin final : tapir::detail::CustomFunction {
  int64_t id;
  Call call;  // without its tensors
  std::shared_ptr<Running> running;
  bool in_place, on_device;

  Call with(const Tensors& reads, const Tensors& writes) const {
    Call now = call;
    if (!writes.empty()) now.out = writes[0];
    if (!reads.empty()) now.in = in_place ? now.out : reads[0];
    mark_ready(now);
    return now;
  }
  void run(const Tensors& reads, const Tensors& writes) const override {
    running->work.wait();  // a replay ended between the two
    running->work = GroupState::of(find_group(id)).submit(with(reads, writes), nullptr, true);
    if (running->waited) return;
    const Work work = std::exchange(running->work, {});
    work.wait();
    if (running->recorded) GroupState::of(work)->until_let_go();  // tensors of the call must go when it lets go of them
  }
  bool is_capturable() const override { return on_device; }
  void capture(const Tensors& reads, const Tensors& writes) const override {
    running->group = find_group(id);
    running->captured = GroupState::of(running->group).capture(with(reads, writes));
    if (!running->waited) wait_captured(*running);
  }
  static void wait_captured(Running& r) {
    const auto event = std::exchange(r.captured, nullptr);
    cuda::current_stream(event->device()).wait_event(*event);
  }
  void before_launch() const override { GroupState::of(running->group).about_to_launch(call); }
  void after_launch() const override { GroupState::of(running->group).launched(); }
};

struct Wait final : tapir::detail::CustomFunction {
  std::shared_ptr<Running> running;
  bool on_device;
  void run(const Tensors&, const Tensors&) const override { std::exchange(running->work, {}).wait(); }
  bool is_capturable() const override { return on_device; }
  void capture(const Tensors&, const Tensors&) const override { Begin::wait_captured(*running); }
};

}  // namespace

Work GroupState::record(Call call, std::function<void()> finish, bool async_op) {
  auto begin = std::make_unique<Begin>();
  const auto running = begin->running = std::make_shared<Running>();
  const bool on_device = begin->on_device = runs_on_device(call) && !debug;
  Tensors reads, writes;
  begin->in_place = call.in.defined() && call.in.is_same(call.out);
  if (call.in.defined()) reads.push_back(std::exchange(call.in, {}));
  if (call.out.defined()) writes.push_back(std::exchange(call.out, {}));
  call.ready = {};
  const char* name = name_of(call.signature.op);
  begin->id = id, begin->call = std::move(call);
  running->recorded = true;
  tapir::detail::custom_call(name, reads, writes, begin.release());
  running->recorded = false;
  auto* state = new WorkState;
  Work work(state);
  state->done = true;
  state->finish = [running, writes, on_device, finish = std::move(finish)] {
    running->waited |= modes.recorder != nullptr;
    auto wait = std::make_unique<Wait>();
    wait->running = running, wait->on_device = on_device;
    tapir::detail::custom_call("wait", writes, writes, wait.release());
    if (finish) finish();
  };
  if (!async_op) work.wait();
  return work;
}

/// Puts it into the graph that this thread captures; the event stands behind it there.
std::shared_ptr<cuda::Event> GroupState::capture(const Call& call) {
  bool fatal = false;
  Started started;
  const Failure why = nccl->start(call, options.timeout, fatal, started);
  check_runtime(!why, "[{}] {}, in a graph: {}", name_of(call.signature.op), text_of(call.signature), why.text);
  return started.done;
}

void GroupState::about_to_launch(const Call& call) {
  const std::lock_guard lock(mutex_);
  if (failed_) throw_failure(has_failed(call.signature, failed_));
  Task task{call, new WorkState, 0};
  task.call.signature.sequence = ++sequence_;
  task.flight = log(task.call);
  mark(task.flight, "running", &Flight::began);
  launching_.push_back(std::move(task));
}

void GroupState::launched() {
  if (launching_.empty()) return;
  const Device device = launching_[0].call.device;
  Started started{.done = std::make_shared<cuda::Event>(cuda::current_stream(device.index).record_event()),
                  .deadline = now() + options.timeout,
                  .timeout = options.timeout};
  {
    const std::lock_guard lock(mutex_);
    for (Task& task : std::exchange(launching_, {})) flying_.push_back({std::move(task), started});
  }
  flew_.notify_one();
}

}  // namespace tapir::inline v0::distributed
