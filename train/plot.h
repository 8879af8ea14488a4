#pragma once
#include <string>
#include <vector>

namespace tapir::inline v0::train {

/// A curve; where y is not finite it has a gap.
struct Curve {
  std::string name;
  std::vector<double> x, y;
};
struct Panel {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
  bool log_y = false;  // values not above 0 are gaps
};

/// Line charts side by side as an SVG picture that any browser shows. ValueError for a curve whose x and y differ in length.
std::string plot_svg(const std::vector<Panel>& panels);
/// The same into a file, which appears whole or not at all.
void save_plot(const std::string& path, const std::vector<Panel>& panels);

}  // namespace tapir::inline v0::train
