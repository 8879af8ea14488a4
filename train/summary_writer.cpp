#include "summary_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "../core/checks.h"
#include "../core/fail_as.h"
#include "../core/held_signals.h"
#include "../core/modes.h"
#include "../io/file.h"
#include "../io/png.h"
#include "../ops/ops.h"

namespace tapir::inline v0::train {

// Note [Event files]
// A file is a row of TFRecords: length (8 bytes), its masked CRC-32C, the bytes, their masked CRC-32C, all little-endian. Each record is
// an `Event` of TensorBoard's event.proto; the fields used: Event 1 wall_time, 2 step, 3 file_version, 5 summary; Summary 1 value; Value
// 1 tag, 2 simple_value, 4 image, 5 histo, 8 tensor, 9 metadata. Protocol buffers are written by the few lines below.

namespace detail {
uint32_t masked_crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> t;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = table[(crc ^ uint8_t(c)) & 255] ^ crc >> 8;
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
}  // namespace detail

namespace {

std::string varint(uint64_t v) {
  std::string out;
  for (; v > 127; v >>= 7) out += char(v | 128);
  return out += char(v);
}
template <class T> std::string raw(T v) { return std::string(reinterpret_cast<const char*>(&v), sizeof v); }
std::string number_field(int field, double v) { return varint(uint64_t(field) << 3 | 1) + raw(v); }
std::string float_field(int field, float v) { return varint(uint64_t(field) << 3 | 5) + raw(v); }
std::string int_field(int field, int64_t v) { return varint(uint64_t(field) << 3) + varint(uint64_t(v)); }
std::string bytes_field(int field, std::string_view v) {
  return varint(uint64_t(field) << 3 | 2) + varint(v.size()) + std::string(v);
}
std::string packed_field(int field, const std::vector<double>& v) {
  return bytes_field(field, {reinterpret_cast<const char*>(v.data()), v.size() * 8});
}
std::string plugin(std::string_view name, std::string_view content = {}) {
  return bytes_field(9, bytes_field(1, bytes_field(1, name) + (content.empty() ? "" : bytes_field(2, content))));
}

std::string text_field(int field, const char* what, std::string_view text) {
  check(io::valid_utf8(text), "[SummaryWriter] expected {} in UTF-8, got \"{}\"", what, io::shown(text));
  return bytes_field(field, text);
}
std::string tag_field(std::string_view tag) { return text_field(1, "a tag", tag); }

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

SummaryWriter::SummaryWriter(const std::string& logdir) {
  check_runtime(logdir.find('\0') == logdir.npos, "[SummaryWriter] expected a folder without NUL in its name, got {}",
                logdir);
  std::error_code error;
  std::filesystem::create_directories(logdir, error);
  char host[128] = "host";
  gethostname(host, sizeof host - 1);
  for (int i = 0; fd_ < 0; ++i) {  // two writers within a second get two files
    path_ = logdir + "/events.out.tfevents." + std::to_string(int64_t(seconds_now())) + "." + host + "." +
            std::to_string(getpid()) + "." + std::to_string(i);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    check_runtime(fd_ >= 0 || errno == EEXIST, "[SummaryWriter] expected a folder that can be written, got {}: {}",
                  path_, std::strerror(errno));
  }
  try {
    write_event(0, "version", "brain.Event:2");
  } catch (...) {
    ::unlink(path_.c_str());
    ::close(fd_);
    throw;
  }
}
SummaryWriter::~SummaryWriter() {
  if (fd_ >= 0) ::close(fd_);
}
SummaryWriter::SummaryWriter(SummaryWriter&& o) noexcept : path_(std::move(o.path_)), fd_(std::exchange(o.fd_, -1)) {}

void SummaryWriter::write_event(int64_t step, std::string_view field, std::string_view payload) {
  check_runtime(fd_ >= 0 || path_.empty(), "[SummaryWriter] could not write {}: a write before has failed halfway",
                path_);
  check(fd_ >= 0, "[SummaryWriter] expected an open file, got a writer that was moved from");
  const std::string event =
      number_field(1, seconds_now()) + int_field(2, step) + bytes_field(field == "version" ? 3 : 5, payload);
  std::string record = raw(uint64_t(event.size()));
  record += raw(detail::masked_crc32c(record));
  record += event + raw(detail::masked_crc32c(event));
  const HeldSignals held;
  const off_t begin = ::lseek(fd_, 0, SEEK_END);
  for (size_t at = 0; at < record.size();) {
    const ssize_t n = ::write(fd_, record.data() + at, record.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {  // nobody could read what came behind half a record
      const int error = n < 0 ? errno : ENOSPC;
      if (at > 0 && begin >= 0 && ::ftruncate(fd_, begin) != 0) ::close(std::exchange(fd_, -1));
      fail(ErrorKind::Runtime, "[SummaryWriter] could not write {}: {}", path_, std::strerror(error));
    }
    at += size_t(n);
  }
}
void SummaryWriter::write_value(int64_t step, std::string value) {
  write_event(step, "summary", bytes_field(1, value));
}

void SummaryWriter::add_scalar(std::string_view tag, double value, int64_t step) {
  write_value(step, tag_field(tag) + float_field(2, float(value)));
}

void SummaryWriter::add_histogram(std::string_view tag, const Tensor& values, int64_t step, int64_t bins) {
  check(bins > 0, "[SummaryWriter] expected bins above 0, got {}", bins);
  check(values.defined(), "[SummaryWriter] expected values, got an undefined tensor");
  NoGrad guard;
  Tensor x = values.detach().cpu().to(kFloat64).flatten();
  x = masked_select(x, isfinite(x));
  if (x.numel() == 0) return;
  const double low = min(x).item(), high = max(x).item();
  const double unit = std::isfinite(high - low) ? 1 : 0.5;  // the distance may overflow where its half does not
  const double width = high > low ? (high * unit - low * unit) / double(bins) : 1;
  auto limits = host_vector<double>("SummaryWriter", bins), counts = host_vector<double>("SummaryWriter", bins);
  for (int64_t i = 1; i <= bins; ++i)
    limits[size_t(i - 1)] = i == bins && high > low ? high : (low * unit + width * double(i)) / unit;
  double sum = 0, squares = 0;
  for (const double v : x.to_vector<double>()) {
    ++counts[size_t(std::min(bins - 1, int64_t((v * unit - low * unit) / width)))];
    sum += v, squares += v * v;
  }
  write_value(step, tag_field(tag) + bytes_field(5, number_field(1, low) + number_field(2, high) +
                                                        number_field(3, double(x.numel())) + number_field(4, sum) +
                                                        number_field(5, squares) + packed_field(6, limits) +
                                                        packed_field(7, counts)));
}

void SummaryWriter::add_image(std::string_view tag, const Tensor& image, int64_t step) try {
  const std::string png = io::encode_png(image);
  const bool planes = image.dim() == 3;
  write_value(step,
              tag_field(tag) +
                  bytes_field(4, int_field(1, image.size(planes ? 1 : 0)) + int_field(2, image.size(planes ? 2 : 1)) +
                                     int_field(3, planes ? image.size(0) : 1) + bytes_field(4, png)));
} catch (...) {
  fail_as("SummaryWriter");
}

void SummaryWriter::add_text(std::string_view tag, std::string_view text, int64_t step) {
  // A string, shape (1,), of any bytes: a sample of a language model may end within a character.
  const std::string tensor = int_field(1, 7) + bytes_field(2, bytes_field(2, int_field(1, 1))) + bytes_field(8, text);
  write_value(step, tag_field(tag) + bytes_field(8, tensor) + plugin("text"));
}

void SummaryWriter::add_hparams(const std::vector<std::pair<std::string, HParam>>& params,
                                const std::vector<std::pair<std::string, double>>& metrics) {
  // HParamsPluginData: 2 experiment, 3 session_start_info, 4 session_end_info. HParamInfo: 1 name, 4 type; values are google.protobuf.Value.
  std::string infos, start, names;
  for (const auto& [name, value] : params) {
    const bool number = value.kind == HParam::Kind::Number, text = value.kind == HParam::Kind::Text;
    infos += bytes_field(4, text_field(1, "a name", name) + int_field(4, number ? 3
                                                                         : text ? 1
                                                                                : 2));  // float64, string, bool
    const std::string held = number ? number_field(2, value.number)
                             : text ? text_field(3, "a value", value.text)
                                    : int_field(4, value.number != 0);
    start += bytes_field(1, bytes_field(1, name) + bytes_field(2, held));
  }
  for (const auto& [name, value] : metrics) names += bytes_field(5, bytes_field(1, text_field(2, "a name", name)));
  const auto session = [&](std::string_view tag, int field, const std::string& content) {
    write_value(0, tag_field(tag) + plugin("hparams", int_field(1, 0) + bytes_field(field, content)));
  };
  session("_hparams_/experiment", 2, infos + names);
  session("_hparams_/session_start_info", 3, start);
  session("_hparams_/session_end_info", 4, int_field(1, 1));  // success
  for (const auto& [name, value] : metrics) add_scalar(name, value, 0);
}

void SummaryWriter::flush() {
  check_runtime(::fdatasync(fd_) == 0 || errno == EINVAL, "[SummaryWriter] could not write {}: {}", path_,
                std::strerror(errno));
}

}  // namespace tapir::inline v0::train
