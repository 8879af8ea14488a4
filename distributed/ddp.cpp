#include "ddp.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "../autograd/node.h"
#include "../autograd/record.h"
#include "../compile/custom_call.h"
#include "../core/modes.h"
#include "../core/recorder.h"
#include "../core/versioned.h"
#include "../ops/cast.h"
#include "../ops/create.h"
#include "../ops/slicing.h"
#include "sync_batch_norm.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr const char* kName = "DistributedDataParallel";
constexpr int64_t kAlignment = 64;  // bytes: kernels take gradients in whole packs and lines

struct Param {
  std::string name;
  Tensor tensor, view;
  size_t bucket = 0;
  int64_t hook = 0;
  bool ready = false, unused = false;  // in this step, on this rank
  bool left_out = false;               // of all steps of a static graph
};

struct Bucket {
  GradBucket gradients;
  std::vector<size_t> params;
  size_t pending = 0;
};

/// The slice of a bucket that is x's gradient: x's shape and strides, and a version of its own.
Tensor slice_like(const Tensor& flat, int64_t at, const Tensor& x) {
  const auto [low, high] = extent_of(x.shape(), x.strides());
  const bool dense = low == 0 && high == x.numel() && !may_overlap(x.shape(), x.strides());
  Tensor view =
      dense ? alias(flat, x.shape(), x.strides(), at) : flat.narrow(0, at, x.numel()).view(x.shape()).detach();
  const int64_t item = size_of(x.dtype());
  TensorImpl& p = view.impl();
  p.storage = slice_storage(flat.impl().storage, at * item, x.numel() * item);
  p.offset = 0;
  return view;
}

/// The leaves that the outputs depend on.
std::unordered_set<const TensorImpl*> leaves_of(const std::vector<Tensor>& outputs) {
  std::unordered_set<const TensorImpl*> leaves;
  std::unordered_set<Node*> seen;
  std::vector<Node*> stack;
  const auto visit = [&](const Edge& e) {
    if (Node* n = e.node()) {
      if (seen.insert(n).second) stack.push_back(n);
    } else if (e.leaf().defined()) leaves.insert(e.leaf().impl_or_null());
  };
  for (const Tensor& y : outputs)
    if (y.defined() && y.requires_grad()) visit(edge_of(y));
  while (!stack.empty()) {
    Node* n = stack.back();
    stack.pop_back();
    for (uint32_t i = 0; i < n->num_edges; ++i) visit(n->edges[i]);
  }
  return leaves;
}

/// Every rank must have the same names, shapes and dtypes in the same order.
void check_same(const Reducer::Named& tensors, const char* what, const ProcessGroup& group) {
  std::string mine;
  for (const auto& [name, t] : tensors) mine += tapir::format("{}: {}\n", name, t);
  const auto texts = group.all_gather_text(mine);
  for (size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    std::string_view a = texts[0], b = texts[r];
    for (;;) {
      const auto line_a = a.substr(0, a.find('\n')), line_b = b.substr(0, b.find('\n'));
      if (line_a != line_b)
        fail(ErrorKind::Runtime, "[{}] expected the same {} on all ranks, got \"{}\" on rank 0 and \"{}\" on rank {}",
             kName, what, line_a, line_b, r);
      a.remove_prefix(line_a.size() + 1), b.remove_prefix(line_b.size() + 1);
    }
  }
}

uint64_t hash_of(const Tensor& x) {
  NoGrad guard;
  const Tensor host = x.detach().cpu().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(host.data_ptr());
  uint64_t h = 14695981039346656037u;  // FNV-1a
  for (int64_t i = 0; i < host.numel() * size_of(host.dtype()); ++i) h = (h ^ bytes[i]) * 1099511628211u;
  return h;
}

}  // namespace

struct ReducerState {
  std::atomic<int> refs{1};
  ProcessGroup group;
  DdpOptions options;
  tapir::detail::Owner<CommHook, tapir::detail::Delete> hook;
  std::vector<Param> params;
  std::vector<std::vector<Tensor>> buffers;  // those of one dtype and device travel together
  std::vector<Bucket> buckets;
  std::vector<size_t> arrived;  // in this step
  size_t next = 0;              // bucket to reduce
  int no_sync = 0;
  tapir::detail::Versioned talks{true};  // compiled programs know whether no_sync is 0
  bool armed = false, ordered = false;
  bool joining = false, shadowing = false;
  int64_t root = 0;  // whose buffers and order count: the first rank that has inputs

