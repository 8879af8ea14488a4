#pragma once
// The parts of an ONNX model that an export writes, and the function that serializes them (onnx.proto of ONNX 1.12 to 1.16). Not for
// public headers.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0::onnx {

struct Graph;

/// An attribute of a node: an integer, a float, a text, a list of integers, or a graph.
struct Attribute {
  enum class Kind : uint8_t { Int, Float, Text, Ints, Graph };
  const char* name;
  Kind kind;
  int64_t integer = 0;
  double number = 0;
  std::string text = {};
  std::vector<int64_t> ints = {};
  std::shared_ptr<Graph> graph = {};

  Attribute(const char* name, int64_t v) : name(name), kind(Kind::Int), integer(v) {}
  Attribute(const char* name, int v) : Attribute(name, int64_t(v)) {}
  Attribute(const char* name, double v) : name(name), kind(Kind::Float), number(v) {}
  Attribute(const char* name, const char* v) : name(name), kind(Kind::Text), text(v) {}
  Attribute(const char* name, std::vector<int64_t> v) : name(name), kind(Kind::Ints), ints(std::move(v)) {}
  Attribute(const char* name, std::shared_ptr<Graph> v) : name(name), kind(Kind::Graph), graph(std::move(v)) {}
  bool operator==(const Attribute& o) const;
};

struct Node {
  std::string op;
  std::vector<std::string> inputs, outputs;  // an empty name: this optional one is absent
  std::vector<Attribute> attributes;
  bool operator==(const Node&) const = default;
};

/// A named tensor of the graph; `values` is contiguous and on the CPU. `extents`: it holds sizes or positions, which may depend on the
/// batch size.
struct Initializer {
  std::string name;
  Tensor values;
  bool extents = false;
};

/// An input or output of the graph.
struct Port {
  static constexpr int64_t kBatch = -1, kAny = -2;  // dimensions without a fixed size
  std::string name;
  DType dtype = kFloat32;
  std::vector<int64_t> dims = {};
  bool operator==(const Port&) const = default;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Initializer> initializers;
  std::vector<Port> inputs, outputs;
};

/// The bytes of a ModelProto for this version of the operator set. ValueError where they would pass protobuf's limit of 2 GiB.
std::string serialize(const Graph& graph, int64_t opset);
/// The number of a dtype in TensorProto.DataType.
int64_t onnx_type(DType dtype);

}  // namespace tapir::inline v0::onnx
