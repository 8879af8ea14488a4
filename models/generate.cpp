#include "generate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../core/fail_as.h"
#include "../core/modes.h"
#include "../nn/hooks_impl.h"
#include "../ops/arithmetic.h"
#include "../ops/attention.h"
#include "../ops/cast.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/diagonal.h"
#include "../ops/extremum.h"
#include "../ops/indexing.h"
#include "../ops/noise.h"
#include "../ops/random.h"
#include "../ops/reduce.h"
#include "../ops/scan.h"
#include "../ops/search.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "../ops/softmax.h"
#include "../ops/sort.h"
#include "../ops/ternary.h"
#include "../ops/unary.h"

namespace tapir::inline v0::models {

constexpr double kNever = -std::numeric_limits<double>::infinity();

KVCache::KVCache(int64_t layers, int64_t batch, int64_t heads, int64_t capacity, int64_t depth,
                 const TensorOptions& options)
    : length_(zeros({}, {.dtype = kInt64, .device = options.device})), capacity_(capacity) {
  know(0);
  check(layers > 0 && batch > 0 && heads > 0 && capacity > 0 && depth > 0,
        "[KVCache] expected layers, batch, heads, capacity and depth above 0, got {}, {}, {}, {} and {}", layers, batch,
        heads, capacity, depth);
  for (int64_t i = 0; i < layers; ++i) {
    both_.push_back(empty({2, batch, heads, capacity, depth}, options));
    keys_.push_back(select(both_.back(), 0, 0)), values_.push_back(select(both_.back(), 0, 1));
  }
}
KVCache::KVCache(const KVCache& o)
    : both_(o.both_), keys_(o.keys_), values_(o.values_), length_(o.length_.clone()), capacity_(o.capacity_),
      asked_(o.asked_) {
  if (o.known()) know(o.count_);
}
/// The length is `count` now.
void KVCache::know(int64_t count) const { count_ = count, version_ = length_.version(); }
int64_t KVCache::count() const {
  if (!known()) know(length_.item<int64_t>());
  return count_;
}
int64_t KVCache::length() const {
  asked_ = true;
  return count();
}
void KVCache::reserve(int64_t count) const {
  check(count > 0, "[KVCache] expected at least one place more, got {}", count);
  if (!known() && modes.recorder) return;  // the kernels see to it
  check(this->count() + count <= capacity_, "[KVCache] expected at most {} places, got {} more at position {}",
        capacity_, count, this->count());
}
Tensor KVCache::begin(int64_t count) {
  reserve(count);
  NoGrad guard;
  places_ = add(arange(count, {.device = length_.device()}), length_), until_ = add(length_, count);
  return places_;
}
/// k and v as one view (2, ...) where they are slices of one tensor, as of what one product made; undefined where they are not.
static Tensor as_one(const Tensor& k, const Tensor& v) {
  const int64_t step = v.storage_offset() - k.storage_offset();
  if (k.dim() != 4 || k.impl().storage.get() != v.impl().storage.get() || k.dtype() != v.dtype() ||
      !(k.shape() == v.shape()) || !(k.strides() == v.strides()) || step <= 0)
    return {};
  Shape shape = Shape::filled(5, 2);
  Strides strides = Strides::filled(5, step);
  for (int64_t d = 0; d < 4; ++d) shape[d + 1] = k.shape()[d], strides[d + 1] = k.strides()[d];
  return as_strided(k, shape, strides, k.storage_offset());
}
void KVCache::write(int64_t i, const Tensor& k, const Tensor& v) {
  Tensor& both = both_[size_t(i)];
  if (const Tensor one = as_one(k, v); one.defined()) {
    index_copy_(both, 3, places_, to(one, both.dtype()));
    return;
  }
  for (const auto& [all, x] : {std::pair(&keys_[size_t(i)], &k), std::pair(&values_[size_t(i)], &v)})
    index_copy_(*all, 2, places_, to(*x, all->dtype()));
}
Tensor KVCache::attend(int64_t i, const Tensor& q, const Tensor& k, const Tensor& v, double dropout_p) {
  check(i >= 0 && i < int64_t(keys_.size()), "[KVCache] expected a layer below {}, got {}", int64_t(keys_.size()), i);
  const int64_t begun = places_.defined() ? places_.numel() : 0;
  check(places_.defined() && k.size(2) == begun, "[KVCache] expected begin() before, for {} places, got {}", k.size(2),
        begun);
  Tensor &keys = keys_[size_t(i)], &values = values_[size_t(i)];
  {
    NoGrad guard;
    write(i, k, v);
  }
  AttentionOptions options{.dropout_p = dropout_p, .is_causal = q.size(2) > 1, .enable_gqa = true};
  // A prompt: there is nothing before. As from the cache: no gradient of keys and values, and masks are those of its capacity.
  if (known() && count_ == 0 && dropout_p == 0 && !modes.recorder)
    return scaled_dot_product_attention(q, k.detach(), v.detach(), options);
  options.length = until_;
  return scaled_dot_product_attention(q, keys, values, options);
}
void KVCache::advance(int64_t count) {
  check(!places_.defined() || places_.numel() == count,
        "[KVCache] expected to advance by the {} places of begin(), got {}", places_.defined() ? places_.numel() : 0,
        count);
  if (!until_.defined()) reserve(count);  // nobody has asked before
  NoGrad guard;
  const bool was_known = known();
  if (until_.defined()) length_.copy_(until_);
  else length_.add_(count);
  places_ = until_ = Tensor();
  if (was_known) know(count_ + count);
}
void KVCache::clear() {
  NoGrad guard;
  length_.zero_();
  places_ = until_ = Tensor();
  know(0);
}
std::pair<Tensor, Tensor> KVCache::append(int64_t i, const Tensor& k, const Tensor& v) {
  check(i >= 0 && i < int64_t(keys_.size()), "[KVCache] expected a layer below {}, got {}", int64_t(keys_.size()), i);
  const int64_t count = k.size(2), past = this->count();
  reserve(count);
  NoGrad guard;
  asked_ = true, places_ = until_ = Tensor();
  const auto put = [&](Tensor& all, const Tensor& x) {
    narrow(all, 2, past, count).copy_(x);
    return narrow(all, 2, 0, past + count);
  };
  return {put(keys_[size_t(i)], k), put(values_[size_t(i)], v)};
}
void KVCache::reorder(const Tensor& rows) try {
  check(!keys_.empty(), "[KVCache] expected a cache, got one that was moved from");
  NoGrad guard;
  const int64_t batch = keys_[0].size(0);
  check(rows.defined() && is_integral(rows.dtype()) && rows.dim() == 1 && rows.size(0) == batch,
        "[KVCache] expected the rows of {} sequences, integers ({}), got {}", batch, batch, rows);
  index_select(arange(batch, {.device = rows.device()}), 0, rows);  // are they in range, also where nothing is held?
  for (auto* list : {&keys_, &values_})
    for (Tensor& x : *list) {
      Tensor held = narrow(x, 2, 0, count());
      held.copy_(index_select(held, 0, rows));
    }
} catch (...) {
  fail_as("KVCache");
}
Tensor causal_mask(int64_t past, int64_t queries, Device device) {
  check(past >= 0 && queries > 0 && past < int64_t(1) << 40,
        "[causal_mask] expected past of at least 0 and below 2^40, and queries above 0, got {} and {}", past, queries);
  return queries == 1 ? Tensor() : tril(ones({queries, past + queries}, {.dtype = kBool, .device = device}), past);
}

void check_sampling(const SamplingOptions& o) {
  check(o.temperature > 0 && std::isfinite(o.temperature), "[generate] expected temperature above 0, got {}",
        o.temperature);
  check(!o.top_k || *o.top_k > 0, "[generate] expected top_k above 0, got {}", o.top_k.value_or(0));
  check(o.top_p > 0 && o.top_p <= 1, "[generate] expected top_p in (0, 1], got {}", o.top_p);
}

/// A position for each row of probabilities: multinomial, without its look at them where a program is recorded: -1 then says that they
/// are no numbers.
static Tensor draw(const Tensor& p) {
  if (!modes.recorder) return squeeze(multinomial(p, 1), 1);
  const Tensor wide = to(p, kFloat64), sums = cumsum(div(wide, amax(wide, 1, {.keepdim = true})), 1);
  const Tensor total = narrow(sums, 1, p.size(1) - 1, 1),
               share = rand({p.size(0), 1}, {.dtype = kFloat64, .device = p.device()});
  const Tensor places = searchsorted(sums, mul(share, total), {.right = true});
  return squeeze(where(isfinite(total), places, -1), 1);
}
Tensor next_token(const Tensor& logits, const SamplingOptions& o) {
  check_sampling(o);
  check(logits.dim() == 2 && logits.size(1) > 0, "[next_token] expected scores (B, V), got {}", logits);
  NoGrad guard;
  if (!o.sample) return argmax(logits, 1);
  Tensor scores = div(to(logits, kFloat32), o.temperature);
  if (o.top_k && *o.top_k < scores.size(1)) {
    const Tensor last = narrow(topk(scores, *o.top_k, 1).first, 1, *o.top_k - 1, 1);
    scores = masked_fill(scores, lt(scores, last), kNever);
  }
  if (o.top_p == 1) return draw(softmax(scores, 1));
  const auto [sorted, order] = sort(scores, 1, {.descending = true});
  const Tensor p = softmax(sorted, 1);
  const Tensor chosen = draw(masked_fill(p, ge(sub(cumsum(p, 1), p), o.top_p), 0));  // the first one always stays
  return squeeze(gather(order, 1, unsqueeze(chosen, 1)), 1);
}

namespace detail {

Tensor token_rows(const std::vector<int64_t>& tokens, int64_t rows, Device device) {
  return expand(unsqueeze(tensor(tokens), 0), {rows, int64_t(tokens.size())}).to(device);
}
std::vector<int64_t> read_tokens(const std::vector<Tensor>& tokens) {
  const auto read = tokens.size() == 1 ? tokens[0].to_vector<int64_t>() : cat(tokens).to_vector<int64_t>();
  for (const int64_t token : read) check(token >= 0, "[generate] expected finite scores, got NaN or infinity");
  return read;
}
bool is_worth_compiling(nn::Module& model, const KVCache& cache, const GenerateOptions& o) {
  constexpr int64_t kRecorded = 2;  // steps until a program is there
  if (o.compile) return *o.compile;
  if (!cache.replayable() || o.max_new_tokens < 4 * kRecorded) return false;
  for (const auto& [name, module] : model.named_modules())
    for (const nn::HookKind kind : {nn::HookKind::ForwardPre, nn::HookKind::Forward})
      if (module->tapir_extras() && module->tapir_extras().get()->has(kind)) return false;
  return true;
}
void check_generate(const GenerateOptions& o, int64_t prompt) {
  check(prompt > 0, "[generate] expected a prompt of at least one token, got none");
  check(o.max_new_tokens > 0 && o.max_new_tokens < int64_t(1) << 40,
        "[generate] expected max_new_tokens above 0 and below 2^40, got {}", o.max_new_tokens);
  check(o.read_every >= 0, "[generate] expected read_every of at least 0, got {}", o.read_every);
  check(o.num_beams > 0, "[generate] expected num_beams above 0, got {}", o.num_beams);
  check(o.num_beams == 1 || !o.sampling.sample, "[generate] expected num_beams 1 with sampling, got {}", o.num_beams);
  check(std::isfinite(o.length_penalty), "[generate] expected a finite length_penalty, got {}", o.length_penalty);
  check_sampling(o.sampling);
}

std::vector<int64_t> Beams::step(const Tensor& logits) {
  const int64_t count = options.num_beams, words = logits.size(1);
  Tensor totals = log_softmax(to(logits, kFloat64), 1);
  if (scores.empty())
    scores.assign(size_t(count), kNever), scores[0] = 0, tokens.resize(size_t(count));  // all alike at first
  totals = add(totals, unsqueeze(tensor(scores), 1).to(logits.device()));
  const int64_t wanted = std::min(2 * count, count * words);  // as many may end
  const auto [values, places] = topk(flatten(totals), wanted);
  const std::vector<double> value = values.to_vector<double>();
  const std::vector<int64_t> place = places.to_vector<int64_t>();
  std::vector<std::vector<int64_t>> next;
  std::vector<double> next_scores;
  std::vector<int64_t> parents;
  for (size_t i = 0; i < place.size() && int64_t(next.size()) < count; ++i) {
    std::vector<int64_t> beam = tokens[size_t(place[i] / words)];
    beam.push_back(place[i] % words);
    if (beam.back() == options.eos || int64_t(beam.size()) == options.max_new_tokens) {
      const double score = normalized(value[i], beam.size());
      if (int64_t(i) < count) end(score, std::move(beam));
      continue;
    }
    next.push_back(std::move(beam)), next_scores.push_back(value[i]), parents.push_back(place[i] / words);
  }
  while (!next.empty() && int64_t(next.size()) < count)  // fewer words than beams
    next.push_back(next[0]), next_scores.push_back(kNever), parents.push_back(parents[0]);
  tokens = std::move(next), scores = std::move(next_scores);
  return parents;
}
double Beams::normalized(double score, size_t length) const {
  return score / std::pow(double(length), options.length_penalty);
}
/// Keeps the num_beams best, best first.
void Beams::end(double score, std::vector<int64_t> beam) {
  const auto at = std::find_if(ended.begin(), ended.end(), [&](const auto& e) { return e.first < score; });
  ended.insert(at, {score, std::move(beam)});
  if (int64_t(ended.size()) > options.num_beams) ended.pop_back();
}
/// One good end is not enough: a longer text may have a better mean, so as many as there are beams must have ended, all of them
/// better than the best beam is at its length.
bool Beams::done() const {
  return tokens.empty() ||
         (int64_t(ended.size()) == options.num_beams && ended.back().first >= normalized(scores[0], tokens[0].size()));
}

}  // namespace detail
}  // namespace tapir::inline v0::models
