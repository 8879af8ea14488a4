#include "record.h"

#include <algorithm>
#include <map>
#include <set>

#include "../../autograd/meta.h"
#include "../../autograd/record.h"
#include "../../core/cuda.h"
#include "../../core/generator.h"
#include "../../core/recorder.h"
#include "../../core/trace_call.h"
#include "../program/uses.h"

namespace tapir::inline v0::ir {

struct ProgramRecorder final : detail::Recorder {
  Program program;
  std::map<const char*, int> live;                   // where a block begins -> its number; they do not overlap
  std::vector<const char*> begin;                    // of each block
  std::vector<tapir::Storage*> owner;                // of each block, once a kernel has seen one
  std::map<const tapir::Storage*, int> input_of;     // roots of inputs; their blocks are not in `live`
  std::set<const tapir::Storage*> seen;              // of outside blocks: those of notes.storages
  std::map<const tapir::Storage*, uint32_t> leaves;  // before they changed
  std::map<int, bool> filled;                        // by the host, in fresh memory; true: by tensor()
  std::map<const tapir::Storage*, Tensor> asked;     // gradients that grad() gave, and whose they are
  Notes notes;
  bool lenient = false;
  const Program* like = nullptr;  // what this may be another recording of
  BackendTable tables[kNumDeviceTypes];
  const BackendTable* real[kNumDeviceTypes] = {};
  const BackendTable* before[kNumDeviceTypes] = {};

  int now() const { return int(program.calls.size()); }
  void born(void* data, int64_t bytes, Device device);
  void died(void* data);
  int find(const void* data) const;
  int add(const void* data, Block block);
  int block_of(const TensorView& v);
  int input_block(const Tensor& x);
  void note(const TensorView& v, int block);
  bool is_noted(const Tensor& leaf) const;
  void host_reads(const char* op, const char* file, unsigned line) override;
  void host_acts(const std::string& text) override;
  void refuse(const char* op, const std::string& why);
  void host_writes(const void* data) override;
  void host_takes(const void* data) override;
  void gradient_changes(const Tensor& leaf, bool replaced) override;
  void gradient_asked(const Tensor& leaf, const Tensor& gradient) override;
  void leaf_changes(tapir::Storage& storage) override;
  void object_asked(detail::Stamp& stamp) override;
  void outer_graph() override { notes.outer_graph = true; }
  void seeded() override { notes.reseeded = true; }
  void listen();
  void stop();
  void custom_call(const char* name, const std::vector<Tensor>& reads, const std::vector<Tensor>& writes,
                   std::shared_ptr<const detail::CustomFunction> f);
  View view_of(const TensorView& v);
  View bytes_at(const void* data, Device device, int64_t bytes);
  void use(const View& v, Access access);
  std::shared_ptr<const CallSite> site_of(const Call& call) const;
  Call call_of(entry::Id entry, const Context& ctx, const std::vector<TraceArg>& args);
};

namespace {

thread_local ProgramRecorder* active = nullptr;

std::shared_ptr<const CallSite> here() {
  return {make_call_site(), [](CallSite* s) { free_call_site(s); }};
}

struct RecordsCalls {
  static const BackendTable& real(const Context& ctx) { return *active->real[int(ctx.device.type)]; }
  template <class F> static auto run(entry::Id entry, Context& ctx, const std::vector<TraceArg>& args, F call)
      -> decltype(call()) {
    if constexpr (!std::is_void_v<decltype(call())>) {
      active->refuse("nonzero", ": its result's shape depends on values; where() and masked_fill() have fixed ones");
      return call();
    } else {
      Call written = active->call_of(entry, ctx, args);
      call();
      active->program.calls.push_back(std::move(written));
    }
  }
};

template <DeviceType type> void* allocate(int64_t bytes, Device device, void* stream) {
  void* data = active->real[int(type)]->allocate(bytes, device, stream);
  if (data) active->born(data, bytes, device);
  return data;
}
template <DeviceType type> void release(void* data, int64_t bytes, Device device) {
  active->died(data);
  active->real[int(type)]->release(data, bytes, device);
}
template <DeviceType type>
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, void* stream) {
  Call call;
  call.device = to_device.is_cpu() ? from_device : to_device, call.site = here();
  const View source = active->bytes_at(from, from_device, bytes), target = active->bytes_at(to, to_device, bytes);
  active->use(source, Access::Read), active->use(target, Access::Write);
  call.operands = {{.access = Access::Write, .views = {target}}, {.views = {source}}};
  active->real[int(type)]->copy_bytes(to, to_device, from, from_device, bytes, stream);
  if (bytes) active->program.calls.push_back(std::move(call));
}

template <DeviceType type> void stand_before(ProgramRecorder& r) {
  const int i = int(type);
  r.before[i] = modes.tables[i];
  if (type != DeviceType::CPU && !cuda::is_available()) return;
  r.real[i] = &backend(Device(type));
  r.tables[i] = *r.real[i];
  wrap_entries<RecordsCalls>(r.tables[i]);
  r.tables[i].allocate = allocate<type>, r.tables[i].release = release<type>, r.tables[i].copy_bytes = copy_bytes<type>;
}

}  // namespace

