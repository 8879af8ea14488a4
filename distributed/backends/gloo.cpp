// Messages by gloo's unbound buffers. What gloo 0.5 does by itself, and what stands against it here:
// - a message longer than the buffer it meets ends the process, from a thread of gloo's. So a header of fixed size goes first, and the
//   payload's buffer is offered only when the header fits;
// - a wait that times out marks every connection as broken. So gloo never waits with our timeout: the group decides, and aborts;
// - it has no way to be told that a message is done. So a thread waits for the messages of each exchange;
// - it writes to connections that may be closed without asking for no signal. So SIGPIPE is blocked around it;
// - it has no secret: the addresses come from our store, which has one.
#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <map>
#include <thread>
#include <tuple>

#include "../../core/error.h"
#include "../../core/held_signals.h"
#include "../process_group.h"
#include "../socket.h"
#include "../transport.h"

namespace tapir::inline v0::distributed {

namespace {

using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;
constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365);  // without it, what connectFullMesh() had

class StoreForGloo final : public ::gloo::rendezvous::Store {
 public:
  StoreForGloo(distributed::Store& store, const TransportOptions& o)
      : store_(store), meeting_(o.prefix), prefix_(o.prefix + "gloo/"), deadline_(now() + o.connect_timeout()) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string text = await(key);
    return {text.begin(), text.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const auto& key : keys) await(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  /// Gives up where the others do.
  std::string await(const std::string& key) {
    constexpr double kLook = 0.5;
    for (;;) try {
        return store_.get(prefix_ + key, std::clamp(deadline_ - now(), 0.1, kLook));
      } catch (const RuntimeError&) {
        if (now() >= deadline_ || is_meeting_over(store_, meeting_)) throw;
      }
  }
  distributed::Store& store_;
  std::string meeting_, prefix_;
  double deadline_;
};

struct Header {
  Signature signature;
  int64_t bytes = 0;
};

/// One exchange with its buffers and the thread that waits for them.
struct Flow {
  struct Message {
    Piece piece;
    uint64_t slot;
    std::unique_ptr<Header> header;
    Buffer head, body;
  };
  std::shared_ptr<Exchange> exchange;
  std::vector<Message> sends, receives;
  std::atomic<bool> over = false;
  std::thread thread;
};

class Gloo final : public Transport {
 public:
  Gloo(distributed::Store& store, const TransportOptions& o) : options_(o) {
    meet(store, o, "gloo");
    const HeldSignals guard;
    try {
      ::gloo::transport::tcp::attr attr;
      attr.hostname = o.address;
      auto device = ::gloo::transport::tcp::CreateDevice(attr);
      context_ = std::make_shared<::gloo::rendezvous::Context>(o.rank, o.size);
      constexpr double kRelaxed = 5;  // gloo waits five times its timeout for a connection
      context_->setTimeout(std::chrono::milliseconds(int64_t(o.connect_timeout() / kRelaxed * 1000)));
      StoreForGloo adapter(store, o);
      context_->connectFullMesh(adapter, device);
    } catch (const RuntimeError&) {
      throw;
    } catch (const std::exception& e) {
      fail(ErrorKind::Runtime, "[init_process_group] expected gloo to connect {} ranks from {}, got: {}", o.size,
           o.address, e.what());
    }
  }
  ~Gloo() override {
    const HeldSignals guard;
    abort("the group was destroyed");
    context_.reset();
  }

  std::shared_ptr<Exchange> start(uint64_t channel, const Signature& signature, std::span<const Piece> sends,
                                  std::span<const Piece> receives) override {
    const HeldSignals guard;
    auto flow = std::make_unique<Flow>();
    flow->exchange = std::make_shared<Exchange>();
    auto exchange = flow->exchange;
    exchange->signature = signature;
    exchange->left = int(sends.size() + receives.size());
    std::lock_guard lock(mutex_);
    std::erase_if(flows_, [](const auto& f) { return f->over && (f->thread.join(), true); });
    if (!aborted_.empty()) {
      exchange->fail({aborted_});
      return exchange;
    }
    try {
      for (const Piece& p : receives) post_receive(*flow, channel, p);
      for (const Piece& p : sends) post_send(*flow, channel, signature, p);
    } catch (const std::exception& e) {
      exchange->fail(peer_gone(exchange->waits_for.back(), e.what()));
      return exchange;
    }
    Flow* f = flow.get();
    flows_.push_back(std::move(flow));
    try {
      f->thread = start_thread("gloo", [this, f] { run(*f); });
    } catch (const RuntimeError& e) {  // the group ends, and with it what was posted
      exchange->fail({e.what()});
    }
    return exchange;
  }

