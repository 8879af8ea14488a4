// Replays what TAPIR_DUMP wrote: one call of a kernel entry. It fails while the call still does what it was dumped for.
#include <tapir/core/trace_dump.h>

#include "run.h"

namespace conformance {
namespace {

using Kind = TraceArg::Kind;

/// The arguments of a dumped call; views of one key share a fresh copy of its memory.
class DumpedCall {
 public:
  DumpedCall(const Family& family, const Json& json) : family_(family) {
    for (const Json& item : json.at("args")) {
      TraceArg arg;
      if (item.is_array()) {
        arg.kind = Kind::List;
        for (const Json& view : item) arg.list.push_back(view_of(view));
      } else if (item.is_object() && item.contains("bytes")) {
        arg.kind = Kind::Bytes;
        const std::string hex = item["bytes"];
        for (size_t i = 0; i < hex.size(); i += 2) arg.bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
      } else arg.view = view_of(item);
      args.push_back(std::move(arg));
    }
  }
  std::vector<TraceArg> args;

 private:
  TensorView view_of(const Json& json) {
    if (json.is_null()) return {};
    const DType dtype = dtype_from_name(json.at("dtype").get<std::string>());
    if (json.contains("number")) {
      const std::string text = json["number"], kind = json["kind"];
      if (kind == "float") return {Scalar(std::stod(text)), dtype};
      return kind == "bool" ? TensorView(Scalar(text != "0"), dtype)
                            : TensorView(Scalar(int64_t(std::stoll(text))), dtype);
    }
    const std::vector<int64_t> shape = json.at("shape"), strides = json.at("strides");
    if (json.at("tensor").is_null()) return keep(empty(shape, {.dtype = dtype, .device = run_device}));
    const std::string key = json["tensor"];
    if (!memory_.contains(key)) memory_[key] = family_.expected({{"tensor", key}}).clone().to(run_device);
    Tensor block = memory_[key];
    if (block.dtype() != dtype) block = reinterpret(block, dtype);
    return keep(alias(block, shape, strides, json.at("offset").get<int64_t>()));
  }
  static Tensor reinterpret(const Tensor& block, DType dtype) {
    const int64_t count = block.numel() * size_of(block.dtype()) / size_of(dtype);
    return from_blob(block.data_ptr(), {count}, [block](void*) {}, {.dtype = dtype, .device = block.device()});
  }
  TensorView keep(Tensor t) {
    kept_.push_back(std::move(t));
    return TensorView(kept_.back());
  }

  const Family& family_;
  std::map<std::string, Tensor> memory_;
  std::vector<Tensor> kept_;
};

}  // namespace

std::optional<std::string> run_dump(const Family& family, const Json& json) {
  DumpedCall call(family, json);
  const BackendTable& table = backend(empty({0}, {.device = run_device}));
  Context& ctx = context(run_device);
  const bool finite = detail::Snapshot(table, call.args).all_finite();
  call_entry(table, json.at("entry").get<std::string>(), ctx, call.args);
  if (ctx.error.set)
    return tapir::format("bad value {} at position {}, bound {}", ctx.error.value, ctx.error.position, ctx.error.bound);
  if (finite && !detail::Snapshot(table, call.args).all_finite()) return "NaN or infinity of finite operands";
  return "";
}

}  // namespace conformance
