#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// Names for leaves in a drawing: {"fc.weight", tensor} as named_parameters() gives them.
using LeafNames = std::vector<std::pair<std::string, Tensor>>;

/// The recorded graph behind y, a line per operation from y down: number, name, shape, and where its gradients go.
std::string graph_text(const Tensor& y, const LeafNames& names = {});
/// The same for Graphviz.
std::string graph_dot(const Tensor& y, const LeafNames& names = {});
/// A drawing that needs no other program: y at the top, a row for each distance from it, leaves in another colour.
std::string graph_svg(const Tensor& y, const LeafNames& names = {});
/// Writes a file; its ending (.dot, .svg, .txt) says which form. ValueError for another.
void save_graph(const std::string& path, const Tensor& y, const LeafNames& names = {});

}  // namespace tapir::inline v0