void ProgramRecorder::born(void* data, int64_t bytes, Device device) {
  auto at = live.lower_bound(static_cast<const char*>(data));
  while (at != live.end() && at->first < static_cast<const char*>(data) + bytes) {  // freed by another thread
    program.blocks[size_t(at->second)].death = now();
    at = live.erase(at);
  }
  add(data, {.bytes = bytes, .device = device, .birth = now()});
}

int ProgramRecorder::add(const void* data, Block block) {
  const int i = int(program.blocks.size());
  live[static_cast<const char*>(data)] = i;
  program.blocks.push_back(std::move(block));
  begin.push_back(static_cast<const char*>(data)), owner.push_back(nullptr);
  return i;
}

void ProgramRecorder::died(void* data) {
  const auto at = live.find(static_cast<const char*>(data));
  if (at == live.end()) return;
  program.blocks[size_t(at->second)].death = now();
  live.erase(at);
}

/// The block that holds this address, or -1.
int ProgramRecorder::find(const void* data) const {
  const char* p = static_cast<const char*>(data);
  auto at = live.upper_bound(p);
  if (at == live.begin()) return -1;
  --at;
  return p < at->first + program.blocks[size_t(at->second)].bytes ? at->second : -1;
}

/// The block of an input begins with its first element, wherever that lies in its storage. (What reaches before it has a negative offset.)
int ProgramRecorder::input_block(const Tensor& x) {
  tapir::Storage* root = root_of(x.impl().storage.get());
  const auto [at, fresh] = input_of.try_emplace(root, int(program.blocks.size()));
  if (!fresh) return at->second;
  const int64_t before = static_cast<const char*>(x.data_ptr()) - static_cast<const char*>(root->data);
  program.blocks.push_back({.kind = Block::Kind::Outside, .bytes = root->bytes - before, .device = root->device});
  program.blocks.back().memory =
      before ? slice_storage(StoragePtr::share(root), before, root->bytes - before) : StoragePtr::share(root);
  begin.push_back(static_cast<const char*>(x.data_ptr())), owner.push_back(root);
  return at->second;
}

/// Remembers a storage from outside, with the version that it had when a kernel first saw it. A gradient that is only read lies
/// elsewhere in another call.
void ProgramRecorder::note(const TensorView& v, int block) {
  if (program.blocks[size_t(block)].kind != Block::Kind::Outside || !v.storage) return;
  if (const auto at = asked.find(v.storage); at != asked.end()) {
    const Tensor leaf = std::move(at->second);
    asked.erase(at);
    if (!is_noted(leaf)) gradient_changes(leaf, false);
  }
  if (!seen.insert(v.storage).second) return;
  const auto before = leaves.find(v.storage);
  notes.storages.push_back({StoragePtr::share(v.storage), block, v.storage->version.load(std::memory_order_relaxed),
                            before != leaves.end() ? before->second : v.storage->leaves.load()});
}

bool ProgramRecorder::is_noted(const Tensor& leaf) const {
  return std::any_of(notes.grads.begin(), notes.grads.end(), [&](auto& slot) { return slot.leaf.is_same(leaf); });
}

