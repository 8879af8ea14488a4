// The transport that is always there: a socket between every two ranks, and one thread that reads them all. It reads whatever comes, so
// that no order of sends and receives can lock two ranks up; what nobody has asked for yet waits in a mailbox.
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <thread>

#include "../core/error.h"
#include "door.h"
#include "transport.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr uint32_t kMagic = 0x31504154;
constexpr int64_t kReadAtOnce = int64_t(4) << 20;  // then other sockets have their turn

struct FrameHeader {
  uint32_t magic = kMagic;
  Signature signature;
  uint64_t channel = 0;
  int64_t bytes = 0;
};

struct Outgoing {
  std::shared_ptr<Exchange> exchange;
  FrameHeader header;
  const char* data;
  int64_t sent = 0;  // of header and data together
};
struct Expected {
  std::shared_ptr<Exchange> exchange;
  Piece piece;
};
struct Stored {
  FrameHeader header;
  std::vector<char> data;
};
struct Channel {
  std::deque<Expected> expected;
  std::deque<Stored> stored;  // one of the two is empty
};

struct Peer {
  Socket socket;
  Failure gone;  // why there is nothing more to come
  std::deque<Outgoing> out;
  std::map<uint64_t, Channel> channels;
  // The frame that is being read.
  FrameHeader header;
  int64_t have = 0;  // of header and payload together
  std::shared_ptr<Exchange> exchange;
  char* to = nullptr;
  std::vector<char> unasked;
};

class Tcp final : public Transport {
 public:
  Tcp(Store& store, const TransportOptions& o) : options_(o), peers_(size_t(o.size)) {
    connect_all(store);
    thread_ = start_thread("init_process_group", [this] { run(); });
  }
  ~Tcp() override {
    abort("the group was destroyed");
    stop_ = true;
    wake();
    thread_.join();
  }

  std::shared_ptr<Exchange> start(uint64_t channel, const Signature& signature, std::span<const Piece> sends,
                                  std::span<const Piece> receives) override {
    auto exchange = std::make_shared<Exchange>();
    exchange->signature = signature;
    exchange->left = int(sends.size() + receives.size());
    for (const auto pieces : {sends, receives})
      for (const Piece& p : pieces) exchange->waits_for.push_back(p.peer);
    std::lock_guard lock(mutex_);
    bool rest = false;
    for (const Piece& p : sends) {
      Peer& peer = peers_[size_t(p.peer)];
      if (!aborted_.empty()) exchange->fail({aborted_});
      else if (peer.gone) exchange->fail(peer.gone);
      else {
        peer.out.push_back({exchange,
                            {.signature = signature, .channel = channel, .bytes = p.bytes},
                            static_cast<const char*>(p.data)});
        write(p.peer);
        rest |= !peer.out.empty();
      }
    }
    for (const Piece& p : receives)
      expect(channel, exchange, p);  // behind: the peer is told even where this does not fit
    if (rest) wake();
    return exchange;
  }

  Failure gone() override {
    std::lock_guard lock(mutex_);
    for (const Peer& p : peers_)
      if (p.gone) return p.gone;
    return {};
  }

  void abort(const std::string& why) override {
    std::lock_guard lock(mutex_);
    abort_locked(why);
  }