  void make_buckets(const std::vector<size_t>& order);
  tapir::detail::Handle<ReducerState> handle() {
    retain(this);
    return tapir::detail::Handle<ReducerState>(this);
  }
  bool is_on() const { return talks.flag() && modes.grad; }
  void arm();
  void arm_now();
  void on_gradient(size_t i);
  void mark_ready(size_t i);
  bool looks_for_unused() const { return options.static_graph ? !ordered : options.find_unused_parameters; }
  bool meet(bool here);
  void shadow();
  void finish();
  void share_buffers();
  void share_unused();
  void follow_arrival();
};

void ReducerState::make_buckets(const std::vector<size_t>& order) {
  buckets.clear();
  std::vector<std::pair<size_t, int64_t>> open;  // bucket and its elements, one for each dtype and device
  std::vector<int64_t> sizes, places(params.size());
  for (const size_t i : order) {
    const Tensor& x = params[i].tensor;
    const auto fits = [&](const auto& o) {
      const Tensor& first = params[buckets[o.first].params[0]].tensor;
      return first.dtype() == x.dtype() && first.device() == x.device();
    };
    auto found = std::find_if(open.begin(), open.end(), fits);
    const double cap =
        (found != open.end() && found->first > 0 ? options.bucket_cap_mb : options.first_bucket_mb) * 1048576;
    if (found != open.end() && double((found->second + x.numel()) * size_of(x.dtype())) > cap) {
      open.erase(found);
      found = open.end();
    }
    if (found == open.end()) {
      buckets.emplace_back();
      sizes.push_back(0);
      found = open.insert(open.end(), {buckets.size() - 1, 0});
    }
    params[i].bucket = found->first;
    buckets[found->first].params.push_back(i);
    places[i] = found->second;
    const int64_t unit = kAlignment / size_of(x.dtype());
    sizes[found->first] = found->second += (x.numel() + unit - 1) / unit * unit;
  }
  for (size_t b = 0; b < buckets.size(); ++b) {
    const Tensor& first = params[buckets[b].params[0]].tensor;
    GradBucket& g = buckets[b].gradients;
    g.group = group, g.index = b;
    g.buffer = zeros({sizes[b]}, {.dtype = first.dtype(), .device = first.device()});
    for (const size_t i : buckets[b].params) {
      Param& p = params[i];
      p.view = slice_like(g.buffer, places[i], p.tensor);
      g.gradients.push_back(p.view);
      if (const Tensor g = p.tensor.grad(); g.defined()) {
        p.view.copy_(g);
        p.tensor.set_grad(p.view);
      }
    }
  }
}

void ReducerState::arm() {
  tapir::detail::host_call("ddp_forward", [s = handle()] { s->arm_now(); });
}
void ReducerState::arm_now() {
  armed = true;
  next = 0;
  arrived.clear();
  for (Param& p : params) p.ready = p.left_out, p.unused = false;
  for (Bucket& b : buckets) b.pending = b.params.size();
}

void ReducerState::on_gradient(size_t i) {
  if (!talks.flag()) return;
  NoGrad guard;
  Param& p = params[i];
  check(armed,
        "[{}] expected gradients of one backward for each forward through it, got another one of \"{}\" (accumulate in "
        "the "
        "scope of no_sync())",
        kName, p.name);
  check(!p.left_out, "[{}] expected a static graph, which does not use \"{}\", got a gradient of it", kName, p.name);
  check(!p.ready, "[{}] expected one gradient of \"{}\" in a step, got a second one{}", kName, p.name,
        p.unused ? " (the outputs of forward did not depend on it)" : "");
  arrived.push_back(i);
  mark_ready(i);
}

void ReducerState::mark_ready(size_t i) {
  Param& p = params[i];
  p.ready = true;
  const Tensor g = p.tensor.grad();
  if (!g.defined()) p.view.zero_();
  else if (!g.is_same(p.view)) {
    p.view.copy_(g);
    p.tensor.set_grad(p.view);
  }
  --buckets[p.bucket].pending;
  try {
    while (next < buckets.size() && buckets[next].pending == 0) hook->begin(buckets[next++].gradients);
    if (next == buckets.size()) finish();
  } catch (...) {
    armed = false;  // the next forward does not ask for the rest
    throw;
  }
}

void ReducerState::finish() {
  tapir::detail::host_call("ddp_backward", [s = handle()] { s->armed = false; });
  for (const Bucket& b : buckets) hook->finish(b.gradients);
  if (looks_for_unused()) share_unused();
  if (!ordered && (options.static_graph || !options.find_unused_parameters))
    tapir::custom_call("ddp_order", {}, {}, [s = handle()](const auto&, const auto&) { s->follow_arrival(); });
}

