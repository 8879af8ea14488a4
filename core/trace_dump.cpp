#include "trace_dump.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "error.h"
#include "held_signals.h"

namespace tapir::inline v0::detail {
namespace {

struct Range {
  const char *begin, *end;
};
/// The bytes between the first and the last element that a view reaches.
Range range_of(const TensorView& v) {
  const auto [low, high] = extent_of(v.shape(), v.stride_list());
  const char* data = static_cast<const char*>(v.data);
  return {data + low * size_of(v.dtype), data + high * size_of(v.dtype)};
}
bool has_memory(const TensorView& v) { return v.defined() && !v.is_scalar && v.numel() > 0; }

double value_at(const char* at, DType dtype) {
  const auto load = [at](auto kind) {
    decltype(kind) value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (dtype) {
    case kFloat32: return double(load(float()));
    case kFloat64: return load(double());
    case kFloat16: return double(float(load(Half())));
    case kBFloat16: return double(float(load(BFloat16())));
    default: return 0;
  }
}

/// `first`: the view's element of index 0.
bool view_is_finite(const TensorView& v, const char* first) {
  Dims at = Dims::filled(v.rank, 0);
  int64_t offset = 0;
  for (int64_t i = v.numel(); i-- > 0;) {
    if (!std::isfinite(value_at(first + offset * size_of(v.dtype), v.dtype))) return false;
    for (int64_t d = v.rank; d-- > 0;) {
      offset += v.strides[d];
      if (++at[d] < v.sizes[d]) break;
      offset -= v.strides[d] * v.sizes[d];
      at[d] = 0;
    }
  }
  return true;
}

std::string list_of(const Dims& dims) {
  std::string s = "[";
  for (int64_t i = 0; i < dims.size(); ++i) s += (i ? "," : "") + std::to_string(dims[i]);
  return s + "]";
}
std::string hex_of(const std::string& bytes) {
  std::string s;
  for (const unsigned char c : bytes) s.append({"0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]});
  return s;
}
std::string quoted(const std::string& text) {
  std::string s = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    s += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return s + "\"";
}
std::string number_text(Scalar v) {
  char text[64];
  if (v.is_float()) std::snprintf(text, sizeof(text), "%.17g", v.to_double());
  else std::snprintf(text, sizeof(text), "%lld", static_cast<long long>(v.to_int()));
  return text;
}

constexpr const char* kSafetensorsNames[kNumDTypes] = {"F32", "F64", "F16", "BF16", "I64",
                                                       "I32", "I16", "I8",  "U8",   "BOOL"};

}  // namespace

Snapshot::Snapshot(const BackendTable& table, std::span<const TraceArg> args) : args_(args) {
  for_views(args, [&](const TensorView& v) { add(v); });
  for (Block& b : blocks_) {
    b.bytes.resize(size_t(b.end - b.begin));
    table.copy_bytes(b.bytes.data(), kCPU, b.begin, b.device, int64_t(b.bytes.size()), current_stream(b.device));
    table.synchronize(b.device, current_stream(b.device));
  }
}

/// A new block, or one that grows around those that the view overlaps.
void Snapshot::add(const TensorView& v) {
  if (!has_memory(v)) return;
  Range r = range_of(v);
  DType dtype = v.dtype;
  for (size_t i = 0; i < blocks_.size();) {
    const Block& b = blocks_[i];
    if (b.device != v.device || b.begin >= r.end || r.begin >= b.end) {
      ++i;
      continue;
    }
    if (size_of(b.dtype) != size_of(dtype)) dtype = kUInt8;  // one memory under two dtypes: plain bytes
    r = {std::min(r.begin, b.begin), std::max(r.end, b.end)};
    blocks_.erase(blocks_.begin() + int64_t(i));
    i = 0;
  }
  blocks_.push_back({r.begin, r.end, dtype, v.device, {}});
}

size_t Snapshot::index_of(const TensorView& v) const {
  const Range r = range_of(v);
  size_t i = 0;
  while (blocks_[i].device != v.device || r.begin < blocks_[i].begin || r.end > blocks_[i].end) ++i;
  return i;
}
const Snapshot::Block& Snapshot::block_of(const TensorView& v) const { return blocks_[index_of(v)]; }

bool Snapshot::all_finite() const {
  bool finite = true;
  for (const TraceArg& a : args_) finite = finite && a.finite;
  for_views(args_, [&](const TensorView& v) {
    if (v.defined() && v.is_scalar) finite = finite && std::isfinite(v.scalar.to_double());
    if (!finite || !has_memory(v) || !is_floating(v.dtype)) return;
    const Block& b = block_of(v);
    finite = view_is_finite(v, b.bytes.data() + (static_cast<const char*>(v.data) - b.begin));
  });
  return finite;
}

std::string Snapshot::json_of(const TensorView& v, int64_t number) const {
  if (!v.defined()) return "null";
  const std::string dtype = "\"dtype\":\"" + std::string(name_of(v.dtype)) + "\"";
  if (v.is_scalar) {
    const char* kind = v.scalar.is_float() ? "float" : v.scalar.is_int() ? "int" : "bool";
    return "{\"number\":\"" + number_text(v.scalar) + "\",\"kind\":\"" + kind + "\"," + dtype + "}";
  }
  const std::string geometry = dtype + ",\"shape\":" + list_of(v.shape()) + ",\"strides\":" + list_of(v.stride_list());
  if (!has_memory(v)) return "{\"tensor\":null," + geometry + ",\"offset\":0}";
  const size_t i = index_of(v);
  const int64_t offset = (static_cast<const char*>(v.data) - blocks_[i].begin) / size_of(v.dtype);
  return "{\"tensor\":\"" + std::to_string(number) + "." + std::to_string(i) + "\"," + geometry +
         ",\"offset\":" + std::to_string(offset) + "}";
}

std::string Snapshot::json_of(const TraceArg& arg, int64_t number) const {
  if (arg.kind == TraceArg::Kind::View) return json_of(arg.view, number);
  if (arg.kind == TraceArg::Kind::Bytes) {
    const std::string op = arg.op < 0 ? "" : ",\"op\":" + std::to_string(arg.op);
    return "{\"bytes\":\"" + hex_of(arg.bytes) + "\"" + op + "}";
  }
  std::string s = "[";
  for (const TensorView& v : arg.list) s += (s.size() > 1 ? "," : "") + json_of(v, number);
  return s + "]";
}

void Snapshot::write_blocks(const std::string& path, int64_t number) const {
  std::string header = "{";
  size_t at = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    header += std::string(i ? "," : "") + "\"" + std::to_string(number) + "." + std::to_string(i) + "\":{\"dtype\":\"" +
              kSafetensorsNames[int(b.dtype)] + "\",\"shape\":[" +
              std::to_string(int64_t(b.bytes.size()) / size_of(b.dtype)) + "],\"data_offsets\":[" + std::to_string(at) +
              "," + std::to_string(at + b.bytes.size()) + "]}";
    at += b.bytes.size();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = char(uint64_t(header.size()) >> (8 * i));
  file.write(length, 8).write(header.data(), std::streamsize(header.size()));
  for (const Block& b : blocks_) file.write(b.bytes.data(), std::streamsize(b.bytes.size()));
  check_runtime(file.flush().good(), "[TAPIR_DUMP] expected to write {}", path);
}

void Snapshot::write(const std::string& dir, int64_t number, const char* entry, Device device,
                     const std::string& reason) const {
  const HeldSignals held;
  std::error_code ignored;
  std::filesystem::create_directories(dir, ignored);  // a failure shows when the files are written
  const std::string base = dir + "/" + std::to_string(number), n = std::to_string(number);
  write_blocks(base + ".safetensors", number);
  std::string line = "{\"name\":\"" + std::string(entry) + "/" + n + "\",\"entry\":\"" + entry + "\",\"device\":\"" +
                     device.str() + "\",\"reason\":" + quoted(reason) + ",\"args\":[";
  for (size_t i = 0; i < args_.size(); ++i) line += (i ? "," : "") + json_of(args_[i], number);
  std::ofstream file(base + ".jsonl");
  file << line << "]}\n";
  check_runtime(file.flush().good(), "[TAPIR_DUMP] expected to write {}", base + ".jsonl");
  std::fprintf(stderr, "[tapir] %s: %s; its operands are in %s.jsonl\n", entry, reason.c_str(), base.c_str());
}

}  // namespace tapir::inline v0::detail