 private:
  void connect_all(Store& store);

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.fd(), &one, sizeof one);
  }

  void run() {
    std::vector<pollfd> polls;
    while (!stop_) {
      polls.assign(1, {wake_.fd(), POLLIN, 0});
      {
        std::lock_guard lock(mutex_);
        for (const Peer& p : peers_) {
          const bool open = p.socket && !p.gone && aborted_.empty();
          polls.push_back({open ? p.socket.fd() : -1, short(POLLIN | (p.out.empty() ? 0 : POLLOUT)), 0});
        }
      }
      poll(polls.data(), polls.size(), -1);
      uint64_t count;
      if (polls[0].revents) [[maybe_unused]]
        const ssize_t n = ::read(wake_.fd(), &count, sizeof count);
      for (size_t i = 1; i < polls.size(); ++i) {
        if (!polls[i].revents) continue;
        std::lock_guard lock(mutex_);
        if (!aborted_.empty()) break;
        try {
          if (polls[i].revents & POLLOUT) write(int(i - 1));
          if (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) read(int(i - 1));
        } catch (const std::exception& e) {  // no memory for a message that nobody has asked for yet
          abort_locked(tapir::format("messages of rank {} cannot be kept here: {}", i - 1, e.what()));
        }
      }
    }
  }

  /// As much of what waits as the socket takes.
  void write(int rank) {
    Peer& peer = peers_[size_t(rank)];
    while (!peer.out.empty()) {
      Outgoing& o = peer.out.front();
      constexpr auto head = int64_t(sizeof(FrameHeader));
      const int64_t total = head + o.header.bytes;
      iovec parts[2] = {};
      size_t used = 0;
      if (o.sent < head) parts[used++] = {reinterpret_cast<char*>(&o.header) + o.sent, size_t(head - o.sent)};
      const int64_t done = std::max<int64_t>(o.sent - head, 0);
      if (done < o.header.bytes) parts[used++] = {const_cast<char*>(o.data) + done, size_t(o.header.bytes - done)};
      msghdr message{};
      message.msg_iov = parts, message.msg_iovlen = used;
      const ssize_t n = sendmsg(peer.socket.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) lose(rank, std::strerror(errno));
        return;
      }
      o.sent += n;
      if (o.sent < total) continue;
      const auto exchange = std::move(o.exchange);
      peer.out.pop_front();
      exchange->done(rank);
    }
  }

  void read(int rank) {
    Peer& peer = peers_[size_t(rank)];
    constexpr auto head = int64_t(sizeof(FrameHeader));
    for (int64_t budget = kReadAtOnce; budget > 0 && !peer.gone && aborted_.empty();) {
      const bool in_head = peer.have < head;
      char* to = in_head ? reinterpret_cast<char*>(&peer.header) + peer.have : peer.to + (peer.have - head);
      const int64_t want = in_head ? head - peer.have : head + peer.header.bytes - peer.have;
      const ssize_t n = recv(peer.socket.fd(), to, size_t(std::min(want, budget)), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) return lose(rank, n < 0 ? std::strerror(errno) : "closed the connection");
      peer.have += n, budget -= n;
      if (peer.have == head && in_head) begin_frame(rank);
      if (!peer.gone && aborted_.empty() && peer.have >= head && peer.have == head + peer.header.bytes) end_frame(rank);
    }
  }

  /// The header is there: whose memory does the payload go to?
  void begin_frame(int rank) {
    Peer& peer = peers_[size_t(rank)];
    if (peer.header.magic != kMagic || peer.header.bytes < 0) return lose(rank, "sent what is no message");
    Channel& channel = peer.channels[peer.header.channel];
    if (!channel.expected.empty()) {
      Expected e = std::move(channel.expected.front());
      channel.expected.pop_front();
      if (!same_call(rank, peer.header, e)) return;
      peer.to = static_cast<char*>(e.piece.data);
      peer.exchange = std::move(e.exchange);
    } else {
      peer.unasked.resize(size_t(peer.header.bytes));
      peer.to = peer.unasked.data();
    }
  }

  void end_frame(int rank) {
    Peer& peer = peers_[size_t(rank)];
    peer.have = 0;
    if (const auto exchange = std::exchange(peer.exchange, nullptr)) return exchange->done(rank);
    Channel& channel = peer.channels[peer.header.channel];
    Stored stored{peer.header, std::exchange(peer.unasked, {})};
    if (channel.expected.empty()) return channel.stored.push_back(std::move(stored));
    const Expected e = std::move(channel.expected.front());  // asked for while it was being read
    channel.expected.pop_front();
    take(rank, stored, e);
  }

  void expect(uint64_t channel_id, const std::shared_ptr<Exchange>& exchange, const Piece& piece) {
    Peer& peer = peers_[size_t(piece.peer)];
    Channel& channel = peer.channels[channel_id];
    if (!aborted_.empty()) return exchange->fail({aborted_});
    if (channel.expected.empty() && !channel.stored.empty()) {
      const Stored stored = std::move(channel.stored.front());
      channel.stored.pop_front();
      return take(piece.peer, stored, {exchange, piece});
    }
    if (peer.gone) return exchange->fail(peer.gone);
    channel.expected.push_back({exchange, piece});
  }

  void take(int rank, const Stored& stored, const Expected& e) {
    if (!same_call(rank, stored.header, e)) return;
    if (!stored.data.empty()) std::memcpy(e.piece.data, stored.data.data(), stored.data.size());
    e.exchange->done(rank);
  }

  bool same_call(int rank, const FrameHeader& header, const Expected& e) {
    if (header.signature == e.exchange->signature && header.bytes == e.piece.bytes) return true;
    const std::string why = tapir::format(
        "ranks do different things: rank {} is at {} (message of {} bytes), rank {} at {} ({} bytes)", options_.rank,
        text_of(e.exchange->signature), e.piece.bytes, rank, text_of(header.signature), header.bytes);
    e.exchange->fail({why});
    abort_locked(why);
    return false;
  }

  void lose(int rank, const std::string& why) { lose(rank, peer_gone(rank, why)); }
  void lose(int rank, const Failure& why) {
    Peer& peer = peers_[size_t(rank)];
    peer.gone = why;
    if (peer.exchange) peer.exchange->fail(peer.gone);
    peer.exchange = nullptr;
    for (const Outgoing& o : peer.out) o.exchange->fail(peer.gone);
    peer.out.clear();
    for (auto& [id, channel] : peer.channels) {
      for (const Expected& e : channel.expected) e.exchange->fail(peer.gone);
      channel.expected.clear();
    }
  }

  void abort_locked(const std::string& why) {
    if (!aborted_.empty()) return;
    aborted_ = why;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (!peers_[i].gone) lose(int(i), Failure{why});
      // Only our side ends: what was sent before still arrives there, so that the peer sees the same mismatch itself.
      if (peers_[i].socket) shutdown(peers_[i].socket.fd(), SHUT_WR);
    }
  }

  TransportOptions options_;
  std::vector<Peer> peers_;
  std::mutex mutex_;
  std::string aborted_;
  std::atomic<bool> stop_ = false;
  Socket wake_ = event_of("init_process_group");
  std::thread thread_;
};

