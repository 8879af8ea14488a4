#include "error.h"

#include <charconv>
#include <typeinfo>

#include "fail_as.h"
#include "tensor.h"

namespace tapir::inline v0 {
namespace {

void append_double(std::string& out, double v) {
  char digits[32];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), v).ptr);
}

void append(std::string& out, const FormatArg& a) {
  using Kind = FormatArg::Kind;
  switch (a.kind) {
    case Kind::Int: out += std::to_string(a.integer); return;
    case Kind::Float: append_double(out, a.number); return;
    case Kind::Bool: out += a.integer ? "true" : "false"; return;
    case Kind::Text: out += a.text; return;
    case Kind::Dims: out += a.dims->str(); return;
    case Kind::DType: out += name_of(DType(a.integer)); return;
    case Kind::Device: out += a.device.str(); return;
    case Kind::Tensor:
      if (!a.tensor->defined()) out += "undefined";
      else out.append(name_of(a.tensor->dtype())).append(" ").append(a.tensor->shape().str());
      return;
  }
}

/// A message that a log or a terminal can show: control characters as \\xNN, and of texts beyond kMostText bytes the ends.
std::string printable(std::string text) {
  constexpr size_t kMostText = 1 << 14;
  if (text.size() > kMostText)
    text = text.substr(0, kMostText / 2) + "... (" + std::to_string(text.size()) + " bytes) ..." +
           text.substr(text.size() - kMostText / 4);
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 32 && byte != 127) || c == '\n' || c == '\t') {
      out += c;
      continue;
    }
    constexpr const char* digits = "0123456789abcdef";
    out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

}  // namespace

std::string format_args(std::string_view text, const FormatArg* args, int count) {
  std::string out;
  int next = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' && i + 1 < text.size() && text[i + 1] == '}' && next < count) append(out, args[next++]), ++i;
    else out += text[i];
  }
  return out;
}

void fail_args(ErrorKind kind, std::string_view text, const FormatArg* args, int count) {
  const std::string message = printable(format_args(text, args, count));
  switch (kind) {
    case ErrorKind::Value: throw ValueError(message);
    case ErrorKind::Runtime: throw RuntimeError(message);
    case ErrorKind::OutOfMemory: throw OutOfMemoryError(message);
    case ErrorKind::Internal: break;
  }
  throw InternalError(message + " (this is a bug of Tapir's: please report it)");
}

void fail_as(const char* op) {
  const auto renamed = [op](const std::exception& e) {
    const std::string_view text = e.what();
    const size_t end = text.starts_with('[') ? text.find("] ") : text.npos;
    return end == text.npos ? std::string(text) : tapir::format("[{}{}", op, text.substr(end));
  };
  try {
    throw;
  } catch (const ValueError& e) {
    if (typeid(e) == typeid(ValueError)) throw ValueError(renamed(e));
    throw;
  } catch (const OutOfMemoryError& e) {
    if (typeid(e) == typeid(OutOfMemoryError)) throw OutOfMemoryError(renamed(e));
    throw;
  }
}

}  // namespace tapir::inline v0
