#include <tapir/tapir.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <filesystem>

#include "../io/temporary.h"
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

TEST_CASE("save_graph: a file is the old one or the new one, and a link stays one") {
  const tapir_tests::TemporaryFolder folder;
  const Tensor y = exp(leaf({2}));
  const std::string file = folder / "g.svg", link = folder / "link.svg";
  REQUIRE(symlink("g.svg", link.c_str()) == 0);
  save_graph(link, y);  // the first time to nowhere
  const std::string first = tapir_tests::slurp(file);
  CHECK((mentions(first, {"</svg>"}) && std::filesystem::is_symlink(link)));
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{64, 64};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto save = [&] { save_graph(link, exp(y)); };
    const std::string error = tapir_tests::message_of<tapir::RuntimeError>(save);
    _exit(mentions(error, {"save_graph", "link.svg", "File too large"}) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(tapir_tests::slurp(file) == first);
  save_graph(link, exp(y));
  CHECK((tapir_tests::slurp(file) != first && tapir_tests::names_in(folder.path).size() == 2));
}
