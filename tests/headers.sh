#!/bin/bash
# usage: headers.sh COMPILER INCLUDE_DIR
# Every public header compiles alone, as its user includes it.
export compiler=$1 include=$2
check() {
  log=$("$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I "$include" -x c++ - <<< "#include <tapir/$1>" 2>&1) && echo "ok $1" && return
  printf 'FAILED %s\n%s\n' "$1" "$(head -n 15 <<< "$log")"
}
export -f check
cd "$include/tapir" || exit 1
out=$(find -L . -name '*.h' -printf '%P\n' | sort | xargs -P "$(nproc)" -n 1 bash -c 'check "$0"')
grep -v '^ok ' <<< "$out"
failed=$(grep -c '^FAILED ' <<< "$out")
echo "$(grep -c '^ok ' <<< "$out") passed, $failed failed, 0 skipped"
test "$failed" = 0
