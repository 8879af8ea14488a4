#include "summary.h"

#include <algorithm>
#include <array>

#include "../core/backend.h"
#include "../core/modes.h"
#include "../core/work.h"
#include "../ops/create.h"
#include "table.h"
#include "terminal.h"

namespace tapir::inline v0::train {
namespace {

thread_local double counted = 0;
thread_local const BackendTable* real = nullptr;

template <class E> auto counted_call(Context& ctx, const E& e) {
  counted += entry::work_of(e).flops;
  return entry::kernel_of<E>(*real)(ctx, e);
}

/// A table that counts what this thread computes on one device.
struct FlopCounter {
  const BackendTable* outer;
  BackendTable table;
  ScopedMode<const BackendTable*> scope;
  explicit FlopCounter(Device device)
      : outer(&backend(device)), table(*outer), scope(modes.tables[int(device.type)], &table) {
#define X(name, E) \
  if (outer->name) table.name = counted_call<entry::E>;
    TAPIR_ENTRIES(X)
#undef X
    real = outer, counted = 0;
  }
};

int64_t bytes_of(const Tensor& x) { return x.defined() ? x.numel() * size_of(x.dtype()) : 0; }
std::string type_of(nn::Module& m) {
  const std::string text = m.str();
  return text.substr(0, text.find('('));
}
Device device_of(nn::Module& m) {
  for (auto& [name, t] : m.state_dict()) return t.device();
  return kCPU;
}
std::string grouped(int64_t n) {
  std::string s = std::to_string(n);
  for (int64_t i = int64_t(s.size()) - 3; i > 0; i -= 3) s.insert(size_t(i), ",");
  return s;
}
std::string flops_text(double f) {
  const char* units[] = {"", " k", " M", " G", " T", " P"};
  int unit = 0;
  for (; f >= 1000 && unit < 5; ++unit) f /= 1000;
  return fixed(f, unit == 0 || f >= 100 ? 0 : f >= 10 ? 1 : 2) + units[unit];
}

}  // namespace

struct detail::SummaryRun::State {
  nn::Module& model;
  NoGrad guard;
  FlopCounter counter;
  Summary summary;
  std::vector<std::pair<nn::Module*, bool>> training;  // as it was
  std::vector<std::pair<nn::Module*, int64_t>> hooks;
  std::vector<double> began;  // FLOPs at the entry of the calls that run
  explicit State(nn::Module& m) : model(m), counter(device_of(m)) {}
};

detail::SummaryRun::SummaryRun(nn::Module& model) : state_(new State(model)) {
  State& s = *state_;
  const auto all = model.named_modules();
  for (size_t i = 0; i < all.size(); ++i) {
    auto& [name, m] = all[i];
    const int depth = name.empty() ? 0 : 1 + int(std::count(name.begin(), name.end(), '.'));
    s.summary.layers.push_back(
        {name, type_of(*m), depth, !m->named_children().empty(), {}, 0, m->num_parameters(), 0, 0});
    s.training.emplace_back(m, m->training);
    m->training = false;
    s.hooks.emplace_back(
        m, m->register_forward_pre_hook([&s](nn::Module&, std::vector<Tensor>&) { s.began.push_back(counted); }));
    s.hooks.emplace_back(
        m, m->register_forward_hook([&s, i](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& outputs) {
          LayerSummary& layer = s.summary.layers[i];
          layer.flops += counted - s.began.back(), ++layer.calls;
          s.began.pop_back();
          if (!outputs.empty() && outputs[0].defined()) layer.output = outputs[0].shape();
          for (const Tensor& y : outputs) layer.output_bytes += bytes_of(y);
        }));
  }
}
detail::SummaryRun::~SummaryRun() {
  for (auto& [m, id] : state_->hooks) m->remove_hook(id);
  for (auto& [m, training] : state_->training) m->training = training;
  delete state_;
}
Summary detail::SummaryRun::finish() {
  Summary& s = state_->summary;
  for (const Tensor& p : state_->model.parameters())
    s.parameters += p.numel(), s.trainable += p.requires_grad() ? p.numel() : 0;
  for (auto& [name, t] : state_->model.state_dict()) s.state_bytes += bytes_of(t);
  for (const LayerSummary& l : s.layers)
    if (!l.has_children) s.output_bytes += l.output_bytes;
  s.flops = s.layers[0].flops;
  return std::move(s);
}

Summary summary(nn::Module& model, const Shape& input, const SummaryOptions& o) {
  const Tensor x = zeros(input, {.dtype = o.dtype, .device = device_of(model)});
  detail::SummaryRun run(model);
  model.tapir_call(x);
  return run.finish();
}

std::string Summary::str() const {
  std::vector<std::array<std::string, 5>> rows{{"layer", "output", "parameters", "FLOPs", "memory"}};
  for (const LayerSummary& l : layers)
    rows.push_back({std::string(size_t(2 * l.depth), ' ') +
                        (l.name.empty() ? "" : plain(l.name.substr(l.name.rfind('.') + 1)) + ": ") + l.type,
                    l.calls ? l.output.str() : "-", grouped(l.parameters), l.calls ? flops_text(l.flops) : "-",
                    l.calls ? bytes_text(double(l.output_bytes)) : "-"});
  size_t width[5] = {};
  for (auto& row : rows)
    for (size_t c = 0; c < 5; ++c) width[c] = std::max(width[c], row[c].size());
  std::string out;
  for (auto& row : rows)
    for (size_t c = 0; c < 5; ++c) {  // names to the left, what follows to the right
      const std::string space(width[c] - row[c].size(), ' ');
      out += (c == 0 ? row[c] + space : "  " + space + row[c]) + (c == 4 ? "\n" : "");
    }
  return out + tapir::format("{} parameters ({} trainable), {} FLOPs; state {}, outputs {}\n", grouped(parameters),
                             grouped(trainable), flops_text(flops), bytes_text(double(state_bytes)),
                             bytes_text(double(output_bytes)));
}

}  // namespace tapir::inline v0::train
