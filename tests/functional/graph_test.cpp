#include <tapir/tapir.h>

#include <filesystem>

#include "../ops/helpers.h"

TEST_CASE("the recorded graph as text, DOT and SVG") {
  const Tensor w = leaf({1, 2}), b = leaf({3});
  const Tensor y = sum(exp(w * w) + b);
  CHECK(graph_text(y, {{"w", w}}) ==
        "0: sum () -> 1\n1: add (2,) -> 2, 4\n2: exp (2,) -> 3\n3: mul (2,) -> 5, 5\n4: leaf (1,)\n5: w (2,)\n");
  const std::string dot = graph_dot(y), svg = graph_svg(y, {{"a<b", w}});
  CHECK(mentions(dot, {"digraph", "n0 -> n1", "exp<br/>(2,)"}));
  CHECK(mentions(svg, {"<svg", "</svg>", "a&lt;b", ">exp<"}));
  const auto folder = std::filesystem::temp_directory_path();
  const std::string file = (folder / "tapir_graph.svg").string();
  save_graph(file, y);
  CHECK(std::filesystem::file_size(file) > 100);
  std::filesystem::remove(file);
  CHECK(mentions(error_of([&] { save_graph("graph.png", y); }), {"save_graph", "graph.png"}));
  CHECK(mentions(error_of([&] { graph_text(w.detach()); }), {"graph_text", "history"}));
}