/// Every rank listens and connects to those below it; the token, from the store, and the secret tell peers from strangers.
void Tcp::connect_all(Store& store) {
  const auto& o = options_;
  double deadline = now() + o.init_timeout;
  Socket listener = listen_on("init_process_group", o.address, 0);
  if (o.rank == 0) store.set(o.prefix + "token", random_token());
  const auto addresses = meet(store, o, tapir::format("{} {}", port_of(listener), o.address));
  const std::string key = store.get(o.prefix + "token", std::max(deadline - now(), 1.0)) + o.secret;
  deadline = std::min(deadline, now() + o.connect_timeout());  // all have been there
  for (int r = 0; r < o.rank; ++r) {
    const std::string& a = addresses[size_t(r)];
    peers_[size_t(r)].socket = knock("init_process_group", a.substr(a.find(' ') + 1), std::stoi(a), Service::Peers, key,
                                     o.rank, r, deadline, o.init_timeout);
  }
  Door door(std::move(listener), Service::Peers, key, o.rank);
  std::vector<pollfd> polls;
  for (int left = o.size - 1 - o.rank; left > 0;) {
    check_runtime(now() < deadline, "[init_process_group] expected {} connections more within {} s, got none", left,
                  o.connect_timeout());
    polls.clear();
    door.watch(polls);
    const double look = now() + 0.5, next = std::min({door.due(), deadline, look});
    const int events = poll(polls.data(), polls.size(), std::max(0, int((next - now()) * 1000) + 1));
    check_runtime(events != 0 || now() < look || !is_meeting_over(store, o.prefix),
                  "[init_process_group] expected {} connections more, got word that the meeting is over", left);
    for (Door::Guest& guest : door.admit(polls))
      if (guest.from > o.rank && guest.from < o.size && !peers_[size_t(guest.from)].socket)
        peers_[size_t(guest.from)].socket = std::move(guest.socket), --left;
  }
  if (o.silence <= 0 || is_loopback("init_process_group", o.address)) return;
  for (const Peer& p : peers_)
    if (p.socket) give_up_after(p.socket.fd(), o.silence);
}

}  // namespace

std::unique_ptr<Transport> make_tcp(Store& store, const TransportOptions& options) {
  return std::make_unique<Tcp>(store, options);
}

}  // namespace tapir::inline v0::distributed
