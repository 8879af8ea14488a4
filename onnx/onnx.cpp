#include "onnx.h"
#include "../core/no_copy.h"

#include <algorithm>
#include <array>
#include <set>

#include "../compile/record/record.h"
#include "../core/modes.h"
#include "../io/file.h"
#include "../ops/cast.h"
#include "../ops/create.h"
#include "../ops/indexing.h"
#include "ops.h"

namespace tapir::inline v0::onnx {
namespace {

/// Puts the model into evaluation mode for a scope; afterwards each module is in the mode that it was in.
class Evaluating : NoCopy {
 public:
  explicit Evaluating(nn::Module& model) {
    for (auto& [name, m] : model.named_modules()) before_.push_back({m, m->training});
    model.eval();
  }
  ~Evaluating() {
    for (auto& [m, training] : before_) m->training = training;
  }

 private:
  std::vector<std::pair<nn::Module*, bool>> before_;
};

/// The arguments of save().
struct Request {
  nn::Module& model;
  void* self;
  detail::Forward forward;
  const Options& options;
};

std::string name_of(const std::vector<std::string>& names, const char* otherwise, size_t i, size_t count) {
  if (!names.empty()) return names[i];
  return count == 1 ? otherwise : otherwise + ("_" + std::to_string(i));
}
void check_names(const char* what, const std::vector<std::string>& names, size_t count) {
  check(names.empty() || names.size() == count, "[onnx::save] expected {} {} names, got {}", int64_t(count), what,
        int64_t(names.size()));
}

/// Gives the parameters and buffers that the program uses the first of their names.
void name_state(Export& e, const ir::Program& program, nn::Module& model) {
  std::map<const Storage*, int> blocks;
  for (size_t i = 0; i < program.blocks.size(); ++i)
    if (program.blocks[i].kind == ir::Block::Kind::Outside) blocks[program.blocks[i].memory.get()] = int(i);
  std::set<std::pair<int, int64_t>> named;
  for (const auto& [name, t] : model.state_dict()) {
    if (!t.defined() || t.numel() == 0) continue;
    const Storage* root = root_of(t.impl().storage.get());
    const auto at = blocks.find(root);
    if (at == blocks.end()) continue;
    ir::View v;
    v.kind = ir::View::Kind::Memory, v.dtype = t.dtype(), v.device = t.device(), v.block = at->second;
    v.offset = (static_cast<const char*>(t.data_ptr()) - static_cast<const char*>(root->data)) / size_of(t.dtype());
    v.shape = t.shape(), v.strides = t.strides();
    if (named.insert({v.block, v.offset}).second) e.values.name(v, t, name);
  }
}

/// Adds the output `name`. A value that no node makes, or that is an output already, gets an Identity; build() renames any other.
void name_output(Graph& g, const Value& value, const std::string& name) {
  const auto made_here = [&](const Node& n) {
    return std::find(n.outputs.begin(), n.outputs.end(), value.name) != n.outputs.end();
  };
  const bool taken =
      std::any_of(g.outputs.begin(), g.outputs.end(), [&](const Port& p) { return p.name == value.name; });
  g.outputs.push_back({name, value.dtype, value.shape.vec()});
  if (taken || std::none_of(g.nodes.begin(), g.nodes.end(), made_here))
    return g.nodes.push_back({"Identity", {value.name}, {name}, {}});
  g.outputs.back().name = value.name;
}

/// Adds the names that a node reads, also those that the nodes of its subgraphs read.
void add_uses(const Node& n, std::set<std::string>& used) {
  used.insert(n.inputs.begin(), n.inputs.end());
  for (const Attribute& a : n.attributes)
    if (a.graph)
      for (const Node& inner : a.graph->nodes) add_uses(inner, used);
}

/// Removes the nodes and initializers that no output needs.
void prune(Graph& g) {
  std::set<std::string> used;
  for (const Port& p : g.outputs) used.insert(p.name);
  std::vector<Node> kept;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    Node& n = g.nodes[i];
    if (std::none_of(n.outputs.begin(), n.outputs.end(), [&](const std::string& s) { return used.count(s); })) continue;
    add_uses(n, used);
    kept.push_back(std::move(n));
  }
  std::reverse(kept.begin(), kept.end());
  g.nodes = std::move(kept);
  std::erase_if(g.initializers, [&](const Initializer& t) { return !used.count(t.name); });
}

void rename(Graph& g, const std::string& from, const std::string& to) {
  for (Node& n : g.nodes) {
    for (auto* names : {&n.inputs, &n.outputs}) std::replace(names->begin(), names->end(), from, to);
    for (Attribute& a : n.attributes)
      if (a.graph) rename(*a.graph, from, to);
  }
  for (Port& p : g.outputs)
    if (p.name == from) p.name = to;
}

void check_unique(const Graph& g) {
  std::set<std::string> names;
  const auto add = [&](const std::string& name) {
    check(!name.empty() && io::valid_utf8(name) && name.find('\0') == name.npos,
          "[onnx::save] expected names in UTF-8, not empty and without NUL, got \"{}\"", io::shown(name));
    check(names.insert(name).second,
          "[onnx::save] expected names of inputs, outputs and parameters that differ, got \"{}\" twice", name);
  };
  for (const Port& p : g.inputs) add(p.name);
  for (const Initializer& t : g.initializers) add(t.name);
  for (const Node& n : g.nodes)
    for (const std::string& s : n.outputs) add(s);
}

Graph build(const Request& r, const std::vector<Tensor>& inputs) {
  ir::Program program;
  std::vector<Tensor> outputs;
  {
    ir::Recording recording(inputs);
    outputs = r.forward(r.self, inputs);
    check(!outputs.empty(), "[onnx::save] expected a model that returns tensors, got none");
    program = recording.finish(outputs);
  }
  check_names("output", r.options.output_names, outputs.size());
  Export e(program, "tapir", r.options.opset);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = name_of(r.options.input_names, "input", i, inputs.size());
    e.b.graph.inputs.push_back({name, inputs[i].dtype(), inputs[i].shape().vec()});
    e.values.write(program.inputs[i], {name, inputs[i].dtype(), inputs[i].shape()});
  }
  name_state(e, program, r.model);
  for (const ir::Call& call : program.calls) e.call = &call, translate(e);
  Graph& g = e.b.graph;
  for (size_t i = 0; i < outputs.size(); ++i)
    name_output(g, e.values.read(program.outputs[i]), name_of(r.options.output_names, "output", i, outputs.size()));
  prune(g);
  for (size_t i = 0; i < outputs.size(); ++i)
    rename(g, g.outputs[i].name, name_of(r.options.output_names, "output", i, outputs.size()));
  check_unique(g);
  return std::move(g);
}

