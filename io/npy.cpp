#include "npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>

#include "../core/error.h"
#include "../core/fail_as.h"
#include "../ops/bitwise.h"
#include "shown_path.h"
#include "zip.h"

namespace tapir::inline v0::io {

// Note [NumPy files]
// "\x93NUMPY", two version bytes, a header length of 2 bytes (version 1) or 4, the header: a Python dict literal of
// exactly descr, fortran_order and shape, ended by a newline; then the elements.

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kMaxHeader = 10000;  // NumPy's own limit

struct Descr {
  std::string_view code;
  DType dtype;
};
constexpr Descr kDescrs[] = {{"f4", kFloat32}, {"f8", kFloat64}, {"f2", kFloat16}, {"i8", kInt64}, {"i4", kInt32},
                             {"i2", kInt16},   {"i1", kInt8},    {"u1", kUInt8},   {"b1", kBool}};

/// A dtype that Tapir lacks, as it stands in a file, and what holds its numbers.
struct Wider {
  std::string_view code;
  DType stored, wide;
};
constexpr Wider kWider[] = {{"u2", kInt16, kInt32}, {"u4", kInt32, kInt64}};

struct Source {
  std::string where;
  int64_t size;
  virtual ~Source() = default;
  virtual void read(void* to, int64_t bytes) = 0;
};

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran;
  std::optional<Shape> shape;
};

/// The dict literal of a header; nothing but what NumPy writes there.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}
  Header parse() {
    Header h;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = text();
      expect(':');
      if (key == "descr" && !h.descr) h.descr = std::string(descr());
      else if (key == "fortran_order" && !h.fortran) h.fortran = word();
      else if (key == "shape" && !h.shape) h.shape = shape();
      else fail_at("the keys descr, fortran_order and shape, once each");
      if (!accept(',') && !(skip(), at_ < text_.size() && text_[at_] == '}')) fail_at("\",\" or \"}\"");
    }
    skip();
    if (at_ != text_.size()) fail_at("nothing behind the dict");
    if (!h.descr || !h.fortran || !h.shape) fail_at("the keys descr, fortran_order and shape");
    return h;
  }

 private:
  [[noreturn]] void fail_at(const char* expected) const {
    fail(ErrorKind::Runtime, "{}: npy header, character {}: expected {}, got \"{}\"", where_, int64_t(at_), expected,
         shown(text_.substr(std::min(at_, text_.size()), 40)));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    const char wanted[] = {'"', c, '"', 0};
    if (!accept(c)) fail_at(wanted);
  }
  std::string_view text() {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : 0;
    const size_t end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : text_.npos;
    if (end == text_.npos) fail_at("a text in quotes");
    const auto out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return out;
  }
  /// A text, or the list of a structured dtype as it stands.
  std::string_view descr() {
    if (!accept('[')) return text();
    const size_t begin = at_ - 1;
    for (int depth = 1; depth > 0;) {
      skip();
      if (at_ >= text_.size()) fail_at("\"]\"");
      const char c = text_[at_];
      if (c == '\'' || c == '"') text();
      else depth += (c == '[') - (c == ']'), ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }
  bool word() {
    skip();
    for (const std::string_view w : {"True", "False"})
      if (text_.substr(at_).starts_with(w)) {
        at_ += w.size();
        return w == "True";
      }
    fail_at("True or False");
  }
  Shape shape() {
    Shape out;
    expect('(');
    while (!accept(')')) {
      skip();
      int64_t v = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
      if (error != std::errc() || v < 0) fail_at("an extent from 0 on");
      if (out.size() == kMaxRank) fail_at("at most 16 extents");
      at_ = size_t(end - text_.data());
      accept('L');  // of Python 2
      out.push_back(v);
      if (!accept(',') && !(skip(), at_ < text_.size() && text_[at_] == ')' && out.size() > 1))
        fail_at("\",\" or \")\"");
    }
    return out;
  }
  std::string_view text_;
  size_t at_ = 0;
  const std::string& where_;
};

