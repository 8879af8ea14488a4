#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0::train {

/// A hyperparameter: a number, a text or a bool.
struct HParam {
  enum class Kind { Number, Text, Bool } kind;
  double number = 0;
  std::string text;
  template <class T>
  requires std::is_arithmetic_v<T> HParam(T v)
      : kind(std::is_same_v<T, bool> ? Kind::Bool : Kind::Number), number(double(v)) {}
  HParam(std::string_view v) : kind(Kind::Text), text(v) {}
  HParam(const char* v) : kind(Kind::Text), text(v) {}
  HParam(std::string v) : kind(Kind::Text), text(std::move(v)) {}
};

/// Writes what TensorBoard shows: `tensorboard --logdir runs`.
///     train::SummaryWriter log("runs/first");
///     log.add_scalar("loss/train", loss, step);
/// Records are complete when a call returns; flush() puts them on the disk. RuntimeError where the folder cannot be written.
class SummaryWriter {
 public:
  /// A new file events.out.tfevents.SECONDS.HOST.PID in the folder, which is made.
  explicit SummaryWriter(const std::string& logdir);
  ~SummaryWriter();
  SummaryWriter(SummaryWriter&& o) noexcept;
  SummaryWriter& operator=(SummaryWriter&&) = delete;

  void add_scalar(std::string_view tag, double value, int64_t step);
  /// Counts of the finite elements in `bins` bins of equal width; a tensor without one is left out.
  void add_histogram(std::string_view tag, const Tensor& values, int64_t step, int64_t bins = 64);
  /// (C, H, W) or (H, W), as io::encode_png takes it.
  void add_image(std::string_view tag, const Tensor& image, int64_t step);
  void add_text(std::string_view tag, std::string_view text, int64_t step);
  /// The hyperparameters of this run and the metrics that it ended with, for the HPARAMS page.
  void add_hparams(const std::vector<std::pair<std::string, HParam>>& params,
                   const std::vector<std::pair<std::string, double>>& metrics);
  void flush();
  const std::string& path() const { return path_; }

 private:
  void write_event(int64_t step, std::string_view field, std::string_view payload);
  void write_value(int64_t step, std::string value);
  std::string path_;
  int fd_ = -1;
};

namespace detail {
/// CRC-32C (Castagnoli) as TFRecord masks it.
uint32_t masked_crc32c(std::string_view bytes);
}  // namespace detail

}  // namespace tapir::inline v0::train