void ProgramRecorder::host_acts(const std::string& text) {
  if (!lenient) fail(ErrorKind::Value, "{}", text);
  if (notes.refused.empty()) notes.refused = text;
}
void ProgramRecorder::refuse(const char* op, const std::string& why) {
  host_acts(tapir::format("[{}] expected nothing that the host must read while a program is recorded{}{}", op, why,
                          describe(here().get())));
}
void ProgramRecorder::host_reads(const char* op, const char* file, unsigned line) {
  refuse(op, tapir::format(", at {}:{}: keep the value on the device (where, masked_fill), or read it afterwards", file,
                           line));
}
void ProgramRecorder::host_writes(const void* data) {
  if (const int i = find(data); i >= 0) filled[i] = true;
}
void ProgramRecorder::leaf_changes(tapir::Storage& storage) {
  if (!seen.contains(&storage)) leaves.try_emplace(&storage, storage.leaves.load(std::memory_order_relaxed));
}
void ProgramRecorder::object_asked(detail::Stamp& stamp) {
  for (const Notes::Object& o : notes.objects)
    if (&*o.stamp == &stamp) return;
  retain(&stamp);
  notes.objects.push_back({detail::Handle<detail::Stamp>(&stamp), stamp.flag});
}
/// That there is none is a fact that host code may act on; one that is there is noted where a kernel reads it, or where it changes.
void ProgramRecorder::gradient_asked(const Tensor& leaf, const Tensor& gradient) {
  if (is_noted(leaf)) return;
  if (gradient.defined()) asked[gradient.impl().storage.get()] = leaf;
  else if (leaf.defined()) gradient_changes(leaf, false);
}

/// Before the first change of a leaf's gradient.
void ProgramRecorder::gradient_changes(const Tensor& x, bool replaced) {
  if (!x.is_leaf() || is_noted(x)) return;
  const int i = x.numel() > 0 ? find(x.data_ptr()) : -1;
  if (i >= 0 && program.blocks[size_t(i)].kind != Block::Kind::Outside) return;  // made in here
  const tapir::ScopedMode<detail::Recorder*> quiet{modes.recorder, nullptr};
  const Tensor& g = x.grad();
  const bool looked_at = g.defined() && asked.erase(g.impl().storage.get()) > 0;
  const bool used = looked_at || (g.defined() && find(g.data_ptr()) >= 0);
  Notes::GradSlot slot{.leaf = x, .relevant = !replaced || used, .had = g.defined()};
  if (slot.relevant && slot.had) slot.start = view_of(g);
  notes.grads.push_back(std::move(slot));
}

/// Fresh memory may be filled by the host: use() sees to that.
void ProgramRecorder::host_takes(const void* data) {
  const int i = data ? find(data) : -1;
  const Block* const b = i < 0 ? nullptr : &program.blocks[size_t(i)];
  if (b && b->kind == Block::Kind::Temporary && !b->written) return void(filled.try_emplace(i, false));
  if (!notes.taken.empty() || !data) return;
  notes.taken = {"data<T>() of memory", here()};
}

int ProgramRecorder::block_of(const TensorView& v) {
  tapir::Storage* root = v.storage ? root_of(v.storage) : nullptr;
  if (const auto input = input_of.find(root); root && input != input_of.end()) {
    note(v, input->second);
    return input->second;
  }
  int i = find(v.data);
  if (i < 0) {
    check_internal(root, "[record] expected a view that names its storage, got one without");
    i = add(root->data, {.kind = Block::Kind::Outside, .bytes = root->bytes, .device = root->device});
    program.blocks.back().borrowed = !root->release;
    program.blocks.back().memory = StoragePtr::share(root);
  }
  if (!owner[size_t(i)]) owner[size_t(i)] = root;
  note(v, i);
  return i;
}

View ProgramRecorder::view_of(const TensorView& v) {
  if (!v.defined()) return {};
  View out;
  out.kind = View::Kind::Memory, out.dtype = v.dtype, out.device = v.device;
  if (v.is_scalar) {
    out.kind = View::Kind::Number, out.number = v.scalar;
    return out;
  }
  out.shape = v.shape(), out.strides = v.stride_list();
  if (v.numel() == 0) return out;
  out.block = block_of(v);
  out.offset = (static_cast<const char*>(v.data) - begin[size_t(out.block)]) / size_of(v.dtype);
  return out;
}