std::string read_header(Source& in, int64_t& data_at) {
  char start[12];
  check_runtime(in.size >= 10, "{}: expected a npy file of at least 10 bytes, got {}", in.where, in.size);
  in.read(start, 10);
  check_runtime(std::string_view(start, 6) == kMagic, "{}: expected \"\\x93NUMPY\" at byte 0, got \"{}\"", in.where,
                shown(std::string_view(start, 6)));
  const int major = start[6], minor = start[7];
  check_runtime(major >= 1 && major <= 3 && minor == 0, "{}: expected npy version 1.0, 2.0 or 3.0, got {}.{}", in.where,
                int(uint8_t(major)), int(uint8_t(minor)));
  int64_t length = uint8_t(start[8]) | uint8_t(start[9]) << 8, at = 10;
  if (major > 1) {
    check_runtime(in.size >= 12, "{}: expected a npy file of at least 12 bytes, got {}", in.where, in.size);
    in.read(start + 10, 2);
    length |= int64_t(uint8_t(start[10])) << 16 | int64_t(uint8_t(start[11])) << 24, at = 12;
  }
  check_runtime(length >= 1 && length <= std::min(kMaxHeader, in.size - at),
                "{}: expected a npy header of 1 to {} bytes, its length says {}", in.where,
                std::min(kMaxHeader, in.size - at), length);
  std::string header(size_t(length), '\0');
  in.read(header.data(), length);
  check_runtime(header.back() == '\n', "{}: expected the npy header to end with a newline at byte {}", in.where,
                at + length - 1);
  data_at = at + length;
  return header;
}

void swap_bytes(char* p, int64_t count, int64_t item) {
  for (int64_t i = 0; i < count; ++i) std::reverse(p + i * item, p + (i + 1) * item);
}

/// How a file's elements are kept: `stored` as bytes, then converted to `dtype` where that is another one.
struct Elements {
  DType stored, dtype;
  bool swapped;  // big-endian
};

/// Nothing for a dtype that Tapir lacks.
std::optional<Elements> elements_of(std::string_view descr, bool widen) {
  if (descr.size() != 3 || std::string_view("<>|=").find(descr[0]) == descr.npos) return {};
  const bool swapped = descr[0] == '>';
  for (const Descr& d : kDescrs)
    if (descr.substr(1) == d.code) return Elements{d.dtype, d.dtype, swapped};
  for (const Wider& w : kWider)
    if (widen && descr.substr(1) == w.code) return Elements{w.stored, w.wide, swapped};
  return {};
}

/// Signed numbers whose bits are those of unsigned ones, as these.
Tensor widened(const Tensor& x, DType wide) {
  return bitwise_and(x.to(wide), (int64_t(1) << 8 * size_of(x.dtype())) - 1);
}

Tensor read_elements(Source& in, const Header& h, const Elements& elements, int64_t at) {
  const int64_t item = size_of(elements.stored);
  int64_t bytes = item;
  bool overflow = false;
  for (const int64_t d : *h.shape) overflow |= __builtin_mul_overflow(bytes, std::max<int64_t>(d, 1), &bytes);
  if (h.shape->contains(0)) bytes = 0;
  check_runtime(!overflow && bytes == in.size - at, "{}: expected {} bytes of {} {} behind byte {}, got {}", in.where,
                overflow ? std::string("more than 2^63") : std::to_string(bytes), *h.descr, *h.shape, at, in.size - at);
  Shape shape = *h.shape;
  if (*h.fortran) std::reverse(shape.begin(), shape.end());
  Tensor x = empty(shape, {.dtype = elements.stored});
  if (bytes > 0) in.read(x.data_ptr(), bytes);
  if (elements.swapped && item > 1) swap_bytes(static_cast<char*>(x.data_ptr()), bytes / item, item);
  if (elements.stored == kBool)  // a bool of another byte is undefined behaviour in C++
    for (auto *p = static_cast<uint8_t*>(x.data_ptr()), *end = p + bytes; p != end; ++p) *p = *p != 0;
  if (elements.dtype != elements.stored) x = widened(x, elements.dtype);
  if (!*h.fortran) return x;
  Strides strides = x.strides();
  std::reverse(strides.begin(), strides.end());
  return alias(x, *h.shape, strides, 0);
}

/// Undefined for a dtype that Tapir lacks, where those are skipped. `advice`: what else the caller can do.
Tensor read_array(Source& in, const LoadNpzOptions& options, std::string_view advice) {
  int64_t at = 0;
  const std::string text = read_header(in, at);
  const Header h = HeaderParser(text, in.where).parse();
  const auto elements = elements_of(*h.descr, options.widen_unsigned);
  if (elements) return read_elements(in, h, *elements, at);
  const bool wider = elements_of(*h.descr, true).has_value(), structured = h.descr->starts_with('[');
  check_runtime(options.skip_unsupported,
                "{}: expected a dtype among f2 f4 f8 i1 i2 i4 i8 u1 b1 (with < > | or = before it), got descr "
                "\"{}\"{}{}",
                in.where, shown(*h.descr),
                structured ? " (a structured dtype)"
                : wider    ? "; .widen_unsigned reads it as a wider integer"
                           : "",
                advice);
  return {};
}