// ---- a graph for any batch size ----

[[noreturn]] void refuse_batch(const std::string& why) {
  fail(ErrorKind::Value,
       "[onnx::save] expected a model whose graph is the same for every batch, got {}: export it "
       "without dynamic_batch",
       why);
}

/// The inputs with `batch` rows, each of which is the first row.
std::vector<Tensor> with_batch(const std::vector<Tensor>& inputs, int64_t batch) {
  std::vector<Tensor> out;
  for (const Tensor& x : inputs) {
    check(x.dim() > 0, "[onnx::save] expected inputs with a batch dimension for dynamic_batch, got {}", x);
    out.push_back(index_select(x, 0, zeros({batch}, {.dtype = kInt64, .device = x.device()})));
  }
  return out;
}

/// Extents that depend on the batch size: base + slope batch.
struct Line {
  std::vector<int64_t> base, slope;
};
/// From the initializers of batches of 2, 3 and 4 rows; nullopt where they are the same.
std::optional<Line> line_through(const std::array<const Initializer*, 3>& t) {
  const auto numbers = [](const Initializer& i) { return i.values.to_vector<int64_t>(); };
  const auto same = [](const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.shape() == b.shape() &&
           std::equal(static_cast<char*>(a.data_ptr()),
                      static_cast<char*>(a.data_ptr()) + a.numel() * size_of(a.dtype()),
                      static_cast<char*>(b.data_ptr()));
  };
  if (t[0]->values.is_same(t[1]->values) || (same(t[0]->values, t[1]->values) && same(t[0]->values, t[2]->values)))
    return {};
  if (!t[0]->extents || t[0]->values.shape() != t[1]->values.shape())
    refuse_batch(tapir::format("a constant that differs, {} and {}", t[0]->values, t[1]->values));
  const auto a = numbers(*t[0]), b = numbers(*t[1]), c = numbers(*t[2]);
  Line line;
  for (size_t i = 0; i < a.size(); ++i) {
    if (c[i] - b[i] != b[i] - a[i]) refuse_batch(tapir::format("extents {}, {} and {}", a[i], b[i], c[i]));
    line.slope.push_back(b[i] - a[i]), line.base.push_back(a[i] - 2 * (b[i] - a[i]));
  }
  return line;
}

