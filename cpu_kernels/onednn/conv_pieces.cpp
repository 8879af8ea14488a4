#include "conv_pieces.h"

#include <algorithm>

#include "../conv/conv_gemm.h"

namespace tapir::inline v0::cpu::dnn {
namespace {

constexpr double kLeast = 1 << 20;  // multiplications of a piece: 20 us
constexpr int64_t kEnough = 16;     // pieces
constexpr int64_t kUnit = 32;       // channels: of every kernel's blocks whole ones

/// How many pieces `work` is worth, from 1 to `most`.
int64_t worth(double work, int64_t most) {
  return int64_t(std::clamp(work / kLeast, 1.0, double(std::max<int64_t>(1, most))));
}

}  // namespace

ConvPieces::ConvPieces(const Conv& c, bool turned)
    : s_(c.shape), pass_(c.pass), x_last_(c.x.channels_last), w_last_(c.w.channels_last), y_last_(c.y.channels_last),
      turned_(turned), sums_(c.pass == ConvPass::BackwardWeight) {
  const double work = double(s_.n * s_.o) * double(s_.c / s_.groups * volume(s_.kernel)) * double(volume(s_.out));
  sums_ ? cut_weight(work) : cut_result(work);
}

void ConvPieces::cut_result(double work) {
  const bool forward = pass_ == ConvPass::Forward;
  const int64_t rows = forward ? s_.out[0] : s_.in[0], channels = forward ? s_.o : s_.c;
  images_ = Cut(s_.n, worth(work, std::min<int64_t>(s_.n, 4 * kEnough)), 1);
  rows_ = Cut(rows, 1, 1), channels_ = Cut(channels, 1, 1);
  const int64_t each = worth(work / double(images_.count), 2 * kEnough / images_.count);
  const bool last = x_last_ && y_last_;  // else each piece would turn all of its image
  if (images_.count >= (last ? kEnough : kEnough / 4) || each == 1) return;
  const int64_t result = channels * volume(forward ? s_.out : s_.in),
                weights = s_.o * s_.c / s_.groups * volume(s_.kernel);
  const int64_t reach = (s_.kernel[0] - 1) * s_.dilation[0] + 1;
  const bool by_rows =
      s_.padding[0] < reach && (s_.stride[0] <= reach || s_.padding[0] == 0) && rows >= 4 * s_.stride[0];
  const bool by_channels = s_.groups == 1 && channels >= 2 * kUnit;
  // Rows of other orders than channels last do not lie side by side.
  if (by_channels && (!by_rows || weights > result || !last))
    channels_ = Cut(channels, std::min(each, channels / kUnit), kUnit);
  else if (by_rows) rows_ = Cut(rows, std::min(each, rows / (2 * s_.stride[0])), s_.stride[0]);
}

void ConvPieces::cut_weight(double work) {
  constexpr int64_t kPixels = 4096;              // from here on it costs little to add another gradient
  constexpr int64_t kMemory = int64_t(1) << 24;  // numbers
  const int64_t weights = s_.o * s_.c / s_.groups * volume(s_.kernel);
  const int64_t most = std::min({s_.n, s_.n * volume(s_.out) / kPixels, kMemory / weights, 2 * kEnough});
  images_ = Cut(s_.n, worth(work, most), 1);
  rows_ = Cut(s_.out[0], 1, 1), channels_ = Cut(s_.o, 1, 1);
  if (s_.groups == 1 && images_.count < kEnough)
    channels_ =
        Cut(s_.o,
            std::min(worth(work / double(images_.count), kEnough / images_.count), std::max<int64_t>(1, s_.o / kUnit)),
            kUnit);
}

/// What rows [first, first + count) of the result are computed of.
void ConvPieces::cut_rows(int64_t first, int64_t count, ConvPiece& p) const {
  const int64_t stride = s_.stride[0], padding = s_.padding[0], reach = (s_.kernel[0] - 1) * s_.dilation[0] + 1;
  int64_t in = 0, in_end = s_.in[0], out = 0, out_end = s_.out[0];
  if (pass_ == ConvPass::Forward) {
    out = first, out_end = first + count;
    in = std::max<int64_t>(0, out * stride - padding),
    in_end = std::min(s_.in[0], (out_end - 1) * stride - padding + reach);
  } else {
    in = first, in_end = first + count;
    out = std::max<int64_t>(0, (in + padding - reach) / stride + (in + padding >= reach ? 1 : 0));
    out = std::min(out, (in + padding) / stride);  // a stride may be longer than the kernel
    out_end = std::min(s_.out[0], (in_end - 1 + padding) / stride + 1);
    out = std::min(out, out_end - 1);  // rows at the end that nobody read
  }
  p.shape.in[0] = in_end - in, p.shape.out[0] = out_end - out, p.shape.padding[0] = in + padding - out * stride;
  const auto row = [](const int64_t* extents, int64_t channels, bool last) {
    return extents[1] * extents[2] * (last ? channels : 1);
  };
  p.x += in * row(s_.in, s_.c, x_last_), p.y += out * row(s_.out, s_.o, y_last_);
}

ConvPiece ConvPieces::piece(int64_t image, int64_t row, int64_t channel) const {
  ConvPiece p;
  const int64_t n = images_.first(image), c = channels_.first(channel), kernel = volume(s_.kernel);
  p.shape = s_, p.part = sums_ ? image : 0;
  p.shape.n = images_.length(image);
  p.x = n * s_.c * volume(s_.in), p.y = n * s_.o * volume(s_.out);
  if (rows_.count > 1) cut_rows(rows_.first(row), rows_.length(row), p);
  if (channels_.count == 1) return p;
  if (pass_ == ConvPass::BackwardData) {
    p.shape.c = channels_.length(channel);
    p.x += c * (x_last_ ? 1 : volume(s_.in)), p.w += c * (w_last_ ? 1 : kernel);
  } else {
    p.shape.o = channels_.length(channel), p.o = c;
    p.y += c * (y_last_ ? 1 : volume(s_.out)), p.w += c * (turned_ ? (w_last_ ? 1 : kernel) : s_.c * kernel);
  }
  return p;
}

}  // namespace tapir::inline v0::cpu::dnn
