#!/bin/bash
# usage: tests/bench.sh BUILD_DIR
# ./run bench without PyTorch, in small: the machine's limits, and what the steps' flops and bytes make of them. No time is judged.
set -u
root=$(readlink -f "$(dirname "$0")/..") program=${1:?usage: tests/bench.sh BUILD_DIR}/benchmarks/tapir_bench
if ! test -x "$program" || ! command -v python3 > /dev/null; then echo "no $program, or no python3"; echo "0 passed, 0 failed, 1 skipped"; exit 0; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TAPIR_BENCH_SIZE=tiny
passed=0 failed=0
verdict() { if "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1"; tail -n 30 "$folder/said"; fi; }
bench() { python3 -B "$root/benchmarks/bench.py" --program "$program" --alone --repeats 1 --seconds 0.01 --json "$folder/rows.json" "$@" > "$folder/said" 2>&1; }
said() { grep -qE -- "$1" "$folder/said"; }
rows() { python3 -c "import json, sys; rows = json.load(open('$folder/rows.json')); $1"; }

bench --limits
verdict "limits: status" test $? = 0
verdict "limits: a table" said '^bfloat16 products +2 +[0-9.]+ GFLOP/s$'
verdict "limits: copies" said '^copy, read and written +1 +[0-9.]+ GB/s$'
verdict "limits: rows" rows "
assert [(r['limit'], r['threads'], r['unit']) for r in rows] == [
    (name, threads, 'bytes' if name == 'copy' else 'flops') for threads in (1, 2) for name in ('float32', 'bfloat16', 'copy')], rows
assert all(r['per_second'] > 0 for r in rows), rows"

bench mlp cnn --scaling
verdict "scaling: status" test $? = 0
verdict "scaling: a table" said '^mlp +step +[0-9.]+ +[0-9.]+ +[0-9.]+ '
verdict "scaling: rows" rows "
assert [(r['workload'], list(r['model'])) for r in rows] == [(name, ['2', '8', '16', '64']) for name in ('mlp', 'cnn')], rows
for r in rows:
    assert r['loops'] > 0 and abs(sum(r['share_of_16'].values()) - 1) < 1e-6 and 'matmul' in r['share_of_16'], r"

bench mlp --threads 1 --variants step compiled
verdict "steps: status" test $? = 0
verdict "steps: a column" said '^workload .* ratio +limit$'
verdict "steps: in percent" said '^mlp +step +1 .* - +[0-9]+ %$'
verdict "steps: products of forward and backward" rows "
first, more = 784 * 512, 512 * 256 + 256 * 10  # the first layer has no gradient of its input
assert [r['flops'] for r in rows] == 2 * [2 * 64 * (2 * first + 3 * more)], rows"
verdict "steps: bytes, fewer where calls are fused" rows "
parameters = 4 * (784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10)
assert parameters * (3 + 7) < rows[0]['bytes'] < parameters * 20, rows  # three products; Adam reads four lists and writes three
assert rows[1]['bytes'] < rows[0]['bytes'], rows"
for i in 1 2 3 4 5 6; do echo "count gpt2_124m compiled"; done | "$program" --threads 1 > "$folder/said"
verdict "a step that compile() checks is not what is counted" test "$(wc -l < "$folder/said") $(sort -u "$folder/said" | wc -l)" = "6 1"
bench op_overhead --threads 1 --variants no_grad
verdict "no limit of what is no step" said '^op_overhead +no_grad +1 .* -$'
verdict "no limit of what is no step: its row" rows "assert rows[0]['limit'] is None and 'flops' not in rows[0], rows"
bench gpt2_decode --threads 1 --variants step bf16
verdict "a bfloat16 model moves about half" rows "
assert 0.5 <= rows[1]['bytes'] / rows[0]['bytes'] < 0.75 and rows[0]['flops'] == rows[1]['flops'] > 0, rows"

# The roofline itself, of numbers by hand: 2 ms of flops beside 3 ms of bytes in a step of 4 ms.
PYTHONPATH=$root/benchmarks python3 -B - > "$folder/said" 2>&1 <<'END'
import bench
limits = {"float32": 5e11, "bfloat16": 1e12, "copy": 1e10}
row = {"variant": "compiled", "tapir_ms": 4, "flops": 1e9, "bytes": 3e7}
assert abs(bench.limit_of(row, limits) - 75) < 1e-9, bench.limit_of(row, limits)
row |= {"flops": 1.8e9}
assert abs(bench.limit_of(row, limits) - 90) < 1e-9
row |= {"variant": "compiled_bf16"}
assert abs(bench.limit_of(row, limits) - 75) < 1e-9
END
verdict "the longer of the two" test $? = 0
echo "$passed passed, $failed failed, 0 skipped"
test $failed = 0
