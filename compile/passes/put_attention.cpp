// Note [Attention with its cache's put]
// Where a token is decoded, its key and value go to a row of a table and attention of one query reads the table. On a GPU that is one call: its kernel
// takes the new row from where it comes from, so that no block waits for the one that writes it.
#include "../program/overlap.h"
#include "../program/params.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Attention, entry::IndexPut, entry::PutAttention;

/// Attention of one query a head to as many keys as a length says, of which nothing else is wanted?
bool is_of_token(const Call& call) {
  if (!is<Attention>(call) || !call.device.is_cuda() || !backend(call.device).put_attention) return false;
  const View &q = call[&Attention::q], &length = call[&Attention::mask];
  return q.in_memory() && q.shape.size() == 4 && q.shape[2] == 1 && length.in_memory() && length.dtype == kInt64 &&
         call.params<AttentionParams>().dropout_p == 0 && call[&Attention::lse].kind == View::Kind::Absent;
}

/// Does it write one row?
bool is_of_row(const Call& call) {
  if (!is<IndexPut>(call) || call.params<IndexParams>().accumulate || call[&IndexPut::indices].size() != 1)
    return false;
  const View& index = call[&IndexPut::indices][0];
  return index.in_memory() && numel_of(index.shape) == 1 && call[&IndexPut::source].in_memory();
}

void join_put(Rewriter& calls, int at) {
  const Call& attention = calls.call(at);
  if (!is_of_token(attention)) return;
  const View &k = attention[&Attention::k], &v = attention[&Attention::v], &out = attention[&Attention::out];
  const int put = v.in_memory() ? calls.maker(at, v.block) : -1;
  if (put < 0 || !is_of_row(calls.call(put)) || !(calls.call(put).modes == attention.modes)) return;
  const Call row = calls.call(put);
  const View &table = row[&IndexPut::out], &source = row[&IndexPut::source], &index = row[&IndexPut::indices][0];
  for (const View* other : {&source, &index, &attention[&Attention::q], &attention[&Attention::mask], &out})
    if (overlap(*other, table) || (other != &out && overlap(*other, out))) return;
  if (!overlap(table, k) && !overlap(table, v)) return;
  if (!calls.may_move(put, at)) return;
  const auto p = attention.params<AttentionParams>();
  calls.replace(at, call_of<PutAttention>(
                        attention, PutAttentionParams{p.scale, p.causal, row.params<IndexParams>().wrap},
                        &PutAttention::out, out, &PutAttention::table, table, &PutAttention::source, source,
                        &PutAttention::index, index, &PutAttention::q, attention[&Attention::q], &PutAttention::k, k,
                        &PutAttention::v, v, &PutAttention::keys, attention[&Attention::mask]));
  calls.remove(put);
}

}  // namespace

void join_put_attention(Program& p) { rewrite(p, join_put); }

}  // namespace tapir::inline v0::ir
