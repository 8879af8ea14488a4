#include "graph.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include "../autograd/node.h"
#include "../core/error.h"
#include "../core/held_signals.h"

namespace tapir::inline v0 {
namespace {

struct Box {
  std::string label, shape;
  bool leaf = false;
  uint64_t sequence = 0;
  int64_t row = 0;
  std::vector<size_t> to;
};

const void* key_of(const Edge& e) { return e.node() ? static_cast<const void*>(e.node()) : e.leaf().impl_or_null(); }

/// The boxes from y down, latest operation first, leaves last.
std::vector<Box> boxes_of(const char* op, const Tensor& y, const LeafNames& names) {
  check(y.defined() && y.requires_grad(), "[{}] expected a tensor with a recorded history, got {}", op, y);
  std::vector<Box> boxes;
  std::vector<Edge> found{edge_of(y)};
  std::map<const void*, size_t> place{{key_of(found[0]), 0}};
  for (size_t i = 0; i < found.size(); ++i) {
    const Edge e = found[i];
    Box b;
    b.leaf = !e.node();
    if (Node* n = e.node()) {
      b.label = n->name, b.shape = tapir::format("{}", n->output(0).shape), b.sequence = n->sequence + 1;
      for (uint32_t k = 0; k < n->num_edges; ++k)
        if (n->edges[k] && place.emplace(key_of(n->edges[k]), found.size()).second) found.push_back(n->edges[k]);
    } else {
      b.label = "leaf", b.shape = tapir::format("{}", e.leaf().shape());
      for (auto& [name, tensor] : names)
        if (tensor.is_same(e.leaf())) b.label = name;
    }
    boxes.push_back(std::move(b));
  }
  std::vector<size_t> order(boxes.size()), rank(boxes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return boxes[a].sequence > boxes[b].sequence; });
  for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  std::vector<Box> sorted(boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (const Node* n = found[i].node())
      for (uint32_t k = 0; k < n->num_edges; ++k)
        if (n->edges[k]) boxes[i].to.push_back(rank[place[key_of(n->edges[k])]]);
    sorted[rank[i]] = std::move(boxes[i]);
  }
  for (Box& b : sorted)  // producers come later in the list
    for (const size_t t : b.to) sorted[t].row = std::max(sorted[t].row, b.row + 1);
  return sorted;
}

std::string escaped(const std::string& text) {
  std::string s;
  for (const char c : text) {
    if (c == '<') s += "&lt;";
    else if (c == '>') s += "&gt;";
    else if (c == '&') s += "&amp;";
    else if (c == '"') s += "&quot;";
    else s += c;
  }
  return s;
}

}  // namespace

std::string graph_text(const Tensor& y, const LeafNames& names) {
  const auto boxes = boxes_of("graph_text", y, names);
  std::string s;
  for (size_t i = 0; i < boxes.size(); ++i) {
    s += tapir::format("{}: {} {}", int64_t(i), boxes[i].label, boxes[i].shape);
    for (size_t k = 0; k < boxes[i].to.size(); ++k) s += (k ? ", " : " -> ") + std::to_string(boxes[i].to[k]);
    s += '\n';
  }
  return s;
}

std::string graph_dot(const Tensor& y, const LeafNames& names) {
  const auto boxes = boxes_of("graph_dot", y, names);
  std::string s = "digraph tape {\n  node [shape=box, style=filled, fillcolor=white];\n";
  for (size_t i = 0; i < boxes.size(); ++i) {
    s += "  n" + std::to_string(i) + " [label=<" + escaped(boxes[i].label) + "<br/>" + escaped(boxes[i].shape) + ">" +
         (boxes[i].leaf ? ", fillcolor=lightblue" : "") + "];\n";
    for (const size_t t : boxes[i].to) s += "  n" + std::to_string(i) + " -> n" + std::to_string(t) + ";\n";
  }
  return s + "}\n";
}

std::string graph_svg(const Tensor& y, const LeafNames& names) {
  const auto boxes = boxes_of("graph_svg", y, names);
  constexpr int64_t kWidth = 170, kHeight = 36, kGapX = 20, kGapY = 34;
  std::map<int64_t, int64_t> filled;  // boxes so far in each row
  std::vector<std::pair<int64_t, int64_t>> at;
  int64_t width = 0, height = 0;
  for (const Box& b : boxes) {
    at.emplace_back(kGapX + filled[b.row]++ * (kWidth + kGapX), kGapY / 2 + b.row * (kHeight + kGapY));
    width = std::max(width, at.back().first + kWidth + kGapX),
    height = std::max(height, at.back().second + kHeight + kGapY / 2);
  }
  std::string s = tapir::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
      "font-size=\"12\" text-anchor=\"middle\">\n",
      width, height);
  for (size_t i = 0; i < boxes.size(); ++i)
    for (const size_t t : boxes[i].to)
      s += tapir::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"gray\"/>\n", at[i].first + kWidth / 2,
                         at[i].second + kHeight, at[t].first + kWidth / 2, at[t].second);
  for (size_t i = 0; i < boxes.size(); ++i) {
    const auto [x, top] = at[i];
    s += tapir::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" stroke=\"black\"/>\n",
                       x, top, kWidth, kHeight, boxes[i].leaf ? "lightblue" : "white");
    s += tapir::format("<text x=\"{}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" fill=\"gray\">{}</text>\n",
                       x + kWidth / 2, top + 15, escaped(boxes[i].label), x + kWidth / 2, top + 30,
                       escaped(boxes[i].shape));
  }
  return s + "</svg>\n";
}

void save_graph(const std::string& path, const Tensor& y, const LeafNames& names) {
  const std::string ending = path.substr(std::min(path.size(), path.rfind('.')));
  check(ending == ".dot" || ending == ".svg" || ending == ".txt",
        "[save_graph] expected a file name with .dot, .svg or .txt, got \"{}\"", path);
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  check_runtime(path.find('\0') == path.npos && (type == fs::file_type::not_found || type == fs::file_type::regular),
                "[save_graph] expected the name of a file, got \"{}\"", path);
  const std::string text = ending == ".dot"   ? graph_dot(y, names)
                           : ending == ".svg" ? graph_svg(y, names)
                                              : graph_text(y, names);
  fs::path target = path;
  while (fs::is_symlink(target, error)) target = target.parent_path() / fs::read_symlink(target, error);
  const std::string temporary = target.string() + "." + std::to_string(getpid()) + ".tmp";
  const HeldSignals held;
  fs::remove(temporary, error);  // of a process that was killed and had this number
  std::FILE* const file = std::fopen(temporary.c_str(), "wxe");
  check_runtime(file, "[save_graph] cannot write {}: {}", temporary, std::strerror(errno));
  bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  whole = whole && (fsync(fileno(file)) == 0 || errno == EINVAL) && std::rename(temporary.c_str(), target.c_str()) == 0;
  const int reason = errno;
  std::fclose(file);
  if (!whole) fs::remove(temporary, error);
  check_runtime(whole, "[save_graph] cannot write {}: {}", path, std::strerror(reason));
}

}  // namespace tapir::inline v0
