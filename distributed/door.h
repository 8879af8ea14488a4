#pragma once
// How the processes of a job know each other before they believe a word; not public.
#include <poll.h>

#include <array>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "socket.h"

// Note [Strangers]
// A listener greets each connection with a random number; the caller answers with one of its own and the HMAC-SHA256 of both under
// the secret, and gets the listener's. So both prove the secret, and neither sends it. Until then a caller has one second and a few bytes,
// and nobody waits for it: all are heard side by side. Strangers hold a quarter of the file descriptors that this process may have, at
// most; then the oldest makes room. What travels afterwards is in the clear (docs/security.md).
namespace tapir::inline v0::distributed {

using Proof = std::array<char, 32>;

/// Is the system's libcrypto built in? backends/ has a file for either answer; without it no secret is proven.
bool has_libcrypto();
/// HMAC-SHA256 (RFC 2104); zeros without libcrypto.
Proof hmac_sha256(const std::string& key, const std::string& text);
/// In a time that does not depend on where they differ.
bool is_same(const Proof& a, const Proof& b);

/// RuntimeError that names the package where other machines reach the address and there is no libcrypto.
void check_reach(const char* op, const std::string& host);
/// The same; ValueError where other machines reach the address and the secret is missing or short.
void check_secret(const char* op, const std::string& host, const std::string& secret);

enum class Service : char { Store = 'S', Peers = 'P' };

struct Greeting {
  char magic[8] = {'t', 'a', 'p', 'i', 'r', '3'};  // and the service
  Proof number = {};
};
struct Answer {
  int32_t from = 0, to = 0;  // ranks
  Proof number = {}, proof = {};
};
struct Verdict {
  int32_t accepted = 0;
  Proof proof = {};
};

/// The side that listens: between watch() and admit() stands a poll().
class Door {
 public:
  struct Guest {
    Socket socket;
    int from;
  };
  Door(Socket listener, Service service, std::string key, int me = 0);
  int port() const { return port_of(listener_); }
  void watch(std::vector<pollfd>& polls) const;
  /// When admit() has something to do, whatever comes: in seconds of now().
  double due() const;
  /// Who has proven the key since. `polls` begins with those of watch().
  std::vector<Guest> admit(std::span<const pollfd> polls);

 private:
  struct Stranger {
    Socket socket;
    double since;
    Greeting greeting;
    Answer answer = {};
    size_t have = 0;  // bytes of the answer
  };
  void hear(Stranger& s, std::vector<Guest>& guests);
  void welcome();

  Socket listener_;
  Service service_;
  std::string key_;
  int me_;
  size_t room_;  // for strangers
  double closed_until_ = 0;
  bool complained_ = false;
  std::list<Stranger> strangers_;
};

/// The side that calls: a connection whose other end has proven the key too. Waits until the deadline for a listener, then `patience` seconds
/// for its proof; of a store that says nothing, or hangs up, for 0.8 seconds stderr hears. RuntimeError for a server of another kind and for another secret.
Socket knock(const char* op, const std::string& host, int port, Service service, const std::string& key, int from,
             int to, double deadline, double patience);

}  // namespace tapir::inline v0::distributed