/// The root's, by one collective for each list.
void ReducerState::share_buffers() {
  NoGrad guard;
  std::vector<Work> works;
  std::vector<Tensor> flats;
  for (const auto& list : buffers) {
    std::vector<Tensor> flat;
    for (const Tensor& b : list) flat.push_back(b.detach().reshape({b.numel()}));
    flats.push_back(cat(flat));
  }
  for (const Tensor& flat : flats) works.push_back(group.broadcast(flat, root, true));
  for (const Work& w : works) w.wait();
  for (size_t i = 0; i < flats.size(); ++i) {
    int64_t at = 0;
    for (const Tensor& b : buffers[i]) {
      if (group.rank() == root) {
        bump_version(b);  // as on the other ranks
        continue;
      }
      Tensor to = b.detach();
      to.copy_(flats[i].narrow(0, at, b.numel()).view(b.shape()));
      at += b.numel();
    }
  }
}

/// A parameter that some rank used has its mean everywhere; what none used keeps the gradient it had.
void ReducerState::share_unused() {
  const size_t n = params.size();
  Tensor seen = zeros({2, int64_t(n)}, {.dtype = kInt32});  // used somewhere, unused somewhere; a shadow has neither
  auto* used = seen.data<int32_t>();
  for (size_t i = 0; i < n && !shadowing; ++i) used[params[i].unused ? n + i : i] = 1;
  group.all_reduce(seen, ReduceOp::Max);
  for (size_t i = 0; i < n; ++i) {
    Param& p = params[i];
    check_runtime(!options.static_graph || used[i] + used[n + i] < 2,
                  "[{}] expected a static graph on all ranks, got \"{}\" used by some ranks and not by others", kName,
                  p.name);
    if (p.unused && used[i]) p.tensor.set_grad(p.view);
    p.left_out = options.static_graph && !used[i];
  }
}

void ReducerState::follow_arrival() {
  ordered = true;
  Tensor order = full({int64_t(params.size())}, -1, {.dtype = kInt64});
  std::copy(arrived.begin(), arrived.end(), order.data<int64_t>());
  group.broadcast(order, root);
  std::vector<size_t> wanted;
  for (const int64_t i : order.to_vector<int64_t>())
    if (i >= 0) wanted.push_back(size_t(i));
  for (Param& p : params)
    if (p.left_out) p.view = Tensor();
  make_buckets(wanted);
}

Reducer::Reducer(const Named& parameters, const Named& buffers, const ProcessGroup& group, const DdpOptions& options) {
  check(options.bucket_cap_mb > 0 && options.first_bucket_mb > 0, "[{}] expected bucket sizes above 0, got {} and {}",
        kName, options.bucket_cap_mb, options.first_bucket_mb);
  check(!options.compression || size_of(*options.compression) == 2,
        "[{}] expected compression to bfloat16 or float16, got {}", kName, options.compression.value_or(kFloat32));
  check_same(parameters, "parameters", group);
  check_same(buffers, "buffers", group);
  NoGrad guard;
  tapir::detail::Handle<ReducerState> s(new ReducerState);
  s->group = group, s->options = options;
  s->hook = decltype(s->hook)(new AllReduceHook(options.compression));
  for (const auto& [name, t] : buffers) {
    const auto alike = [&t = t](const auto& list) {
      return list[0].dtype() == t.dtype() && list[0].device() == t.device();
    };
    const auto found = std::find_if(s->buffers.begin(), s->buffers.end(), alike);
    if (found == s->buffers.end()) s->buffers.push_back({t});
    else found->push_back(t);
  }
  std::vector<Work> works;
  for (const auto* list : {&parameters, &buffers})
    for (const auto& [name, t] : *list) works.push_back(group.broadcast(t.detach(), 0, true));
  for (const Work& w : works) w.wait();
  for (const auto& [name, t] : parameters)
    if (t.requires_grad()) {
      s->params.emplace_back();
      s->params.back().name = name, s->params.back().tensor = t;
    }
  check(!s->params.empty(), "[{}] expected a module with a parameter that requires a gradient, got none", kName);
  std::vector<size_t> backwards(s->params.size());  // gradients arrive roughly so
  for (size_t i = 0; i < backwards.size(); ++i) backwards[i] = backwards.size() - 1 - i;
  s->make_buckets(backwards);
  for (size_t i = 0; i < s->params.size(); ++i)
    s->params[i].hook =
        s->params[i].tensor.register_post_accumulate_grad_hook([p = s.get(), i](const Tensor&) { p->on_gradient(i); });
  state_ = std::move(s);
}

