#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "../core/no_copy.h"

// Where processes find each other: a small table of keys and values that one of them (or the launcher) keeps and all reach over TCP.
// Who may come in: Note [Strangers] in door.h. A value has at most 1 MiB, a key 1 KiB, all together 256 MiB and 2^20 keys, of 16,384 clients.
namespace tapir::inline v0::distributed {

/// Keeps the table in a thread of its own.
class StoreServer : NoCopy {
 public:
  /// Listens at that address alone, and port (0: one of the system's choice). RuntimeError with address and reason. An address that other
  /// machines reach needs a secret of 16 characters (ValueError) and a Tapir built with libcrypto (RuntimeError names the package).
  StoreServer(const std::string& host, int port, const std::string& secret = {});
  ~StoreServer();
  int port() const;

 private:
  struct State;
  State* state_;
};

struct StoreOptions {
  std::string secret = {};
  double timeout = 300;  // seconds to connect, and for a get() of a key that is not there yet
  double patience =
      10;  // seconds for a server that listens to prove that it is one; a silent one is named on stderr before
};

/// A connection to a StoreServer. Calls of several threads follow one another. Each throws RuntimeError when the server is gone or full and
/// in a process that was forked from this one, ValueError for a key or a value that is too large, an empty key, and NaN for seconds.
class Store : NoCopy {
 public:
  /// Waits until a server listens there, at most the timeout. RuntimeError where that is no StoreServer, or has another
  /// secret: at once where it says something else, after `patience` where it says nothing. What StoreServer says of addresses and secrets holds here too.
  Store(const std::string& host, int port, const StoreOptions& options = {});
  ~Store();

  void set(const std::string& key, const std::string& value);
  /// Waits for the key; RuntimeError names it after `timeout` seconds (below 0: the store's own).
  std::string get(const std::string& key, double timeout = -1);
  /// Adds to the number under the key, 0 where there is none; returns the sum. ValueError for what set() has left there, and for a sum beyond int64.
  int64_t add(const std::string& key, int64_t amount);
  /// Is the key there?
  bool has(const std::string& key);
  void remove(const std::string& key);
  /// Waits for all; RuntimeError lists the missing ones.
  void wait(const std::vector<std::string>& keys, double timeout = -1);
  /// Seconds for every later call.
  void set_timeout(double seconds);
  /// This process's address as the server's side sees it.
  std::string local_address() const;

 private:
  struct State;
  State* state_;
};

}  // namespace tapir::inline v0::distributed
