#include "text.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "../core/error.h"
#include "../io/file.h"
#include "dataset.h"

namespace tapir::inline v0::data {

namespace {

/// The code points of a text that is known to be UTF-8.
std::vector<uint32_t> code_points(std::string_view text) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t length = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    uint32_t v = length == 1 ? c : c & (0x7f >> length);
    for (size_t k = 1; k < length; ++k) v = v << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3f);
    out.push_back(v);
    i += length;
  }
  return out;
}

std::string utf8(uint32_t v) {
  if (v < 0x80) return {char(v)};
  if (v < 0x800) return {char(0xC0 | v >> 6), char(0x80 | (v & 0x3f))};
  if (v < 0x10000) return {char(0xE0 | v >> 12), char(0x80 | (v >> 6 & 0x3f)), char(0x80 | (v & 0x3f))};
  return {char(0xF0 | v >> 18), char(0x80 | (v >> 12 & 0x3f)), char(0x80 | (v >> 6 & 0x3f)), char(0x80 | (v & 0x3f))};
}

Tensor window(int64_t context) { return empty({context}, {.dtype = kInt64}); }

}  // namespace

/// ValueError for what is no tensor of integers.
static void check_tokens(const char* op, const Tensor& tokens) {
  check(tokens.defined() && !is_floating(tokens.dtype()) && tokens.dtype() != kBool,
        "[{}] expected tokens of an integer dtype, got {}", op, tokens);
}

CharVocabulary::CharVocabulary(std::string_view text) {
  int64_t bad = 0;
  const bool good = io::valid_utf8(text, &bad);
  check_runtime(good, "[CharVocabulary] expected a text in UTF-8, byte {} is not", bad);
  characters_ = code_points(text);
  std::sort(characters_.begin(), characters_.end());
  characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
}

Tensor CharVocabulary::encode(std::string_view text) const {
  int64_t bad = 0;
  const bool good = io::valid_utf8(text, &bad);
  check(good, "[CharVocabulary] expected a text in UTF-8, byte {} is not", bad);
  const auto points = code_points(text);
  const Tensor out = window(int64_t(points.size()));
  for (size_t i = 0; i < points.size(); ++i) {
    const auto at = std::lower_bound(characters_.begin(), characters_.end(), points[i]);
    check(at != characters_.end() && *at == points[i],
          "[CharVocabulary] expected one of {} characters, got \"{}\" at position {}", size(), utf8(points[i]),
          int64_t(i));
    out.data<int64_t>()[i] = at - characters_.begin();
  }
  return out;
}

std::string CharVocabulary::decode(int64_t token) const {
  check(token >= 0 && token < size(), "[CharVocabulary] expected a token below {}, got {}", size(), token);
  return utf8(characters_[size_t(token)]);
}

std::string CharVocabulary::decode(const Tensor& tokens) const {
  check_tokens("CharVocabulary", tokens);
  std::string out;
  for (const int64_t token : tokens.to_vector<int64_t>()) out += decode(token);
  return out;
}

CharDataset::CharDataset(const Tensor& tokens, int64_t context) : tokens_(tokens), context_(context) {
  check(tokens.defined() && tokens.dtype() == kInt64 && tokens.dim() == 1,
        "[CharDataset] expected tokens of int64 (N,), got {}", tokens);
  check(context > 0, "[CharDataset] expected a context above 0, got {}", context);
  check(tokens.numel() > context, "[CharDataset] expected more than {} tokens for windows of {}, got {}", context,
        context, tokens.numel());
}

CharDataset::Sample CharDataset::get(int64_t i) const {
  check_index("CharDataset", i, size());
  return {tokens_.narrow(0, i, context_), tokens_.narrow(0, i + 1, context_)};
}

