// Learns to balance a pole on a cart from rewards alone: deep Q-learning with a replay memory and a target network (Mnih et al. 2015;
// double Q-learning: van Hasselt et al. 2015, arXiv 1509.06461). The cart is that of Barto, Sutton and Anderson 1983.
#include <algorithm>
#include <cmath>

#include "run.h"
using namespace tapir;

/// Position, speed, angle, angular speed; two actions push to the left or right. The pole falls beyond 12 degrees.
struct Cart {
  std::array<float, 4> state{};
  int steps = 0;
  void reset() {
    const auto noise = (rand({4}) * 0.1 - 0.05).to_vector<float>();
    std::copy(noise.begin(), noise.end(), state.begin());
    steps = 0;
  }
  /// True when the episode is over.
  bool push(int64_t action) {
    constexpr double kGravity = 9.8, kCart = 1, kPole = 0.1, kHalfLength = 0.5, kForce = 10, kSeconds = 0.02;
    const double cosine = std::cos(state[2]), sine = std::sin(state[2]), force = action ? kForce : -kForce;
    const double part = (force + kPole * kHalfLength * state[3] * state[3] * sine) / (kCart + kPole);
    const double turn =
        (kGravity * sine - cosine * part) / (kHalfLength * (4.0 / 3 - kPole * cosine * cosine / (kCart + kPole)));
    const double push = part - kPole * kHalfLength * turn * cosine / (kCart + kPole);
    const double change[4] = {state[1], push, state[3], turn};
    for (size_t i = 0; i < 4; ++i) state[i] += float(kSeconds * change[i]);
    ++steps;
    return fell() || steps >= 500;
  }
  bool fell() const { return std::abs(state[0]) > 2.4f || std::abs(state[2]) > 0.2095f; }
};

struct QNet : nn::Module {
  nn::Linear fc1{4, 128}, fc2{128, 128}, out{128, 2};
  Tensor forward(const Tensor& x) { return out(relu(fc2(relu(fc1(x))))); }  // (N, 4) -> (N, 2)
  TAPIR_FIELDS(fc1, fc2, out)
};

/// The newest transitions, in tensors on the device.
struct Replay {
  int64_t capacity, size = 0, next = 0;
  Tensor state, action, reward, after, alive;
  Replay(int64_t capacity, Device device)
      : capacity(capacity), state(zeros({capacity, 4}, {.device = device})),
        action(zeros({capacity, 1}, {.dtype = kInt64, .device = device})),
        reward(zeros({capacity}, {.device = device})), after(zeros({capacity, 4}, {.device = device})),
        alive(zeros({capacity}, {.device = device})) {}
  void add(const std::array<float, 4>& from, int64_t a, double r, const std::array<float, 4>& to, bool ends) {
    state.select(0, next).copy_(tensor(std::vector<float>(from.begin(), from.end())));
    after.select(0, next).copy_(tensor(std::vector<float>(to.begin(), to.end())));
    action.select(0, next).fill_(a), reward.select(0, next).fill_(r), alive.select(0, next).fill_(ends ? 0 : 1);
    next = (next + 1) % capacity, size = std::min(size + 1, capacity);
  }
};

int main(int argc, char** argv) {
  samples::Options o{.epochs = 15, .batch_size = 64, .lr = 5e-4};
  int64_t frames = 2000;
  double gamma = 0.99;
  CLI::App app("Balances a pole by deep Q-learning", "dqn");
  app.add_option("--frames", frames, "Pushes in an epoch")->capture_default_str();
  app.add_option("--gamma", gamma, "What a reward is worth one push later")->capture_default_str();
  return samples::main(app, argc, argv, o, [&] {
    const Device device(o.device);
    QNet net;
    net.to(device);
    QNet target = net.clone();
    optim::AdamW opt(net.parameters(), {.lr = o.lr, .weight_decay = 0});
    Replay replay(20000, device);
    Cart cart;
    cart.reset();
    const auto best = [&](QNet& q, const std::array<float, 4>& state) {
      InferenceMode guard;
      return argmax(q(tensor(std::vector<float>(state.begin(), state.end())).view({1, 4}).to(device)), 1)
          .item<int64_t>();
    };
    /// Mean length of episodes without chance moves; 500 is all there is.
    const auto play = [&](int episodes) {
      Cart other;
      double steps = 0;
      for (int i = 0; i < episodes; ++i)
        for (other.reset();;)
          if (other.push(best(net, other.state))) {
            steps += other.steps;
            break;
          }
      return steps / episodes;
    };

    samples::Run run(o, {"steps balanced"}, {.higher_is_better = true});
    run.keep("model", net).keep("target", target).keep("optimizer", opt);
    while (run.next_epoch(frames)) {
      for (int64_t frame = 0; frame < frames; ++frame) {
        const double chance = std::max(0.02, 1.0 - double(run.steps()) / 5000);  // of a random push
        const std::array<float, 4> from = cart.state;
        const int64_t action = rand({1}).item() < chance ? randint(0, 2, {1}).item<int64_t>() : best(net, from);
        const bool over = cart.push(action);
        replay.add(from, action, 1, cart.state, cart.fell());
        if (over) cart.reset();
        Tensor loss = zeros({}, {.device = device});
        if (replay.size >= 500) {
          const Tensor at = randint(0, replay.size, {o.batch_size}, {.device = device});
          Tensor wanted;
          {
            NoGrad guard;
            const Tensor after = replay.after.index_select(0, at), choice = argmax(net(after), 1, {.keepdim = true});
            wanted = replay.reward.index_select(0, at) +
                     gamma * replay.alive.index_select(0, at) * gather(target(after), 1, choice).squeeze(1);
          }
          const Tensor value =
              gather(net(replay.state.index_select(0, at)), 1, replay.action.index_select(0, at)).squeeze(1);
          opt.zero_grad();
          loss = smooth_l1_loss(value, wanted);
          loss.backward();
          optim::clip_grad_norm_(net.parameters(), 10.0);
          opt.step();
          if (run.steps() % 250 == 0) target.load_state_dict(net.state_dict());
        }
        if (!run.step(loss)) break;
      }
      run.end_epoch({play(10)});
    }
    std::printf("balances the pole for %.0f of 500 steps on average\n", run.last(0));
    return run.finish();
  });
}
