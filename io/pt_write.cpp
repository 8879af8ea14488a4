#include <algorithm>
#include <tuple>

#include "../core/error.h"
#include "../core/modes.h"
#include "pickle.h"
#include "pt.h"
#include "zip.h"

namespace tapir::inline v0::io {

namespace {

// Note [Saved storages]
// Tensors of one memory whose extents overlap become one storage of the file, the whole extent, with their own strides:
// so tied weights and views stay what they are. A tensor that is alone is written as its elements: dense ones in the
// order of their memory, others (expanded, every second row) row-major.

struct Place {
  Tensor tensor;               // without history
  bool requires_grad = false;  // of the leaf that was given
  int64_t begin = 0, end = 0;  // its extent in the memory, in elements
  size_t cluster = 0;
};
struct Cluster {
  Tensor data;  // dense; undefined until somebody asks for it
  int64_t begin = 0, number = -1;
  bool rows = false;  // written row-major
};

class StorageWriter final : public pickle::Tensors {
 public:
  explicit StorageWriter(const Value& value) {
    collect(value, 0);
    std::vector<size_t> order(places_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto key = [&](size_t i) {
      const TensorImpl& p = places_[i].tensor.impl();
      return std::tuple(p.storage.get(), int(p.dtype), places_[i].begin, i);
    };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    for (size_t i = 0, next; i < order.size(); i = next) {
      next = i + 1;
      const Place& first = places_[order[i]];
      const auto same_memory = [&](const Place& p) {
        return p.tensor.impl().storage.get() == first.tensor.impl().storage.get() &&
               p.tensor.dtype() == first.tensor.dtype();
      };
      int64_t end = first.end;
      bool alike = true;
      for (; next < order.size(); ++next) {
        const Place& p = places_[order[next]];
        if (!same_memory(p) || p.begin >= end || p.tensor.numel() == 0) break;
        end = std::max(end, p.end);
        alike = alike && p.begin == first.begin && p.tensor.shape() == first.tensor.shape() &&
                p.tensor.strides() == first.tensor.strides();
      }
      Cluster c;
      c.begin = first.begin;
      c.rows = alike && !is_dense(first.tensor.shape(), first.tensor.strides());
      c.data = c.rows ? first.tensor : alias(first.tensor, end - first.begin, 1, first.begin);
      for (size_t k = i; k < next; ++k) places_[order[k]].cluster = clusters_.size();
      clusters_.push_back(std::move(c));
    }
  }

  Tensor read(const pickle::TensorRecord&) override { return {}; }
  pickle::TensorRecord write(const Tensor&) override {
    const Place& p = places_[asked_++];  // asked for in the order of collect()
    Cluster& c = clusters_[p.cluster];
    if (c.number < 0) c.number = int64_t(used_.size()), used_.push_back(p.cluster);
    name_ = std::to_string(c.number);
    pickle::TensorRecord r;
    r.storage = name_, r.storage_count = c.data.numel(), r.dtype = p.tensor.dtype(), r.sizes = p.tensor.shape();
    r.strides = c.rows ? contiguous_strides(r.sizes) : p.tensor.strides();
    r.offset = c.rows ? 0 : p.begin - c.begin;
    r.requires_grad = p.requires_grad;
    return r;
  }
  void write_storages(ZipWriter& zip) const {
    for (size_t i = 0; i < used_.size(); ++i) {
      const Tensor host = clusters_[used_[i]].data.cpu().contiguous();
      zip.add("archive/data/" + std::to_string(i), host.data_ptr(), host.numel() * size_of(host.dtype()),
              {.align = 64});
    }
  }

 private:
  void collect(const Value& v, int depth) {
    check(depth < 200, "[save_pt] expected at most 200 levels of lists and dicts, got more");
    if (v.kind() == Value::Kind::Tensor) {
      check(v.to_tensor().defined(), "[save_pt] expected defined tensors, got an undefined one");
      const Tensor& t = v.to_tensor();
      Place p;
      p.tensor = t.detach(), p.requires_grad = t.is_leaf() && t.requires_grad();
      p.begin = t.storage_offset(), p.end = p.begin + extent_of(t.shape(), t.strides()).second;
      places_.push_back(std::move(p));
    }
    if (v.kind() < Value::Kind::List) return;
    if (v.kind() == Value::Kind::Dict) check_keys(v);
    for (size_t i = 0; i < v.size(); ++i) {
      if (v.kind() == Value::Kind::Dict) collect(v.keys()[i], depth + 1);
      collect(v.items()[i], depth + 1);
    }
  }

  static void check_keys(const Value& dict) {
    std::vector<std::string_view> names;
    for (const Value& key : dict.keys())
      if (key.kind() == Value::Kind::Text) names.push_back(key.to_text());
    if (const auto twice = repeated(std::move(names)))
      fail(ErrorKind::Value, "[save_pt] expected each name once, got \"{}\" twice", shown(*twice));
  }

  std::vector<Place> places_;
  std::vector<Cluster> clusters_;
  std::vector<size_t> used_;
  std::string name_;
  size_t asked_ = 0;
};

}  // namespace

void save_pt(const std::string& path, const Value& value) {
  NoGrad guard;
  StorageWriter storages(value);
  const std::string text = pickle::write(value, storages);
  OutputFile file("save_pt", path);
  ZipWriter zip(file);
  zip.add("archive/data.pkl", text, {.align = 64});
  zip.add("archive/.format_version", "1", {.align = 64});
  zip.add("archive/.storage_alignment", "64", {.align = 64});
  zip.add("archive/byteorder", "little", {.align = 64});
  storages.write_storages(zip);
  zip.add("archive/version", "3\n", {.align = 64});
  zip.finish();
  file.commit();
}

}  // namespace tapir::inline v0::io
