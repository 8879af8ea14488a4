// Barriers and warp operations: threads wait until all that a rule names have come, to the same line.
#include <algorithm>
#include <bit>
#include <map>

#include "fibers.h"

namespace cuda_emulation {
namespace {
bool same(const Site& a, const Site& b) { return a.line() == b.line() && a.file_name() == b.file_name(); }
}  // namespace
std::string line(const Site& s) { return std::string(s.file_name()) + ":" + std::to_string(s.line()); }

void Block::start(dim3 d) {
  const unsigned n = d.x * d.y * d.z;
  threads_.resize(n), ready_.resize(n), done_ = 0, barriers_passed = 0;
  warps_.assign((n + 31) / 32, {0, 0});
  if (n % 32) warps_.back().gone = ~0u << n % 32;
  uint3 index{0, 0, 0};
  for (unsigned i = 0; i < n; ++i) {
    Thread& t = threads_[i];
    t.index = index, t.id = i, t.state = State::Ready, t.fiber = nullptr, t.warp_epoch = 0;
    ready_[i] = &t;
    if (++index.x == d.x) index.x = 0, ++index.y;
    if (index.y == d.y) index.y = 0, ++index.z;
  }
}
void Block::finish(Thread& t) {
  t.state = State::Done, t.fiber = nullptr;
  warps_[t.id / 32].gone |= 1u << t.id % 32;
  ++done_;
}
void Block::arrive(Thread& t) {
  warps_[t.id / 32].waiting |= 1u << t.id % 32;
  complete(t);
}
bool Block::complete(const Thread& caller) {
  Warp& w = warps_[caller.id / 32];
  const unsigned mask = caller.mask & ~w.gone;
  if ((w.waiting & mask) != mask) return false;
  Thread* const lanes = &threads_[caller.id / 32 * 32];
  uint64_t values[32];
  for (unsigned m = mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    if (lanes[i].mask != caller.mask || !same(lanes[i].site, caller.site)) return false;
    values[i] = lanes[i].value;
  }
  w.waiting &= ~mask;
  for (unsigned m = mask; m; m &= m - 1) {
    Thread& t = lanes[std::countr_zero(m)];
    if (t.combine) t.value = t.combine(values, mask, t.id % 32, t.value);
    else t.value = mask >> t.source & 1 ? values[t.source] : ~uint64_t(0);  // of a lane that has returned: no value
    t.state = State::Ready, t.warp_epoch = uint16_t(t.warp_epoch + t.orders_memory);
    ready_.push_back(&t);
  }
  return true;
}
bool Block::all_at_one_barrier() const {
  return done_ == 0 && std::all_of(threads_.begin(), threads_.end(), [&](const Thread& t) {
           return t.state == State::AtBarrier && same(t.site, threads_[0].site);
         });
}
bool Block::unblock() {
  if (done_ == threads_.size()) return false;
  if (all_at_one_barrier()) {
    uint64_t count = 0;
    ++barriers_passed;
    for (const Thread& t : threads_) count += t.value;
    for (Thread& t : threads_) {
      t.value = t.vote == Vote::Count ? count : t.vote == Vote::Or ? count > 0 : count == threads_.size();
      t.state = State::Ready;
      ready_.push_back(&t);
    }
    return true;
  }
  for (const Thread& t : threads_)
    if (t.state == State::AtWarp && complete(t)) return true;  // the missing lanes have returned
  return false;
}
std::string Block::divergence() const {
  std::map<std::string, int> places;
  for (const Thread& t : threads_)
    ++places[t.state == State::Done
                 ? "returned"
                 : (t.state == State::AtBarrier ? "in __syncthreads at " : "waiting for lanes of their warp at ") +
                       line(t.site)];
  std::string text = "barrier divergence. Threads:";
  for (const auto& [place, n] : places) text += " " + std::to_string(n) + " " + place + ";";
  text.pop_back();
  return text;
}
}  // namespace cuda_emulation
