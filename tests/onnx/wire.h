// A small reader of protobuf's wire format, and of the parts of an ONNX model that tests look at.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "../catch.h"

namespace tapir_tests {

/// The fields of a message, by number: varints and 4-byte values as integers, the rest as bytes.
struct Wire {
  std::map<int, std::vector<uint64_t>> numbers;
  std::map<int, std::vector<std::string>> texts;

  Wire() = default;
  explicit Wire(std::string_view s) {
    while (!s.empty()) {
      const uint64_t key = varint(s);
      const int field = int(key >> 3), type = int(key & 7);
      if (type == 0) numbers[field].push_back(varint(s));
      else if (type == 5) numbers[field].push_back(fixed(s));
      else {
        REQUIRE(type == 2);
        const uint64_t bytes = varint(s);
        REQUIRE(bytes <= s.size());
        texts[field].emplace_back(s.substr(0, bytes));
        s.remove_prefix(bytes);
      }
    }
  }
  uint64_t number(int field) const { return numbers.count(field) ? numbers.at(field)[0] : 0; }
  std::string text(int field) const { return texts.count(field) ? texts.at(field)[0] : ""; }
  Wire message(int field, size_t i = 0) const { return Wire(texts.at(field).at(i)); }
  size_t count(int field) const { return texts.count(field) ? texts.at(field).size() : 0; }

 private:
  static uint64_t varint(std::string_view& s) {
    uint64_t v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      REQUIRE(!s.empty());
      const auto byte = static_cast<unsigned char>(s[0]);
      s.remove_prefix(1);
      v |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return v;
    }
    FAIL("a varint of more than 10 bytes");
    return v;
  }
  static uint64_t fixed(std::string_view& s) {
    REQUIRE(s.size() >= 4);
    uint32_t v;
    std::memcpy(&v, s.data(), 4);
    s.remove_prefix(4);
    return v;
  }
};

struct OnnxModel {
  struct Tensor {
    std::vector<uint64_t> dims;
    uint64_t type;
    std::string raw;
  };
  struct Node {
    std::string op;
    std::vector<std::string> inputs, outputs;
    std::map<std::string, Wire> attributes;
  };
  uint64_t ir_version, opset;
  std::vector<Node> nodes;
  std::map<std::string, Tensor> initializers;
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs, outputs;  // names, dimensions as texts

  explicit OnnxModel(std::string_view bytes) {
    const Wire model(bytes), graph = model.message(7);
    ir_version = model.number(1), opset = model.message(8).number(2);
    for (size_t i = 0; i < graph.count(1); ++i) {
      const Wire n = graph.message(1, i);
      Node node{n.text(4), {}, {}, {}};
      if (n.count(1)) node.inputs = n.texts.at(1);
      if (n.count(2)) node.outputs = n.texts.at(2);
      for (size_t a = 0; a < n.count(5); ++a) node.attributes.emplace(n.message(5, a).text(1), n.message(5, a));
      nodes.push_back(std::move(node));
    }
    for (size_t i = 0; i < graph.count(5); ++i) {
      const Wire t = graph.message(5, i);
      initializers[t.text(8)] = {t.numbers.count(1) ? t.numbers.at(1) : std::vector<uint64_t>(), t.number(2),
                                 t.text(9)};
    }
    inputs = ports(graph, 11), outputs = ports(graph, 12);
  }
  std::string ops() const {
    std::string s;
    for (const Node& n : nodes) s += (s.empty() ? "" : " ") + n.op;
    return s;
  }

 private:
  static std::vector<std::pair<std::string, std::vector<std::string>>> ports(const Wire& graph, int field) {
    std::vector<std::pair<std::string, std::vector<std::string>>> list;
    for (size_t i = 0; i < graph.count(field); ++i) {
      const Wire port = graph.message(field, i), shape = port.message(2).message(1).message(2);
      list.push_back({port.text(1), {}});
      for (size_t d = 0; d < shape.count(1); ++d) {
        const Wire dim = shape.message(1, d);
        list.back().second.push_back(dim.count(2) ? dim.text(2) : std::to_string(dim.number(1)));
      }
    }
    return list;
  }
};

}  // namespace tapir_tests
