#include <bit>

#include "file.h"
#include "pickle.h"
#include "pickle_globals.h"

namespace tapir::inline v0::io::pickle {

namespace {

constexpr std::string_view kTuple2 = "\x86", kReduce = "R", kStop = ".";

class Writer {
 public:
  explicit Writer(Tensors& tensors) : tensors_(tensors) {}
  std::string take(const Value& value) {
    write(value, 0);
    out_ += kStop;
    return std::move(out_);
  }

 private:
  template <class T> void number(T v) { out_.append(reinterpret_cast<const char*>(&v), sizeof v); }
  void global(std::string_view module, std::string_view name) { ((((out_ += 'c') += module) += '\n') += name) += '\n'; }
  void integer(int64_t v);
  void text(std::string_view v);
  void bytes(std::string_view v);
  void real(double v);
  void dtype(DType v) { global("torch", name_of(v)); }
  void dims(const Dims& v) {
    out_ += '(';
    for (const int64_t d : v) integer(d);
    out_ += 't';
  }
  void tensor(const Tensor& v);
  void sequence(const Value& v, int depth);
  void dict(const Value& v, int depth);
  void write(const Value& v, int depth);

  Tensors& tensors_;
  std::string out_ = "\x80\x02";
};

void Writer::integer(int64_t v) {
  if (v == int32_t(v)) out_ += 'J', number(int32_t(v));
  else out_ += "\x8a\x08", number(v);
}

void Writer::text(std::string_view v) {
  check(valid_utf8(v) && v.size() <= UINT32_MAX, "[save_pt] expected texts in UTF-8, got \"{}\"", shown(v));
  out_ += 'X', number(uint32_t(v.size()));
  out_ += v;
}

/// Protocol 2 has no bytes: _codecs.encode(text, "latin1").
void Writer::bytes(std::string_view v) {
  std::string latin;
  for (const char c : v) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) latin += c;
    else (latin += char(0xC0 | byte >> 6)) += char(0x80 | (byte & 0x3f));
  }
  global("_codecs", "encode");
  text(latin), text("latin1");
  (out_ += kTuple2) += kReduce;
}

void Writer::real(double v) {
  const auto bits = std::bit_cast<uint64_t>(v);
  out_ += 'G';
  for (int i = 56; i >= 0; i -= 8) out_ += char(bits >> i);
}

/// torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, OrderedDict())
void Writer::tensor(const Tensor& v) {
  const TensorRecord r = tensors_.write(v);
  global("torch._utils", "_rebuild_tensor_v2");
  out_ += "((";
  text("storage"), global("torch", storage_name(r.dtype)), text(r.storage), text("cpu"), integer(r.storage_count);
  out_ += "tQ";
  integer(r.offset), dims(r.sizes), dims(r.strides);
  out_ += r.requires_grad ? '\x88' : '\x89';
  global("collections", "OrderedDict");
  out_ += ")RtR";
}

void Writer::sequence(const Value& v, int depth) {
  const bool list = v.kind() == Value::Kind::List;
  out_ += list ? "](" : "(";
  for (const Value& item : v.items()) write(item, depth + 1);
  out_ += list ? 'e' : 't';
}

void Writer::dict(const Value& v, int depth) {
  out_ += "}(";
  for (size_t i = 0; i < v.size(); ++i) write(v.keys()[i], depth + 1), write(v.items()[i], depth + 1);
  out_ += 'u';
}

void Writer::write(const Value& v, int depth) {
  check(depth < kMaxDepth, "[save_pt] expected at most {} levels of lists and dicts, got more", kMaxDepth);
  switch (v.kind()) {
    case Value::Kind::None: out_ += 'N'; return;
    case Value::Kind::Bool: out_ += v.to_bool() ? '\x88' : '\x89'; return;
    case Value::Kind::Int: return integer(v.to_int());
    case Value::Kind::BigInt:
      check(v.big_bytes().size() <= 255, "[save_pt] expected integers of at most 255 bytes, got {}",
            int64_t(v.big_bytes().size()));
      out_ += '\x8a', number(uint8_t(v.big_bytes().size()));
      out_ += v.big_bytes();
      return;
    case Value::Kind::Float: return real(v.to_double());
    case Value::Kind::Text: return text(v.to_text());
    case Value::Kind::Bytes: return bytes(v.to_text());
    case Value::Kind::DType: return dtype(v.to_dtype());
    case Value::Kind::Tensor: return tensor(v.to_tensor());
    case Value::Kind::List:
    case Value::Kind::Tuple: return sequence(v, depth);
    case Value::Kind::Dict: return dict(v, depth);
  }
}

}  // namespace

std::string write(const Value& value, Tensors& tensors) { return Writer(tensors).take(value); }

const char* storage_name(DType dtype) {
  for (const GlobalName& g : kGlobals)
    if (g.global == Global::Storage && g.dtype == dtype) return g.name.data();
  return "";
}

}  // namespace tapir::inline v0::io::pickle
