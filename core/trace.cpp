#include "trace.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "error.h"
#include "trace_call.h"
#include "trace_dump.h"

namespace tapir::inline v0 {
namespace {

struct Tracing {
  BackendTable table;
  const BackendTable* real = nullptr;
};
Tracing tracing[kNumDeviceTypes];
bool logging = false;
std::string dump_dir;
constexpr int64_t kMaxDumps = 100;  // one bad step makes thousands

const BackendTable& real_table(const Context& ctx) { return *tracing[int(ctx.device.type)].real; }

// ---- what is done around a call ----
std::string text_of(const TensorView& v) {
  if (!v.defined()) return "-";
  if (v.is_scalar) return tapir::format("{}", v.scalar);
  std::string s = tapir::format("{} {}", v.dtype, v.shape());
  if (!v.is_contiguous()) s += tapir::format(" strides {}", v.stride_list());
  return s;
}

class Probe {
 public:
  Probe(entry::Id id, Context& ctx, std::vector<TraceArg> args)
      : entry_(entry::name_of(id)), ctx_(ctx), args_(std::move(args)) {
    if (!dump_dir.empty()) before_.emplace(real_table(ctx), args_);
  }
  template <class F> auto run(F call) -> decltype(call()) {
    const auto start = std::chrono::steady_clock::now();
    const auto done = [&] {
      if (logging) log(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
      judge();
    };
    try {
      if constexpr (std::is_void_v<decltype(call())>) return call(), done();
      else {
        const auto result = call();
        done();
        return result;
      }
    } catch (const std::exception& e) {
      if (before_) dump(e.what());
      throw;
    }
  }

 private:
  void log(double us) const {
    std::string line = std::string("[tapir] ") + entry_;
    for (const TraceArg& a : args_)
      if (a.op >= 0) line += std::string("(") + a.op_name + ")";
    const char* separator = "  ";
    for (const TraceArg& a : args_) {
      if (a.kind == TraceArg::Kind::View) line += separator + text_of(a.view);
      if (a.kind == TraceArg::Kind::List)
        line += separator + tapir::format("{} x {}", int64_t(a.list.size()), a.list.empty() ? "-" : text_of(a.list[0]));
      if (a.kind != TraceArg::Kind::Bytes) separator = ", ";
    }
    std::fprintf(stderr, "%s  %.1f us\n", line.c_str(), us);
  }
  void judge() {
    if (!before_) return;
    if (ctx_.error.set)
      dump(tapir::format("bad value {} at position {}, bound {}", ctx_.error.value, ctx_.error.position,
                         ctx_.error.bound));
    else if (before_->all_finite() && !detail::Snapshot(real_table(ctx_), args_).all_finite())
      dump("NaN or infinity of finite operands");
  }
  void dump(const std::string& reason) {
    static std::atomic<int64_t> next{0};
    const int64_t number = next.fetch_add(1);
    if (number > kMaxDumps) return;
    try {
      if (number == kMaxDumps) std::fprintf(stderr, "[tapir] %d calls dumped: no more of them\n", int(kMaxDumps));
      else before_->write(dump_dir, number, entry_, ctx_.device, reason);
    } catch (const std::exception& e) {  // the program goes on as it would have
      std::fprintf(stderr, "[tapir] %s\n", e.what());
    }
  }

  const char* entry_;
  Context& ctx_;
  std::vector<TraceArg> args_;
  std::optional<detail::Snapshot> before_;
};

// ---- the table ----
struct Traced {
  static const BackendTable& real(const Context& ctx) { return real_table(ctx); }
  template <class F> static auto run(entry::Id id, Context& ctx, std::vector<TraceArg> args, F call) {
    return Probe(id, ctx, std::move(args)).run(call);
  }
};

/// New memory is zeroed while dumping: what an output held by chance would count as an operand.
void* allocate_zeroed(int64_t bytes, Device device, void* stream) {
  const BackendTable& real = *tracing[int(device.type)].real;
  void* data = real.allocate(bytes, device, stream);
  static const std::vector<char> zeros(size_t(1) << 20);
  for (int64_t at = 0; data && at < bytes; at += int64_t(zeros.size()))
    real.copy_bytes(static_cast<char*>(data) + at, device, zeros.data(), kCPU,
                    std::min<int64_t>(bytes - at, int64_t(zeros.size())), stream);
  return data;
}

const TraceArg& take(std::span<const TraceArg>& rest, TraceArg::Kind kind) {
  check(!rest.empty() && rest.front().kind == kind, "[call_entry] expected {}, got {}",
        kind == TraceArg::Kind::View   ? "a view"
        : kind == TraceArg::Kind::List ? "a list"
                                       : "parameters",
        rest.empty() ? "nothing" : "another kind");
  const TraceArg& first = rest.front();
  rest = rest.subspan(1);
  return first;
}
template <class E> void call_with(entry::Kernel<E>* kernel, Context& ctx, std::span<const TraceArg> args) {
  check(kernel, "[call_entry] expected an entry that this device has, got {}", entry::name_of(entry::id_of<E>));
  detail::Held<E> held;
  entry::each_field(held.value, [&]<class T>(T& field) {
    if constexpr (entry::OneOperand<T>) field = take(args, TraceArg::Kind::View).view;
    else if constexpr (entry::ManyOperands<T>) field = take(args, TraceArg::Kind::List).list;
    else detail::set_params(detail::params_at(held, field), take(args, TraceArg::Kind::Bytes).bytes, entry::id_of<E>);
  });
  check(args.empty(), "[call_entry] expected no more arguments, got {}", int64_t(args.size()));
  (void)kernel(ctx, held.value);
}

}  // namespace

const BackendTable& make_traced(const BackendTable& real, DeviceType type, bool log, const std::string& dump) {
  Tracing& t = tracing[int(type)];
  t.table = real;
  t.real = &real;
  logging = log, dump_dir = dump;
  wrap_entries<Traced>(t.table);
  if (!dump.empty()) t.table.allocate = allocate_zeroed;
  return t.table;
}

const BackendTable& traced(const BackendTable& real, DeviceType type) {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  const std::string log = variable("TAPIR_LOG"), dump = variable("TAPIR_DUMP");
  if (log.find("ops") == std::string::npos && dump.empty()) return real;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  Tracing& t = tracing[int(type)];
  return t.real == &real ? t.table : make_traced(real, type, log.find("ops") != std::string::npos, dump);
}

const char* entry::name_of(Id id) {
  static constexpr const char* names[] = {
#define X(name, E) #name,
      TAPIR_ENTRIES(X)
#undef X
          "copy_bytes",
      "custom_call"};
  return names[size_t(id)];
}

void call_entry(const BackendTable& table, entry::Id id, Context& ctx, std::span<const TraceArg> args) {
  check(id < entry::Id::copy_bytes, "[call_entry] expected a kernel entry, got {}", entry::name_of(id));
  entry::with_entry(id, [&]<class E>() { call_with<E>(entry::kernel_of<E>(table), ctx, args); });
}

void call_entry(const BackendTable& table, std::string_view name, Context& ctx, std::span<const TraceArg> args) {
#define X(n, E) \
  if (name == #n) return call_entry(table, entry::Id::n, ctx, args);
  TAPIR_ENTRIES(X)
#undef X
  fail(ErrorKind::Value, "[call_entry] expected the name of a kernel entry, got \"{}\"", name);
}

}  // namespace tapir::inline v0
