#!/bin/bash
# usage: tests/filters.sh BUILD_DIR
# A filter that matches nothing, and a level of kernels that there is not, end a test program with status 2 and a line that says so; shards of
# a folder have each test case once.
set -u
programs=${1:?usage: tests/filters.sh BUILD_DIR}/tests
passed=0 failed=0 skipped=0
refuses() {  # line program arguments...
  local said code
  if ! test -x "$programs/$2"; then skipped=$((skipped + 1)); return; fi
  said=$("$programs/$2" "${@:3}" 2>&1)
  code=$?
  case $said in "no case files"*) skipped=$((skipped + 1)); return ;; esac
  if test $code = 2 && grep -qF -- "$1" <<< "$said"; then passed=$((passed + 1))
  else failed=$((failed + 1)); echo "FAILED: ${*:2}: status $code, $said"; fi
}
refuses "no case is called like --only nosuchcase" op_cases --only nosuchcase
refuses "is called like --only nosuchcase" conformance --only nosuchcase
refuses "there is no test case in tests/nosuchfolder/" tapir_tests --folder nosuchfolder
refuses "no test case has such a name" tapir_tests nosuchname
TAPIR_ISA=mmx refuses "[cpu] expected TAPIR_ISA to be a level that is built in (" op_cases --only /erf
refuses "--shard: expected K/N" tapir_tests --folder amp --shard 3/3
refuses "--shard: expected K/N" tapir_tests --shard 0/2
if test -x "$programs/tapir_tests"; then  # three shards have each test case once
  listed() { "$programs/tapir_tests" --folder amp --durations yes "$@" 2> /dev/null | sed -n 's/^[0-9.]* s: //p' | sort; }  # Catch2 2 and 3
  if test -n "$(listed)" && diff <(listed) <(for k in 0 1 2; do listed --shard $k/3; done | sort); then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: --shard"; fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
test $failed = 0