struct FileSource final : Source {
  explicit FileSource(const std::string& path) : file("load_npy", path) {
    where = "[load_npy] " + shown_path(path), size = file.size();
  }
  void read(void* to, int64_t bytes) override {
    file.read(at, to, bytes);
    at += bytes;
  }
  InputFile file;
  int64_t at = 0;
};
struct MemberSource final : Source {
  MemberSource(ZipReader& zip, const ZipMember& member) : stream(zip, member) {
    where = zip.where() + ": member " + shown(member.name), size = member.size;
  }
  void read(void* to, int64_t bytes) override { stream.read(to, bytes); }
  ZipStream stream;
};

/// Header of a contiguous array, padded so that data begins at a multiple of 64.
std::string make_header(const char* op, const Tensor& x) {
  const auto known =
      std::find_if(std::begin(kDescrs), std::end(kDescrs), [&](const Descr& d) { return d.dtype == x.dtype(); });
  check(known != std::end(kDescrs), "[{}] expected a dtype that NumPy has, got {}", op, x);
  std::string text = tapir::format("{'descr': '{}{}', 'fortran_order': False, 'shape': {}, }",
                                   size_of(x.dtype()) == 1 ? "|" : "<", known->code, x.shape());
  text.resize((10 + text.size() + 64) / 64 * 64 - 11, ' ');
  text += '\n';
  const auto length = uint16_t(text.size());
  std::string out(kMagic);
  out.append("\1\0", 2).append(reinterpret_cast<const char*>(&length), 2);
  return out + text;
}
Tensor plain(const char* op, const Tensor& x) {
  check(x.defined(), "[{}] expected a defined tensor, got an undefined one", op);
  return x.detach().cpu().contiguous();
}

}  // namespace

Tensor load_npy(const std::string& path, const NpyOptions& options) {
  FileSource in(path);
  return read_array(in, {.widen_unsigned = options.widen_unsigned}, "");
}

void save_npy(const std::string& path, const Tensor& x) {
  const Tensor data = plain("save_npy", x);
  const std::string header = make_header("save_npy", data);
  OutputFile file("save_npy", path);
  file.write(header);
  file.write(data.data_ptr(), data.numel() * size_of(data.dtype()));
  file.commit();
}

StateDict load_npz(const std::string& path, const LoadNpzOptions& options) {
  ZipReader zip("load_npz", path);
  StateDict out;
  for (const auto& member : zip.members()) {
    const std::string_view name = member.name;
    check_runtime(name.ends_with(".npy"), "{}: expected members whose names end in .npy, got {}", zip.where(),
                  shown(name));
    MemberSource in(zip, member);
    Tensor x = read_array(in, options, "; .skip_unsupported leaves it out");
    if (!x.defined()) continue;
    in.stream.finish();
    out.append(std::string(name.substr(0, name.size() - 4)), std::move(x));
  }
  return out;
}

void save_npz(const std::string& path, const StateDict& arrays, const NpzOptions& options) try {
  std::vector<std::string_view> names;
  for (const auto& [name, x] : arrays) {
    check(valid_utf8(name), "[save_npz] expected names in UTF-8, got \"{}\"", shown(name));
    make_header("save_npz", plain("save_npz", x));
    names.push_back(name);
  }
  const auto twice = repeated(std::move(names));
  check(!twice, "[save_npz] expected names once, got \"{}\" twice", twice ? shown(*twice) : "");
  OutputFile file("save_npz", path);
  ZipWriter zip(file);
  for (const auto& [name, x] : arrays) {
    const Tensor data = plain("save_npz", x);
    std::string bytes = make_header("save_npz", data);
    const int64_t count = data.numel() * size_of(data.dtype());
    if (count > 0) bytes.append(static_cast<const char*>(data.data_ptr()), size_t(count));
    zip.add(name + ".npy", bytes, {.deflate = options.compress});
  }
  zip.finish();
  file.commit();
} catch (...) {
  fail_as("save_npz");
}

}  // namespace tapir::inline v0::io