void retain(ReducerState* s) { s->refs.fetch_add(1, std::memory_order_relaxed); }
void release(ReducerState* s) {
  if (s->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete s;
}
Reducer::~Reducer() {
  for (const Param& p : state_->params) p.tensor.remove_hook(p.hook);
}

void Reducer::begin_no_sync() { state_->talks.set_flag(++state_->no_sync == 0); }
void Reducer::end_no_sync() { state_->talks.set_flag(--state_->no_sync == 0); }

void Reducer::before_forward() {
  ReducerState& s = *state_;
  if (!s.is_on()) return;
  if (s.armed && !s.arrived.empty()) {
    std::string missing;
    for (const Param& p : s.params)
      if (!p.ready) missing += (missing.empty() ? "" : ", ") + p.name;
    s.armed = false;
    fail(ErrorKind::Runtime,
         "[{}] expected the last backward to give a gradient to every parameter, got none for: {} "
         "(find_unused_parameters "
         "allows it)",
         kName, missing);
  }
  if (s.joining) s.meet(true);
  if (s.options.broadcast_buffers) s.share_buffers();
}

void Reducer::after_forward(const std::vector<Tensor>& outputs) {
  ReducerState& s = *state_;
  if (!s.is_on()) return;
  s.arm();
  if (!s.looks_for_unused()) return;
  NoGrad guard;
  const auto used = leaves_of(outputs);
  for (Param& p : s.params) p.unused = !used.contains(p.tensor.impl_or_null());
  for (size_t i = 0; i < s.params.size(); ++i)
    if (s.params[i].unused) s.mark_ready(i);
}

void Reducer::set_hook(CommHook* adopted) {
  tapir::detail::Owner<CommHook, tapir::detail::Delete> hook(adopted);
  check(!state_->armed || (state_->arrived.empty() && state_->next == 0),
        "[{}] expected a hook between steps, got one within backward", kName);
  state_->hook = std::move(hook);
  state_->talks.changed();
}

/// Tells all ranks whether this one has inputs for a step. False where nobody has.
bool ReducerState::meet(bool here) {
  if (modes.recorder)
    modes.recorder->host_acts("[join] expected steps outside of compile(): ranks ask each other first");
  Tensor all = empty({group.size()}, {.dtype = kInt32});
  group.all_gather(all, full({1}, here ? 1 : 0, {.dtype = kInt32}));
  const std::vector<int32_t> is_here = all.to_vector<int32_t>();
  const auto first = std::find(is_here.begin(), is_here.end(), 1);
  if (first == is_here.end()) return false;
  root = first - is_here.begin();
  return true;
}

/// A step of the others.
void ReducerState::shadow() {
  if (options.broadcast_buffers) share_buffers();
  arm_now();
  const ScopedMode<bool> shadows(shadowing, true);
  for (Bucket& b : buckets) {
    b.gradients.buffer.zero_();
    hook->begin(b.gradients);
  }
  finish();
}

void Reducer::begin_join(nn::Module& module) {
  check(state_->group.size() == 1 || !normalizes_together(module),
        "[join] expected a module without SyncBatchNorm, whose forward is a meeting of all ranks, got one: who is done "
        "has no "
        "input for it (give every rank the same number of batches: DistributedSampler)");
  state_->joining = true;
  state_->talks.changed();
}
void Reducer::leave_join() {
  state_->joining = false, state_->root = 0;
  state_->talks.changed();
}
void Reducer::end_join() {
  NoGrad guard;
  ReducerState& s = *state_;
  while (s.meet(false)) s.shadow();
  std::vector<Work> works;
  for (const Param& p : s.params) works.push_back(s.group.broadcast(p.tensor.detach(), s.root, true));
  for (const Work& w : works) w.wait();
  if (s.options.broadcast_buffers) s.share_buffers();
  leave_join();
}

std::vector<std::string> Reducer::differing_parameters() const {
  const ReducerState& s = *state_;
  const auto n = int64_t(s.params.size()), ranks = s.group.size();
  Tensor mine = empty({n}, {.dtype = kInt64}), all = empty({ranks * n}, {.dtype = kInt64});
  for (int64_t i = 0; i < n; ++i) mine.data<int64_t>()[i] = int64_t(hash_of(s.params[size_t(i)].tensor));
  s.group.all_gather(all, mine);
  const int64_t* h = all.data<int64_t>();
  std::vector<std::string> names;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t r = 1; r < ranks; ++r)
      if (h[r * n + i] != h[i]) {
        names.push_back(s.params[size_t(i)].name);
        break;
      }
  return names;
}

std::vector<int64_t> Reducer::bucket_bytes() const {
  std::vector<int64_t> out;
  for (const Bucket& b : state_->buckets) {
    const Tensor& flat = b.gradients.buffer;
    out.push_back(flat.numel() * size_of(flat.dtype()));
  }
  return out;
}

}  // namespace tapir::inline v0::distributed