TokenFile::TokenFile(const std::string& path, int64_t context, const TokenFileOptions& options)
    : path_(path), options_(options), context_(context) {
  check(context > 0 && options.stride > 0 && options.vocabulary >= 0 &&
            (options.dtype == kInt16 || options.dtype == kInt32),
        "[TokenFile] expected a context and stride above 0, a vocabulary from 0 on and int16 or int32, got {}, {}, {} "
        "and {}",
        context, options.stride, options.vocabulary, options.dtype);
  const int64_t item = size_of(options.dtype), bytes = io::InputFile("TokenFile", path).size();
  check_runtime(bytes % item == 0, "[TokenFile] {}: expected tokens of {} bytes, the file has {} bytes", path, item,
                bytes);
  tokens_ = bytes / item;
  check_runtime(tokens_ > context, "[TokenFile] {}: expected more than {} tokens for windows of {}, the file has {}",
                path, context, context, tokens_);
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  check_runtime(fd_ >= 0, "[TokenFile] cannot open {}: {}", path,
                std::error_code(errno, std::generic_category()).message());
  if (!options.map) return;
  map_ = ::mmap(nullptr, size_t(bytes), PROT_READ, MAP_SHARED, fd_, 0);
  if (map_ != MAP_FAILED) return;
  map_ = nullptr;  // then it is read
}

TokenFile::TokenFile(TokenFile&& o) noexcept
    : path_(std::move(o.path_)), options_(o.options_), context_(o.context_), tokens_(o.tokens_),
      fd_(std::exchange(o.fd_, -1)), map_(std::exchange(o.map_, nullptr)) {}

TokenFile::~TokenFile() {
  if (map_) ::munmap(map_, size_t(tokens_ * size_of(options_.dtype)));
  if (fd_ >= 0) ::close(fd_);
}

template <class T> void TokenFile::widen(int64_t first, const Tensor& x, const Tensor& y) const {
  const int64_t count = context_ + 1, at = first * int64_t(sizeof(T)), bytes = count * int64_t(sizeof(T));
  std::vector<T> read;
  const T* from = static_cast<const T*>(map_) + first;
  if (map_) {  // a page behind the end of a file that was cut would be a SIGBUS
    struct stat info;
    check_runtime(::fstat(fd_, &info) == 0 && info.st_size >= at + bytes,
                  "[TokenFile] {}: expected {} tokens, the file has shrunk", path_, tokens_);
  } else {
    read.resize(size_t(count));
    for (int64_t done = 0; done < bytes;) {
      const int64_t got =
          io::system_calls().read(fd_, reinterpret_cast<char*>(read.data()) + done, uint64_t(bytes - done), at + done);
      if (got < 0 && errno == EINTR) continue;
      check_runtime(got > 0, "[TokenFile] {}: expected {} tokens, the file ends at byte {}", path_, tokens_, at + done);
      done += got;
    }
    from = read.data();
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto token = int64_t(from[i]);
    check_runtime(options_.vocabulary == 0 || token < options_.vocabulary,
                  "[TokenFile] {}: expected tokens below {}, got {} at position {}", path_, options_.vocabulary, token,
                  first + i);
    if (i < context_) x.data<int64_t>()[i] = token;
    if (i > 0) y.data<int64_t>()[i - 1] = token;
  }
}

TokenFile::Sample TokenFile::get(int64_t i) const {
  check(fd_ >= 0, "[TokenFile] expected an open file, got one that was moved from");
  check_index("TokenFile", i, size());
  Sample out = {window(context_), window(context_)};
  if (options_.dtype == kInt16) widen<uint16_t>(i * options_.stride, out[0], out[1]);
  else widen<uint32_t>(i * options_.stride, out[0], out[1]);
  return out;
}

void write_tokens(const std::string& path, const Tensor& tokens, DType dtype) {
  check(dtype == kInt16 || dtype == kInt32, "[write_tokens] expected int16 or int32, got {}", dtype);
  check_tokens("write_tokens", tokens);
  const auto values = tokens.to_vector<int64_t>();
  const int64_t item = size_of(dtype), limit = int64_t(1) << 8 * item;
  std::string bytes;
  for (size_t i = 0; i < values.size(); ++i) {
    check(values[i] >= 0 && values[i] < limit, "[write_tokens] expected tokens below {}, got {} at position {}", limit,
          values[i], int64_t(i));
    bytes.append(reinterpret_cast<const char*>(&values[i]), size_t(item));
  }
  io::write_file("write_tokens", path, bytes);
}

}  // namespace tapir::inline v0::data
