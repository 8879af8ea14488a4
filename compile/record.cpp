#include "record.h"

#include <map>

#include "../core/cuda.h"
#include "../core/trace_call.h"

namespace tapir::inline v0::ir {

struct Recorder {
  Program program;
  std::map<const char*, int> live;     // where a block begins -> its number; they do not overlap
  std::vector<const char*> begin;      // of each block
  std::vector<tapir::Storage*> owner;  // of each block, once a kernel has seen one
  BackendTable tables[kNumDeviceTypes];
  const BackendTable* real[kNumDeviceTypes] = {};
  const BackendTable* before[kNumDeviceTypes] = {};

  int now() const { return int(program.calls.size()); }
  void born(void* data, int64_t bytes, Device device);
  void died(void* data);
  int find(const void* data) const;
  int add(const void* data, Block block);
  int block_of(const TensorView& v);
  View view_of(const TensorView& v);
  View bytes_at(const void* data, Device device, int64_t bytes);
  void use(const View& v, Access access);
  Call call_of(const char* entry, const Context& ctx, const std::vector<TraceArg>& args);
};

namespace {

thread_local Recorder* active = nullptr;

std::shared_ptr<const CallSite> here() {
  return {make_call_site(), [](CallSite* s) { free_call_site(s); }};
}

[[noreturn]] void refuse(const char* op, const std::string& why) {
  fail(ErrorKind::Value, "[{}] expected nothing that the host must read while a program is recorded{}{}", op, why,
       describe(here().get()));
}
void refuse_host_read(const char* op, const char* file, unsigned line) {
  refuse(op,
         format(", at {}:{}: keep the value on the device (where, masked_fill), or read it afterwards", file, line));
}

struct Recorded {
  static const BackendTable& real(const Context& ctx) { return *active->real[int(ctx.device.type)]; }
  template <class F> static auto run(const char* entry, Context& ctx, const std::vector<TraceArg>& args, F call)
      -> decltype(call()) {
    if constexpr (!std::is_void_v<decltype(call())>)
      refuse("nonzero", ": its result's shape depends on values; where() and masked_fill() have fixed ones");
    else {
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
  call.entry = "copy_bytes", call.device = to_device.is_cpu() ? from_device : to_device, call.site = here();
  const View source = active->bytes_at(from, from_device, bytes), target = active->bytes_at(to, to_device, bytes);
  active->use(source, Access::Read), active->use(target, Access::Write);
  call.operands = {{.access = Access::Write, .views = {target}}, {.views = {source}}};
  active->real[int(type)]->copy_bytes(to, to_device, from, from_device, bytes, stream);
  if (bytes) active->program.calls.push_back(std::move(call));
}

template <DeviceType type> void stand_before(Recorder& r) {
  const int i = int(type);
  r.before[i] = modes.tables[i];
  if (type != DeviceType::CPU && !cuda::is_available()) return;
  r.real[i] = &backend(Device(type));
  r.tables[i] = *r.real[i];
  wrap_entries<Recorded>(r.tables[i]);
  r.tables[i].allocate = allocate<type>, r.tables[i].release = release<type>, r.tables[i].copy_bytes = copy_bytes<type>;
}

}  // namespace

void Recorder::born(void* data, int64_t bytes, Device device) {
  auto at = live.lower_bound(static_cast<const char*>(data));
  while (at != live.end() && at->first < static_cast<const char*>(data) + bytes) {  // freed by another thread
    program.blocks[size_t(at->second)].death = now();
    at = live.erase(at);
  }
  add(data, {.bytes = bytes, .device = device, .birth = now()});
}

int Recorder::add(const void* data, Block block) {
  const int i = int(program.blocks.size());
  live[static_cast<const char*>(data)] = i;
  program.blocks.push_back(std::move(block));
  begin.push_back(static_cast<const char*>(data)), owner.push_back(nullptr);
  return i;
}

void Recorder::died(void* data) {
  const auto at = live.find(static_cast<const char*>(data));
  if (at == live.end()) return;
  program.blocks[size_t(at->second)].death = now();
  live.erase(at);
}

/// The block that holds this address, or -1.
int Recorder::find(const void* data) const {
  const char* p = static_cast<const char*>(data);
  auto at = live.upper_bound(p);
  if (at == live.begin()) return -1;
  --at;
  return p < at->first + program.blocks[size_t(at->second)].bytes ? at->second : -1;
}

int Recorder::block_of(const TensorView& v) {
  tapir::Storage* root = v.storage ? root_of(v.storage) : nullptr;
  int i = find(v.data);
  if (i < 0) {
    check_internal(root, "[record] expected a view that names its storage, got one without");
    i = add(root->data, {.kind = Block::Kind::Outside, .bytes = root->bytes, .device = root->device});
    program.blocks.back().memory = StoragePtr::share(root);
  }
  if (!owner[size_t(i)]) owner[size_t(i)] = root;
  return i;
}

View Recorder::view_of(const TensorView& v) {
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
View Recorder::bytes_at(const void* data, Device device, int64_t bytes) {
  View out;
  out.kind = View::Kind::Memory, out.dtype = kUInt8, out.device = device, out.shape = bytes, out.strides = 1;
  if (bytes == 0) return out;
  out.block = find(data);
  if (out.block < 0) {
    out.block = add(data, {.kind = Block::Kind::Outside, .bytes = bytes, .device = device});
    program.blocks.back().memory = adopt_storage(const_cast<void*>(data), bytes, device, nullptr, nullptr);
  }
  out.offset = static_cast<const char*>(data) - begin[size_t(out.block)];
  return out;
}

/// Marks what a call does with a block. Fresh memory that is read first holds what the host wrote.
void Recorder::use(const View& v, Access access) {
  if (v.kind != View::Kind::Memory || v.block < 0) return;
  Block& b = program.blocks[size_t(v.block)];
  if (access != Access::Write) {
    if (b.kind == Block::Kind::Temporary && !b.written && b.device.is_cpu()) {
      b.kind = Block::Kind::Constant;
      b.values.assign(begin[size_t(v.block)], size_t(b.bytes));
    }
    b.read = true;
  }
  if (access != Access::Read) b.written = true;
}

Call Recorder::call_of(const char* entry, const Context& ctx, const std::vector<TraceArg>& args) {
  Call call{.entry = entry, .device = ctx.device, .deterministic = ctx.deterministic};
  call.site = here();
  for (const TraceArg& a : args) {
    Operand& o = call.operands.emplace_back();
    o.kind = a.kind, o.bytes = a.bytes, o.op = a.op, o.op_name = a.op_name;
    if (a.kind != TraceArg::Kind::Bytes) o.access = access_of(entry, size_t(&a - args.data()), args.back().bytes);
    if (a.kind == TraceArg::Kind::View) o.views.push_back(view_of(a.view));
    for (const TensorView& v : a.list) o.views.push_back(view_of(v));
  }
  for (const Access access : {Access::Read, Access::Update, Access::Write})  // what is read was there before
    for (const Operand& o : call.operands)
      for (const View& v : o.views)
        if (o.access == access) use(v, access);
  return call;
}

Recording::Recording(std::span<const Tensor> inputs) : recorder_(nullptr) {
  check(!active, "[record] expected no program that is being recorded in this thread, got one");
  auto r = std::make_unique<Recorder>();
  stand_before<DeviceType::CPU>(*r);
  stand_before<DeviceType::CUDA>(*r);
  for (const Tensor& x : inputs) r->program.inputs.push_back(r->view_of(x));
  active = recorder_ = r.release();
  for (int i = 0; i < kNumDeviceTypes; ++i)
    if (recorder_->real[i]) modes.tables[i] = &recorder_->tables[i];
  modes.refuse_host_read = refuse_host_read;
}

void Recording::stop() noexcept {
  if (active != recorder_) return;
  for (int i = 0; i < kNumDeviceTypes; ++i)
    if (recorder_->real[i]) modes.tables[i] = recorder_->before[i];
  modes.refuse_host_read = nullptr;
  active = nullptr;
}

Recording::~Recording() {
  stop();
  delete recorder_;
}

Program Recording::finish(std::span<const Tensor> outputs) {
  check(active == recorder_, "[record] expected finish() once, in the thread that records");
  Recorder& r = *recorder_;
  for (const Tensor& y : outputs) r.program.outputs.push_back(r.view_of(y));
  stop();
  for (const auto& [data, i] : r.live) {
    Block& b = r.program.blocks[size_t(i)];
    if (!b.memory && r.owner[size_t(i)]) b.memory = StoragePtr::share(r.owner[size_t(i)]);
  }
  return std::move(r.program);
}

}  // namespace tapir::inline v0::ir
