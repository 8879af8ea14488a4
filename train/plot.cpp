#include "plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "../core/error.h"
#include "../io/file.h"
#include "table.h"
#include "terminal.h"

namespace tapir::inline v0::train {

namespace {

constexpr double kWidth = 480, kHeight = 320, kLeft = 64, kRight = 16, kTop = 36, kBottom = 48;
// Okabe and Ito 2008: colours that people with any colour vision tell apart.
constexpr std::array<const char*, 7> kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                 "#E69F00", "#56B4E9", "#000000"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : plain(text))
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}
std::string text_at(double x, double y, std::string_view anchor, std::string_view text, std::string_view more = "") {
  return "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" text-anchor=\"" + std::string(anchor) + "\"" +
         std::string(more) + ">" + escaped(text) + "</text>\n";
}
std::string line_between(double x1, double y1, double x2, double y2, std::string_view colour) {
  return "<line x1=\"" + fixed(x1, 1) + "\" y1=\"" + fixed(y1, 1) + "\" x2=\"" + fixed(x2, 1) + "\" y2=\"" +
         fixed(y2, 1) + "\" stroke=\"" + std::string(colour) + "\"/>\n";
}

/// One axis: from low to high, linear or in decades, onto pixels from `begin` to `end`.
struct Axis {
  double low, high, begin, end;
  bool log = false;
  std::vector<double> ticks;

  double unit = 1;  // numbers at the ends of double's range are drawn by a fraction, whose distances do not overflow

  double transformed(double v) const { return log ? std::log10(v) : v * unit; }
  double pixel(double v) const { return begin + (transformed(v) - low) / (high - low) * (end - begin); }
  bool shows(double v) const { return std::isfinite(v) && (!log || v > 0); }

  Axis(double smallest, double largest, double begin, double end, bool log) : begin(begin), end(end), log(log) {
    if (!(smallest <= largest)) smallest = log ? 0.1 : 0, largest = 1;
    if (!log && std::max(std::abs(smallest), std::abs(largest)) > 1e300) unit = 0x1p-20;
    low = transformed(smallest), high = transformed(largest);
    if (const double least = 1e-12 * std::max(1.0, std::abs(high)); high - low < least)
      low -= std::max(0.5, least), high += std::max(0.5, least);
    // Steps of 1, 2 or 5 times a power of ten, about five of them; in decades at least one.
    double step = std::pow(10, std::floor(std::log10((high - low) / 5)));
    for (const double factor : {1.0, 2.0, 5.0, 10.0})
      if ((high - low) / (step * factor) <= 6) {
        step *= factor;
        break;
      }
    if (log) step = std::max(1.0, std::round(step));
    low = std::floor(low / step + 1e-9) * step, high = std::ceil(high / step - 1e-9) * step;
    for (int i = 0; low + i * step < high + step / 2; ++i) {
      const double at = std::abs(low + i * step) < step / 1e6 ? 0 : low + i * step;
      if (const double v = log ? std::pow(10, at) : at / unit; shows(v)) ticks.push_back(v);
    }
  }
};

std::string number_text(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", v);
  std::replace(text, text + sizeof text, ',', '.');
  return text;
}

std::string panel_svg(const Panel& panel, double left) {
  double x0 = INFINITY, x1 = -INFINITY, y0 = INFINITY, y1 = -INFINITY;
  for (const Curve& c : panel.curves) {
    check(c.x.size() == c.y.size(), "[plot_svg] expected as many x as y in \"{}\", got {} and {}", c.name,
          int64_t(c.x.size()), int64_t(c.y.size()));
    for (size_t i = 0; i < c.x.size(); ++i) {
      if (!std::isfinite(c.x[i]) || !std::isfinite(c.y[i]) || (panel.log_y && c.y[i] <= 0)) continue;
      x0 = std::min(x0, c.x[i]), x1 = std::max(x1, c.x[i]), y0 = std::min(y0, c.y[i]), y1 = std::max(y1, c.y[i]);
    }
  }
  const double bottom = kHeight - kBottom, right = left + kWidth - kRight;
  const Axis x(x0, x1, left + kLeft, right, false), y(y0, y1, bottom, kTop, panel.log_y);
  std::string out = text_at((left + kLeft + right) / 2, 20, "middle", panel.title, " font-weight=\"bold\"");
  for (const double t : y.ticks)
    out += line_between(left + kLeft, y.pixel(t), right, y.pixel(t), "#dddddd") +
           text_at(left + kLeft - 6, y.pixel(t) + 4, "end", number_text(t));
  for (const double t : x.ticks)
    out += line_between(x.pixel(t), bottom, x.pixel(t), bottom + 4, "#333333") +
           text_at(x.pixel(t), bottom + 18, "middle", number_text(t));
  out += line_between(left + kLeft, bottom, right, bottom, "#333333");
  out += text_at((left + kLeft + right) / 2, kHeight - 10, "middle", panel.x_label);
  const std::string at = fixed(left + 14, 1) + " " + fixed((kTop + bottom) / 2, 1);
  out += "<text transform=\"translate(" + at + ") rotate(-90)\" text-anchor=\"middle\">" + escaped(panel.y_label) +
         "</text>\n";
  for (size_t k = 0; k < panel.curves.size(); ++k) {
    const Curve& c = panel.curves[k];
    const std::string colour = kColours[k % kColours.size()];
    std::string path;
    bool pen = false;
    for (size_t i = 0; i < c.x.size(); ++i) {
      const bool seen = x.shows(c.x[i]) && y.shows(c.y[i]);
      if (seen) path += (pen ? "L" : "M") + fixed(x.pixel(c.x[i]), 1) + " " + fixed(y.pixel(c.y[i]), 1);
      pen = seen;
      if (seen && c.x.size() <= 40)
        out += "<circle cx=\"" + fixed(x.pixel(c.x[i]), 1) + "\" cy=\"" + fixed(y.pixel(c.y[i]), 1) +
               "\" r=\"2.5\" fill=\"" + colour + "\"/>\n";
    }
    if (!path.empty())
      out += "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"1.8\"/>\n";
    if (panel.curves.size() > 1 || panel.curves[0].name != panel.y_label) {
      const double row = kTop + 14 + 16 * double(k);
      out +=
          line_between(right - 110, row - 4, right - 92, row - 4, colour) + text_at(right - 86, row, "start", c.name);
    }
  }
  return out;
}

}  // namespace

std::string plot_svg(const std::vector<Panel>& panels) {
  const std::string width = fixed(kWidth * double(std::max<size_t>(1, panels.size())), 0), height = fixed(kHeight, 0);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
                    "\" viewBox=\"0 0 " + width + " " + height +
                    "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333333\">\n<rect width=\"100%\" "
                    "height=\"100%\" fill=\"white\"/>\n";
  for (size_t i = 0; i < panels.size(); ++i) out += panel_svg(panels[i], kWidth * double(i));
  return out + "</svg>\n";
}

void save_plot(const std::string& path, const std::vector<Panel>& panels) {
  io::write_file("save_plot", path, plot_svg(panels));
}

}  // namespace tapir::inline v0::train
