// The collectives, made of messages. Everybody has a connection to everybody, so each takes one or two rounds: what is reduced goes in
// parts straight to the rank that reduces that part, in the order of ranks, and comes back. That moves as many bytes as a ring does, rounds
// 16-bit floats once, and gives the same bits on every rank.
#include <cstring>

#include "group_state.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr int64_t kSmall = 16384;  // bytes below which every rank had better reduce all by itself: one round

char* bytes_of(const Tensor& x) { return static_cast<char*>(x.data_ptr()); }
int64_t bytes_in(const Tensor& x) { return x.numel() * size_of(x.dtype()); }

/// Where part r of n elements begins: near n r / size, at a multiple of 64 elements.
int64_t part(int64_t n, int64_t size, int64_t r) {
  const int64_t each = ((n + size - 1) / size + 63) / 64 * 64;
  return std::min(each * r, n);
}

/// Memory for what the other ranks send; place r is rank r's, this rank's own is `mine`.
struct Places {
  std::vector<char> scratch;
  std::vector<const void*> pieces;
  std::vector<Piece> receives;
  Places(int64_t rank, int64_t size, int64_t bytes, const void* mine) : scratch(size_t(bytes * (size - 1))) {
    char* at = scratch.data();
    for (int r = 0; r < size; ++r) {
      pieces.push_back(r == rank ? mine : at);
      if (r == rank) continue;
      receives.push_back({r, at, bytes});
      at += bytes;
    }
  }
};

}  // namespace

void GroupState::execute(Call& call) {
  const bool in_place =
      call.in.defined() && call.in.is_same(call.out);  // all_reduce, broadcast, reduce: nothing to do alone
  if (size == 1 && in_place) return;
  switch (call.signature.op) {
    case Collective::AllReduce:
      return size > 1 && bytes_in(call.out) > kSmall ? all_reduce_large(call) : all_reduce(call);
    case Collective::Broadcast: return broadcast(call);
    case Collective::Reduce: return reduce(call);
    case Collective::AllGather: return all_gather(call);
    case Collective::ReduceScatter: return reduce_scatter(call);
    case Collective::AllToAll: return all_to_all(call);
    case Collective::Barrier: return to_all(call.signature, nullptr, Places(rank, size, 0, nullptr).receives, 0);
    default: return;
  }
}

/// The same message to every other rank, while theirs arrive.
void GroupState::to_all(Signature s, const void* mine, std::span<const Piece> receives, int64_t bytes) {
  std::vector<Piece> sends;
  for (int r = 0; r < size; ++r)
    if (r != rank) sends.push_back({r, const_cast<void*>(mine), bytes});
  exchange(s, sends, receives);
}

void GroupState::all_reduce(Call& call) {
  const Places places(rank, size, bytes_in(call.out), call.out.data_ptr());
  to_all(call.signature, call.out.data_ptr(), places.receives, bytes_in(call.out));
  reduce_pieces(call.out.data_ptr(), places.pieces, call.out.numel(), call.out.dtype(), call.signature.reduce);
}

void GroupState::all_reduce_large(Call& call) {
  const int64_t n = call.out.numel(), item = size_of(call.out.dtype());
  char* base = bytes_of(call.out);
  const auto begin = [&](int64_t r) { return base + part(n, size, r) * item; };
  const int64_t mine = part(n, size, rank + 1) - part(n, size, rank);
  const Places places(rank, size, mine * item, begin(rank));
  std::vector<Piece> sends, others;
  for (int r = 0; r < size; ++r)
    if (r != rank) others.push_back({r, begin(r), begin(r + 1) - begin(r)});
  exchange(call.signature, others, places.receives);
  reduce_pieces(begin(rank), places.pieces, mine, call.out.dtype(), call.signature.reduce);
  Signature second = call.signature;
  second.phase = 1;
  to_all(second, begin(rank), others, mine * item);
}

// The root hears of each rank too, without payload: where two ranks name different roots, both get a message that does not fit.
void GroupState::broadcast(Call& call) {
  const int root = call.signature.root;
  const Piece from{root, call.out.data_ptr(), bytes_in(call.out)}, to{root, nullptr, 0};
  if (rank == root) to_all(call.signature, from.data, Places(rank, size, 0, nullptr).receives, from.bytes);
  else exchange(call.signature, {&to, 1}, {&from, 1});
}

void GroupState::reduce(Call& call) {
  const int root = call.signature.root;
  const int64_t bytes = bytes_in(call.out);
  const Piece to{root, call.out.data_ptr(), bytes}, from{root, nullptr, 0};
  if (rank != root) return exchange(call.signature, {&to, 1}, {&from, 1});
  const Places places(rank, size, bytes, call.out.data_ptr());
  to_all(call.signature, nullptr, places.receives, 0);
  reduce_pieces(call.out.data_ptr(), places.pieces, call.out.numel(), call.out.dtype(), call.signature.reduce);
}

void GroupState::all_gather(Call& call) {
  const int64_t bytes = bytes_in(call.in);
  std::vector<Piece> receives;
  for (int r = 0; r < size; ++r)
    if (r != rank) receives.push_back({r, bytes_of(call.out) + r * bytes, bytes});
  to_all(call.signature, call.in.data_ptr(), receives, bytes);
  if (bytes) std::memcpy(bytes_of(call.out) + rank * bytes, call.in.data_ptr(), size_t(bytes));
}

void GroupState::reduce_scatter(Call& call) {
  const int64_t bytes = bytes_in(call.out);
  const Places places(rank, size, bytes, bytes_of(call.in) + rank * bytes);
  std::vector<Piece> sends;
  for (int r = 0; r < size; ++r)
    if (r != rank) sends.push_back({r, bytes_of(call.in) + r * bytes, bytes});
  exchange(call.signature, sends, places.receives);
  reduce_pieces(call.out.data_ptr(), places.pieces, call.out.numel(), call.out.dtype(), call.signature.reduce);
}

void GroupState::all_to_all(Call& call) {
  const auto row = [](const Tensor& x) { return x.size(0) > 0 ? bytes_in(x) / x.size(0) : 0; };
  const int64_t in_row = row(call.in), out_row = row(call.out);
  std::vector<Piece> sends, receives;
  char *from = bytes_of(call.in), *to = bytes_of(call.out), *own_from = from, *own_to = to;
  for (int r = 0; r < size; ++r) {
    const int64_t n_in = call.in_sizes[size_t(r)] * in_row, n_out = call.out_sizes[size_t(r)] * out_row;
    if (r == rank) own_from = from, own_to = to;
    else sends.push_back({r, from, n_in}), receives.push_back({r, to, n_out});
    from += n_in, to += n_out;
  }
  exchange(call.signature, sends, receives);
  if (const int64_t own = call.in_sizes[size_t(rank)] * in_row) std::memcpy(own_to, own_from, size_t(own));
}

}  // namespace tapir::inline v0::distributed
