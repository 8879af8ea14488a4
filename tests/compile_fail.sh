#!/bin/bash
# usage: compile_fail.sh COMPILER INCLUDE_DIR
# Every tests/compile_fail/*.cpp compiles as it stands, and is refused with -DCASE=n for each of its lines `// CASE n: REGEX`, with an
# REGEX in the first 20 lines that the compiler says, or in those beside the source that it shows (GCC 14 shows it for each template on
# the way). So a file that fails for another reason, or stops failing, is found.
compiler=$1 include=$(realpath "$2")
cd "$(dirname "$0")/compile_fail" 2>/dev/null || { echo "0 passed, 0 failed, 0 skipped"; exit 0; }
shopt -s nullglob
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
compile() { "$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -I "$include" "$@" > "$log" 2>&1; }
first() { head -20 "$log"; grep -vE '^ *[0-9]* \|' "$log" | head -20; }
good() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED: $1"; first; }
for file in *.cpp; do
  if compile "$file"; then good; else bad "$file must compile as it stands"; fi
  while read -r number pattern; do
    if compile -DCASE="$number" "$file"; then bad "$file compiles with -DCASE=$number"
    elif ! first | grep -q error || ! first | grep -qE -- "$pattern"; then bad "$file, CASE $number: nothing in the first 20 lines matches '$pattern'"
    else good; fi
  done < <(sed -n 's|^// CASE \([0-9]*\): *|\1 |p' "$file")
done
echo "$passed passed, $failed failed, 0 skipped"
test $failed = 0
