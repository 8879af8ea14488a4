#!/bin/bash
# usage: tests/gpu_check.sh BUILD_DIR
# The driver of ./run gpu-check on the emulated device: its plans, going on behind cases that abort, hang or take the device along, limits,
# what stays when one section fails, and stopping at once where the device is not available.
set -u
root=$(readlink -f "$(dirname "$0")/..") build=$(readlink -f "${1:?usage: tests/gpu_check.sh BUILD_DIR}")
for program in libtapir_cuda_emulated.so tests/op_cases tests/conformance benchmarks/tapir_bench; do
  test -e "$build/$program" || { echo "no $program"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TAPIR_CACHE=$folder/cache TAPIR_BENCH_PYTHON=/bin/false
passed=0 failed=0
verdict() { if "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1"; tail -n 30 "$folder/said"; fi; }
check() { "$root/tools/gpu_check" --programs "$build" --device emulated --out "$folder/out" "$@" > "$folder/said" 2>&1; }
said() { grep -qE -- "$1" "${2:-$folder/said}"; }
not() { ! "$@"; }
number() { python3 -c "import json; print(json.load(open('$folder/out/results.json')).get('$1'))"; }

for call in A B; do
  "$root/tools/gpu_check" --plan --call $call --programs "$build" > "$folder/said" 2>&1
  verdict "plan of $call" test $? = 0
  verdict "plan of $call: a limit for every section" awk '/ s(, [0-9]+ at once)?(; .*)?$/ && !/^#/ { n += match($0, /, [0-9]+ s/) ? 1 : 0; sum += substr($0, RSTART + 2) } END { exit !(n >= 9 && sum <= 541) }' "$folder/said"
done
"$root/tools/gpu_check" --plan --call A --programs "$folder/none" > "$folder/said" 2>&1
verdict "plan without programs" said '^mnist: .* s; mnist not built yet$'
verdict "plan without recorded results" said '^conformance: .*; will not run: no recorded results'
for kernel in $(sed -n '/^KERNELS/,/^]/p' "$root/tools/gpu/sections.py" | grep -oE '"[a-z_]+"\)' | tr -d '")' | sort -u); do
  verdict "a kernel is called $kernel" grep -qrE "\b$kernel\(" "$root/cuda_kernels" --include=*.cu --include=*.cuh --include=*.h
done

# ncu's CSV: names, units, a row for each kernel, between lines of its own.
PYTHONPATH=$root/tools/gpu python3 -B > "$folder/said" 2>&1 <<'END'
import results, runner, types
text = """==PROF== Profiling "packed_kernel" - 0: 0%....100% - 2 passes
2.5
"ID","Kernel Name","Device","dram__bytes.sum","gpu__time_duration.sum","launch__registers_per_thread"
"","","","byte","ns","register/thread"
"0","packed_kernel","0","120,000,000","40,000","32"
"""
part, ran, empty = runner.Part("ncu.add", []), runner.Ran(lines=text.splitlines()), runner.Ran(lines=["==ERROR== no kernel"])
section, gpu = types.SimpleNamespace(parts=[part]), types.SimpleNamespace(emulated=False)
note, table, found = results.kernels(gpu, section, [ran])
assert found == {"ncu/add": 0.04, "ncu/add/GB_per_s": 3000.0} and ran.status == 0, (found, ran.status)
assert "| add | 40.0 | 120.0 | 3000 | 0 | 0 | 0 | 32 |" in table, table
results.kernels(gpu, section, [empty])
assert empty.status == 1
END
verdict "ncu's output is read, and what is missing is a failure" test $? = 0

# One case of three parts is spoilt, each in its way; --list prints the cases by their numbers.
index() { grep -nE "^$1 .* $2 " "$folder/list" | head -n 1 | awk -F: '{ print $1 - 1 }'; }
"$build/tests/op_cases" --list > "$folder/list"
plant=abort:$(index diagonal tril),hang:$(index loss mse_loss),lost:$(index scan cumprod)
TAPIR_PLANT=$plant TAPIR_GPU_CHECK_STALL=5 check --call A --only '^op_cases\.(shape|loss|scan)$' --budget 100
verdict "spoilt cases are failures" test $? = 1
verdict "a case that aborts is named" said 'BROKE diagonal/.*: signal SIGABRT' "$folder/out/report.md"
verdict "a case that hangs is named" said 'BROKE loss/.*: did not end within 5 s' "$folder/out/report.md"
verdict "a case that loses the device is named" said 'BROKE scan/.*: the device was lost' "$folder/out/report.md"
verdict "three failures, all others ran" said '^op_cases +FAILED .* [1-9][0-9]{3,} passed, 3 failed, .*, 3 of them broke their program'
check --call A --only '^op_cases\.(shape|loss|scan)$' --budget 100
verdict "unspoilt they pass" test $? = 0

TAPIR_CUDA_PLUGIN=$build/libtapir_cuda_emulated.so "$build/benchmarks/tapir_bench" profile mlp step --device cuda > "$folder/said" 2>&1
verdict "a profile of the device, by operation and shape" said '^linear .* \[64, 784\] \[512, 784\]'

# A section that fails stops itself alone, and what another call found stays.
check --call B --only '^(ncu|nccl|dnn_json)$' --budget 60
verdict "a missing program is not here" said '^(dnn_json) +not here'
verdict "the kernels' stand-in" said '^ncu +ok .*17 of 17 kernels'
verdict "both calls in one report" test "$(grep -c '^# Call [AB]$' "$folder/out/report.md")" = 2
verdict "both calls in the results" test "$(number op_cases/failed) $(number ncu/seconds | grep -c .)" = "0 1"
TAPIR_BENCH_SIZE=no_such_size check --call A --only '^(target_ceiling|autocast)$' --budget 60
verdict "a target that fails" said '^target_ceiling +FAILED'
verdict "the rest goes on" said '^autocast +ok'
begun=$SECONDS
TAPIR_PLANT=hang:$(index loss mse_loss) check --call A --only '^op_cases\.loss$' --budget 12
verdict "the time is up" said '^op_cases +out of time'
verdict "the time is up at a case" said 'the time was up at loss/' "$folder/out/report.md"
verdict "the time is up: it ends" test $((SECONDS - begun)) -le 25
# Every family of operations, and every file of recorded results, belongs to exactly one part of call A.
PYTHONPATH=$root/tools/gpu python3 -B - "$folder/list" > "$folder/said" 2>&1 <<'END'
import re, sections, sys
for line in open(sys.argv[1]).readlines()[:-1]:  # the last one counts
    family, _, op, call = line.rstrip("\n").split(None, 3)
    hits = [name for name, only in sections.OP_CASES.items() if re.search(only, f"{family}/{op}: {call}")]
    assert len(hits) == 1, (line, hits)
END
verdict "every case has a part" test $? = 0

# Libraries that are not there: the reason, in seconds.
mkdir "$folder/gone"
echo 'int gone() { return 1; }' > "$folder/gone.c"
echo 'int gone(); int plugin() { return gone(); }' > "$folder/plugin.c"
if cc -shared -fPIC -o "$folder/gone/libgone.so" "$folder/gone.c" && cc -shared -fPIC -o "$folder/plugin.so" "$folder/plugin.c" -L"$folder/gone" -lgone; then
  rm -r "$folder/gone"
  begun=$SECONDS
  TAPIR_CUDA_PLUGIN=$folder/plugin.so check --call A
  verdict "hidden libraries: status" test $? = 1
  verdict "hidden libraries: the reason" said 'cuda is not available: .*libgone'
  verdict "hidden libraries: which one" said 'stopped: .*not found: libgone.so'
  verdict "hidden libraries: within seconds" test $((SECONDS - begun)) -le 10
  verdict "hidden libraries: nothing else ran" not said '^target_'
fi
mkdir "$folder/bin"
ln -s "$(command -v env)" "$(command -v bash)" "$folder/bin"
ln -s "$(python3 -c 'import sys; print(sys.executable)')" "$folder/bin/python3"  # not a script of pyenv's
PATH=$folder/bin TAPIR_EMULATED_DEVICES=0 "$root/tools/gpu_check" --programs "$build" --device emulated --out "$folder/out" --call A > "$folder/said" 2>&1
verdict "no git, no nvidia-smi, no ldd" said 'is not available: .*[Nn]o.*device'
TAPIR_EMULATED_DEVICES=0 check --call A
verdict "no device: the reason" said 'is not available: .*[Nn]o.*device'
echo "$passed passed, $failed failed, 0 skipped"
test $failed = 0