/// Copies between devices name no storage: memory that no kernel has seen before is the caller's, who keeps it alive.
View ProgramRecorder::bytes_at(const void* data, Device device, int64_t bytes) {
  View out;
  out.kind = View::Kind::Memory, out.dtype = kUInt8, out.device = device, out.shape = bytes, out.strides = 1;
  if (bytes == 0) return out;
  out.block = find(data);
  for (const auto& [root, i] : input_of)
    if (out.block < 0 && data >= root->data && data < static_cast<const char*>(root->data) + root->bytes) out.block = i;
  if (out.block < 0) {
    out.block = add(data, {.kind = Block::Kind::Outside, .bytes = bytes, .device = device});
    program.blocks.back().memory = adopt_storage(const_cast<void*>(data), bytes, device, nullptr, nullptr);
  }
  out.offset = static_cast<const char*>(data) - begin[size_t(out.block)];
  return out;
}

/// Marks what a call does with a block. Fresh memory that is read first, or filled by the host and written in part, holds what the host
/// wrote.
void ProgramRecorder::use(const View& v, Access access) {
  if (v.kind != View::Kind::Memory || v.block < 0) return;
  Block& b = program.blocks[size_t(v.block)];
  const auto host = filled.find(v.block);
  const bool reads = access != Access::Write;
  if (b.kind == Block::Kind::Temporary && !b.written && b.device.is_cpu() &&
      (reads || (host != filled.end() && !covers(v, program)))) {
    b.kind = Block::Kind::Constant;
    if ((host == filled.end() || !host->second) && notes.unseen.empty())
      notes.unseen = {"memory of " + to_string(v), here()};
    b.values.assign(begin[size_t(v.block)], size_t(b.bytes));
  }
  if (reads) b.read = true;
  if (access != Access::Read) b.written = true;
}

Call ProgramRecorder::call_of(entry::Id entry, const Context& ctx, const std::vector<TraceArg>& args) {
  Call call{
      .entry = entry, .device = ctx.device, .modes = {ctx.deterministic, modes.flush_denormals && ctx.device.is_cpu()}};
  for (const TraceArg& a : args) {
    Operand& o = call.operands.emplace_back();
    o.kind = a.kind, o.access = a.access, o.bytes = a.bytes, o.op = a.op, o.op_name = a.op_name;
    if (a.kind == TraceArg::Kind::View) o.views.push_back(view_of(a.view));
    for (const TensorView& v : a.list) o.views.push_back(view_of(v));
  }
  for (const Access access : {Access::Read, Access::Update, Access::Write})  // what is read was there before
    for (const Operand& o : call.operands)
      for (const View& v : o.views)
        if (o.access == access) use(v, access);
  call.site = site_of(call);
  return call;
}

/// Of the next call of the program: finding out where it is costs more than writing it down.
std::shared_ptr<const CallSite> ProgramRecorder::site_of(const Call& call) const {
  const size_t i = program.calls.size();
  return like && i < like->calls.size() && same(call, like->calls[i]) ? like->calls[i].site : here();
}

/// Nothing is recorded while f runs.
void ProgramRecorder::custom_call(const char* name, const std::vector<Tensor>& reads, const std::vector<Tensor>& writes,
                                  std::shared_ptr<const detail::CustomFunction> f) {
  Call call;
  call.entry = entry::Id::custom_call, call.site = here();
  for (const auto* list : {&reads, &writes})
    for (const Tensor& x : *list) {
      Operand& o = call.operands.emplace_back();
      o.access = list == &reads ? Access::Read : Access::Write, o.views = {view_of(x)};
      use(o.views[0], o.access);
      call.device = x.device();
    }
  call.operands.push_back({.kind = TraceArg::Kind::Bytes, .bytes = name, .op = 0, .op_name = name});
  call.custom = f;
  stop();
  try {
    f->run(reads, writes);
  } catch (...) {
    listen();
    throw;
  }
  listen();
  program.calls.push_back(std::move(call));
}