  void abort(const std::string& why) override {
    const HeldSignals guard;
    std::vector<std::unique_ptr<Flow>> flows;
    {
      std::lock_guard lock(mutex_);
      if (aborted_.empty()) aborted_ = why;
      flows.swap(flows_);
    }
    if (!flows.empty() || !closed_) context_->closeConnections();
    closed_ = true;
    for (const auto& f : flows) {
      f->exchange->fail({why});
      std::lock_guard lock(body_mutex_);
      for (const auto* list : {&f->sends, &f->receives})
        for (const auto& m : *list)
          for (const Buffer* b : {&m.head, &m.body})
            if (*b) (*b)->abortWaitSend(), (*b)->abortWaitRecv();
    }
    for (const auto& f : flows)
      if (f->thread.joinable()) f->thread.join();
  }

 private:
  uint64_t next_slot(uint64_t channel, int peer, bool send) {
    return (channel << 24 | (counts_[{channel, peer, send}]++ & 0xffffff)) << 1;
  }
  void post_send(Flow& f, uint64_t channel, const Signature& s, const Piece& p) {
    f.exchange->waits_for.push_back(p.peer);
    auto& m =
        f.sends.emplace_back(Flow::Message{p, next_slot(channel, p.peer, true), std::make_unique<Header>(), {}, {}});
    *m.header = {s, p.bytes};
    m.head = context_->createUnboundBuffer(m.header.get(), sizeof(Header));
    m.head->send(p.peer, m.slot);
    if (p.bytes == 0) return;
    m.body = context_->createUnboundBuffer(p.data, size_t(p.bytes));
    m.body->send(p.peer, m.slot + 1);
  }
  void post_receive(Flow& f, uint64_t channel, const Piece& p) {
    f.exchange->waits_for.push_back(p.peer);
    auto& m = f.receives.emplace_back(
        Flow::Message{p, next_slot(channel, p.peer, false), std::make_unique<Header>(), {}, {}});
    m.head = context_->createUnboundBuffer(m.header.get(), sizeof(Header));
    m.head->recv(p.peer, m.slot);
  }

  void run(Flow& f) {
    int peer = -1;
    try {
      for (auto& m : f.receives) {
        peer = m.piece.peer;
        if (!m.head->waitRecv(kForEver) || !fits(f, m)) return void(f.over = true);
        if (m.piece.bytes > 0) {
          std::lock_guard lock(body_mutex_);
          m.body = context_->createUnboundBuffer(m.piece.data, size_t(m.piece.bytes));
          m.body->recv(peer, m.slot + 1);
        }
      }
      for (auto& m : f.receives) {
        peer = m.piece.peer;
        if (m.body && !m.body->waitRecv(kForEver)) return void(f.over = true);
        f.exchange->done(peer);
      }
      for (auto& m : f.sends) {
        peer = m.piece.peer;
        if (!m.head->waitSend(kForEver) || (m.body && !m.body->waitSend(kForEver))) return void(f.over = true);
        f.exchange->done(peer);
      }
    } catch (const std::exception& e) {
      const std::string text = e.what();
      f.exchange->fail(peer_gone(peer, text.substr(0, text.find('\n'))));
    }
    f.over = true;
  }

  bool fits(Flow& f, const Flow::Message& m) {
    const Header& h = *m.header;
    if (h.signature == f.exchange->signature && h.bytes == m.piece.bytes) return true;
    f.exchange->fail({tapir::format(
        "ranks do different things: rank {} is at {} (message of {} bytes), rank {} at {} ({} bytes)", options_.rank,
        text_of(f.exchange->signature), m.piece.bytes, m.piece.peer, text_of(h.signature), h.bytes)});
    return false;
  }

  TransportOptions options_;
  std::shared_ptr<::gloo::rendezvous::Context> context_;
  std::mutex mutex_, body_mutex_;  // the second: of buffers that a flow's thread makes
  std::vector<std::unique_ptr<Flow>> flows_;
  std::map<std::tuple<uint64_t, int, bool>, uint64_t> counts_;
  std::string aborted_;
  bool closed_ = false;
};

}  // namespace

bool gloo_is_available() { return true; }
std::unique_ptr<Transport> make_gloo(distributed::Store& store, const TransportOptions& options) {
  return std::make_unique<Gloo>(store, options);
}

}  // namespace tapir::inline v0::distributed