/// Appends to `to` the nodes that compute the extents of `t` from the batch size, which is the first input's; `t` becomes their base.
void compute(Graph& g, std::vector<Node>& to, Initializer& t, const Line& line) {
  const std::string base = t.name + "_base", slope = t.name + "_slope", part = t.name + "_part";
  const Shape shape = t.values.shape();
  if (to.empty()) {
    const int64_t zero = 0;
    g.initializers.push_back({"tapir_batch_axis", tensor(std::span(&zero, 1), Shape()), true});
    to.push_back({"Shape", {g.inputs[0].name}, {"tapir_batch_shape"}, {}});
    to.push_back({"Gather", {"tapir_batch_shape", "tapir_batch_axis"}, {"tapir_batch"}, {{"axis", 0}}});
  }
  to.push_back({"Mul", {slope, "tapir_batch"}, {part}, {}});
  to.push_back({"Add", {base, part}, {t.name}, {}});
  t = {base, tensor(std::span<const int64_t>(line.base), shape), true};
  g.initializers.push_back({slope, tensor(std::span<const int64_t>(line.slope), shape), true});
}

/// Where only Reshape reads these extents, and one of them depends on the batch size, -1 stands for it: Reshape infers it. Else false.
bool infer(const Graph& g, Initializer& t, const Line& line) {
  int64_t moving = 0;
  for (const int64_t s : line.slope) moving += s != 0;
  for (const Node& n : g.nodes)
    for (size_t i = 0; i < n.inputs.size(); ++i)
      if (n.inputs[i] == t.name && (n.op != "Reshape" || i != 1)) return false;
  if (moving != 1) return false;
  std::vector<int64_t> extents = line.base;
  for (size_t i = 0; i < extents.size(); ++i)
    if (line.slope[i]) extents[i] = -1;
  for (const int64_t e : extents)
    if (e == 0) return false;
  t.values = tensor(extents);
  return true;
}

/// Marks the dimensions of inputs or outputs that differ for another batch size.
void follow(std::vector<Port>& ports, const std::vector<Port>& others) {
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].dims.size() != others[i].dims.size()) refuse_batch("outputs of another rank");
    for (size_t d = 0; d < ports[i].dims.size(); ++d)
      if (ports[i].dims[d] != others[i].dims[d]) ports[i].dims[d] = ports[i].dims[d] == 2 ? Port::kBatch : Port::kAny;
  }
}

/// Builds the graph for 2, 3 and 4 rows. Extents that differ are computed from the batch size; any other difference is an error.
Graph build_dynamic(const Request& r, const std::vector<Tensor>& inputs) {
  std::array<Graph, 3> graphs;
  for (size_t i = 0; i < 3; ++i) graphs[i] = build(r, with_batch(inputs, int64_t(i) + 2));
  Graph& g = graphs[0];
  for (const Graph* other : {&graphs[1], &graphs[2]})
    if (g.nodes != other->nodes || g.initializers.size() != other->initializers.size())
      refuse_batch("other operations for another batch");
  std::vector<Node> computed;
  for (size_t i = 0, count = g.initializers.size(); i < count; ++i) {
    const auto line = line_through({&g.initializers[i], &graphs[1].initializers[i], &graphs[2].initializers[i]});
    if (!line || infer(g, g.initializers[i], *line)) continue;
    Initializer moved = g.initializers[i];
    compute(g, computed, moved, *line);
    g.initializers[i] = moved;
  }
  g.nodes.insert(g.nodes.begin(), computed.begin(), computed.end());
  follow(g.inputs, graphs[1].inputs), follow(g.outputs, graphs[1].outputs);
  return std::move(g);
}

}  // namespace

void detail::save(nn::Module& model, void* self, Forward forward, const std::vector<Tensor>& given,
                  const std::string& path, const Options& o) {
  check(o.opset >= 17 && o.opset <= 20, "[onnx::save] expected an opset from 17 to 20, got {}", o.opset);
  check_names("input", o.input_names, given.size());
  NoGrad guard;
  const Evaluating evaluating(model);
  std::vector<Tensor> inputs;
  for (const Tensor& x : given) {
    check(x.defined() && x.numel() > 0, "[onnx::save] expected example inputs with elements, got {}",
          x.defined() ? tapir::format("{}", x) : "an undefined tensor");
    inputs.push_back(clone(x, kContiguous));
  }
  const Request request{model, self, forward, o};
  const Graph graph = o.dynamic_batch ? build_dynamic(request, inputs) : build(request, inputs);
  io::write_file("onnx::save", path, serialize(graph, o.opset));
}

}  // namespace tapir::inline v0::onnx