void ProgramRecorder::listen() {
  active = this;
  for (int i = 0; i < kNumDeviceTypes; ++i)
    if (real[i]) modes.tables[i] = &tables[i];
  modes.recorder = this;
}
void ProgramRecorder::stop() {
  for (int i = 0; i < kNumDeviceTypes; ++i)
    if (real[i]) modes.tables[i] = before[i];
  modes.recorder = nullptr;
  active = nullptr;
}

Recording::Recording(std::span<const Tensor> inputs, bool lenient, const Program* like) : recorder_(nullptr) {
  check(!ir::active, "[record] expected no program that is being recorded in this thread, got one");
  auto r = std::make_unique<ProgramRecorder>();
  r->lenient = lenient, r->like = like;
  stand_before<DeviceType::CPU>(*r);
  stand_before<DeviceType::CUDA>(*r);
  for (const Tensor& x : inputs) {
    if (x.defined() && x.numel() > 0) r->input_block(x);
    r->program.inputs.push_back(r->view_of(x));
  }
  r->notes.seed = default_generator().seed(), r->notes.offset = default_generator().offset();
  recorder_ = r.release();
  recorder_->listen();
}

void Recording::stop() noexcept {
  if (ir::active == recorder_) recorder_->stop();
}

Recording::~Recording() {
  stop();
  delete recorder_;
}

Program Recording::finish(std::span<const Tensor> outputs, Notes* notes) {
  check(ir::active == recorder_, "[record] expected finish() once, in the thread that records");
  ProgramRecorder& r = *recorder_;
  for (const auto& [gradient, leaf] : r.asked)
    if (leaf.impl().refs.load(std::memory_order_acquire) > 1) r.notes.asked.push_back(leaf);
  r.asked.clear();
  std::erase_if(r.notes.grads, [](const Notes::GradSlot& slot) {  // leaves made inside, of memory from outside
    return slot.leaf.impl().refs.load(std::memory_order_acquire) == 1;
  });
  for (const Tensor& y : outputs) r.program.outputs.push_back(r.view_of(y));
  for (Notes::GradSlot& slot : r.notes.grads) {
    const Tensor& g = slot.leaf.grad();
    slot.end = r.view_of(g);
    if (!slot.relevant || !slot.had || !g.defined() || slot.end.block != slot.start.block) continue;
    const auto given = std::count_if(outputs.begin(), outputs.end(), [&](const Tensor& y) { return y.is_same(g); });
    slot.holders = g.impl().refs.load(std::memory_order_acquire) - 1 - given;
  }
  const Generator& g = default_generator();
  r.notes.numbers = g.offset() - r.notes.offset;
  r.notes.reseeded |= g.seed() != r.notes.seed || g.offset() < r.notes.offset;
  stop();
  for (Notes::Seen& s : r.notes.storages) s.raised = s.storage->version.load(std::memory_order_relaxed) - s.version;
  if (notes) *notes = std::move(r.notes);
  else r.notes = {};
  for (const auto& [data, i] : r.live) {
    Block& b = r.program.blocks[size_t(i)];
    if (!b.memory && r.owner[size_t(i)]) b.memory = StoragePtr::share(r.owner[size_t(i)]);
  }
  return std::move(r.program);
}

}  // namespace tapir::inline v0::ir

namespace tapir::inline v0 {

void detail::custom_call(const char* name, const std::vector<Tensor>& reads, const std::vector<Tensor>& writes,
                         const CustomFunction* adopted) {
  std::shared_ptr<const CustomFunction> f(adopted);
  check(name != nullptr, "[custom_call] expected a name, got a null pointer");
  for (const Tensor& x : reads) check(x.defined(), "[{}] expected tensors to read, got an undefined one", name);
  for (const Tensor& x : writes) {
    check_writable(name, x);
    check(!may_overlap(x.shape(), x.strides()),
          "[{}] expected tensors to write whose elements have places of their own, got {} with strides {}", name, x,
          x.strides());
  }
  NoGrad guard;
  if (ir::active) ir::active->custom_call(name, reads, writes, std::move(f));
  else f->run(reads, writes);
  for (const Tensor& x : writes) bump_version(x);
}

}  // namespace tapir::inline v0
