#include "graph.h"

#include <bit>
#include <cstring>

#include "../core/error.h"
#include "../core/version.h"

namespace tapir::inline v0::onnx {
namespace {

// Note [Wire format]
// A protobuf message is a list of fields. A field is a key (number << 3 | type) and a value: a varint (type 0), 4 bytes (type 5), or a
// length and that many bytes (type 2: texts, raw data, messages). The numbers of the fields below are those of onnx.proto.
class Message {
 public:
  Message& integer(int field, int64_t v) { return key(field, 0), varint(uint64_t(v)), *this; }
  Message& text(int field, std::string_view s) {
    key(field, 2), varint(s.size());
    bytes_.append(s);
    return *this;
  }
  Message& message(int field, const Message& m) { return text(field, m.bytes_); }
  Message& number(int field, float v) {
    key(field, 5);
    uint32_t bits = std::bit_cast<uint32_t>(v);
    for (int i = 0; i < 4; ++i, bits >>= 8) bytes_ += char(bits & 0xff);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int type) { varint(uint64_t(field) << 3 | uint64_t(type)); }
  void varint(uint64_t v) {
    for (; v >= 0x80; v >>= 7) bytes_ += char(v | 0x80);
    bytes_ += char(v);
  }
  std::string bytes_;
};

Message tensor_proto(const Initializer& t) {
  static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");
  Message m;
  for (const int64_t d : t.values.shape()) m.integer(1, d);
  m.integer(2, onnx_type(t.values.dtype())).text(8, t.name);
  const size_t bytes = size_t(t.values.numel() * size_of(t.values.dtype()));
  return m.text(9, {static_cast<const char*>(t.values.data_ptr()), bytes});
}

Message port_proto(const Port& p) {
  Message shape;
  for (const int64_t d : p.dims) {
    Message dim;
    if (d == Port::kBatch) dim.text(2, "batch");
    if (d >= 0) dim.integer(1, d);
    shape.message(1, dim);
  }
  Message tensor, type, m;
  tensor.integer(1, onnx_type(p.dtype)).message(2, shape);
  return m.text(1, p.name).message(2, type.message(1, tensor));
}

Message graph_proto(const Graph& graph);

Message attribute_proto(const Attribute& a) {
  enum { kFloat = 1, kInt = 2, kText = 3, kGraph = 5, kInts = 7 };  // AttributeProto.AttributeType
  Message m;
  m.text(1, a.name);
  switch (a.kind) {
    case Attribute::Kind::Float: return m.number(2, float(a.number)).integer(20, kFloat);
    case Attribute::Kind::Int: return m.integer(3, a.integer).integer(20, kInt);
    case Attribute::Kind::Text: return m.text(4, a.text).integer(20, kText);
    case Attribute::Kind::Graph: return m.message(6, graph_proto(*a.graph)).integer(20, kGraph);
    case Attribute::Kind::Ints: break;
  }
  for (const int64_t v : a.ints) m.integer(8, v);
  return m.integer(20, kInts);
}

Message node_proto(const Node& n, const std::string& name) {
  Message m;
  for (const std::string& s : n.inputs) m.text(1, s);
  for (const std::string& s : n.outputs) m.text(2, s);
  m.text(3, name).text(4, n.op);
  for (const Attribute& a : n.attributes) m.message(5, attribute_proto(a));
  return m;
}

Message graph_proto(const Graph& graph) {
  Message m;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    m.message(1, node_proto(graph.nodes[i], graph.name + "/" + graph.nodes[i].op + "_" + std::to_string(i)));
  m.text(2, graph.name);
  for (const Initializer& t : graph.initializers) m.message(5, tensor_proto(t));
  for (const Port& p : graph.inputs) m.message(11, port_proto(p));
  for (const Port& p : graph.outputs) m.message(12, port_proto(p));
  return m;
}

}  // namespace

bool Attribute::operator==(const Attribute& o) const {
  if (std::string_view(name) != o.name || kind != o.kind) return false;
  if (kind == Kind::Graph)
    return graph->nodes == o.graph->nodes && graph->inputs == o.graph->inputs && graph->outputs == o.graph->outputs;
  return integer == o.integer && number == o.number && text == o.text && ints == o.ints;
}

int64_t onnx_type(DType dtype) {
  switch (dtype) {
    case kFloat32: return 1;
    case kUInt8: return 2;
    case kInt8: return 3;
    case kInt16: return 5;
    case kInt32: return 6;
    case kInt64: return 7;
    case kBool: return 9;
    case kFloat16: return 10;
    case kFloat64: return 11;
    default: return 16;  // bfloat16
  }
}

std::string serialize(const Graph& graph, int64_t opset) {
  int64_t bytes = 1 << 20;
  for (const Initializer& t : graph.initializers) bytes += t.values.numel() * size_of(t.values.dtype());
  check(bytes < int64_t(1) << 31, "[onnx::save] expected a model below 2 GiB, the limit of the format, got {} bytes",
        bytes);
  Message domain, model;
  domain.text(1, "").integer(2, opset);
  model.integer(1, opset >= 19 ? 9 : 8);  // the IR version of the release that introduced the operator set
  model.text(2, "tapir").text(3, version()).message(7, graph_proto(graph)).message(8, domain);
  return model.bytes();
}

}  // namespace tapir::inline v0::onnx
