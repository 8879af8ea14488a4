#!/bin/bash
# usage: tests/levels.sh NM READELF OBJECT...
# The joined kernels of a portable build, kernels_<level>.o, held against Note [Kernels side by side] (cmake/TapirLevels.cmake).
set -u
nm=${1:?usage: tests/levels.sh NM READELF OBJECT...} readelf=${2:?} passed=0 failed=0
holds() {  # a rule, and the lines that break it
  if test -z "$2"; then passed=$((passed + 1)); else failed=$((failed + 1)); printf 'FAILED: %s\n%s\n' "$1" "$(head -n 10 <<< "$2")"; fi
}
state=""
for object in "${@:3}"; do
  level=$(basename "$object" .o) level=${level#kernels_}
  seen=$("$nm" --extern-only --defined-only --format=sysv "$object" | grep -F '|' | grep -v '^Name ' | sed 's/ *| */|/g')  # name|value|class|type|size|line|section
  tables=$(grep -E '^[^|]*cpu_table_' <<< "$seen" | cut -d'|' -f1)
  holds "$level: one table is seen, its own" "$(grep -qE "^_ZN5tapir2v0[0-9]+cpu_table_${level}E$" <<< "$tables" && test "$(wc -l <<< "$tables")" = 1 || echo "seen: ${tables:-none}")"
  rest=$(grep -vE '^[^|]*cpu_table_' <<< "$seen")
  holds "$level: no function is seen" "$(grep -E '\|[Tti]\||\|FUNC\||\|\.text' <<< "$rest")"
  holds "$level: what is seen beside it is weak" "$(grep -vE '\|[VW]\|' <<< "$rest" | grep .)"
  variables=$(grep -vE '^_ZT[IS]' <<< "$rest")
  holds "$level: constants are not seen, but typeinfo" "$(grep -vE '\|\.(data|bss|tdata|tbss)' <<< "$variables" | grep .; grep -E '\|\.data\.rel\.ro' <<< "$variables")"
  # No variable that is seen holds the address of something that the object defines; typeinfo may be named.
  holds "$level: no variable begins as an address within the object" "$(awk '
    FNR == NR { if ($1 ~ /^\./) mine[$1] = 1; else if ($1 !~ /^_ZTI/) defined[$1] = 1; next }
    /^Relocation section/ { split($3, name, "\047"); section = name[2]; sub(/^\.rela?/, "", section) }
    section in mine && / R_/ && ($5 in defined || $5 ~ /^\./) { print section, $5 }' \
    <(cut -d'|' -f7 <<< "$variables"; "$nm" --defined-only "$object" | awk '{ print $3 }') <("$readelf" -rW "$object"))"
  holds "$level: nothing runs before main" "$("$readelf" -SW "$object" | grep -E '\.(init_array|preinit_array|ctors|init)\b')"
  state+=$(cut -d'|' -f1,5 <<< "$variables")$'\n'
done
holds "a variable that levels share has one size" "$(sort -u <<< "$state" | cut -d'|' -f1 | uniq -d)"
echo "$passed passed, $failed failed, 0 skipped"
test $failed = 0 && test $passed -gt 1
