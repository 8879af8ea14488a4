#!/bin/bash
# usage: tests/samples.sh BUILD_DIR [kills]
# The MNIST sample as a person uses it: interrupted by Ctrl-C, killed at random moments while it writes checkpoints (20 times unless
# said otherwise), resumed each time. Every checkpoint must load, and the last one must equal an uninterrupted run's bit for bit.
set -u
build=$(readlink -f "${1:?usage: tests/samples.sh BUILD_DIR [kills]}")
mnist=$build/samples/mnist
kills=${2:-20}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0
verdict() {  # name condition...
  if "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1"; fi
}
newest() { ls "$1" | sort -V | tail -n 1; }
same() { cmp "$1/$(newest "$1")" "$2/$(newest "$2")"; }

# Ctrl-C in the middle of an epoch leaves a checkpoint to go on from.
cnn=("$mnist" --data generated --model cnn --limit 1280 --batch-size 64 --epochs 2 --threads 2 --seed 3)
"${cnn[@]}" --checkpoint whole > whole.txt || { cat whole.txt; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
"${cnn[@]}" --checkpoint part --checkpoint-every 1 > part.txt &
until test -n "$(ls part 2> /dev/null)"; do kill -0 $! 2> /dev/null || break; sleep 0.02; done
kill -INT $!
wait $!
verdict "Ctrl-C ends with status 130" test $? = 130
verdict "Ctrl-C says how to go on" grep -q "go on with --resume --checkpoint part" part.txt
"${cnn[@]}" --resume --checkpoint part > rest.txt
verdict "the resumed run ends" test $? = 0
verdict "resumed after Ctrl-C: the same weights, moments and random state" same part whole
verdict "resumed after Ctrl-C: the same accuracy" test "$(tail -n 1 rest.txt)" = "$(tail -n 1 whole.txt)"

# SIGKILL while checkpoints are written after every step.
mlp=("$mnist" --data generated --model mlp --threads 1)
for ((i = 0; i < kills; ++i)); do
  "${mlp[@]}" --epochs 100 --checkpoint killed --checkpoint-every 1 ${resume:-} > killed.txt 2>&1 &
  before=$(stat -c %y killed 2> /dev/null)
  until test "$(stat -c %y killed 2> /dev/null)" != "$before"; do kill -0 $! 2> /dev/null || break; sleep 0.01; done
  sleep 0.$(printf %03d $((RANDOM % 300)))
  kill -KILL $!
  wait $! 2> /dev/null
  verdict "kill $i came while it trained" test $? = 137
  resume=--resume
done
"${mlp[@]}" --epochs 1 --checkpoint killed --resume > loaded.txt 2>&1
verdict "the last checkpoint loads" test $? = 0

# TAPIR_DUMP: the first NaN of a run that diverges becomes a case, which the conformance runner replays, and finds again.
TAPIR_DUMP=dump "$mnist" --data generated --model mlp --limit 1280 --epochs 1 --threads 1 --lr 1e30 > diverged.txt 2>&1
verdict "a run that diverges goes on" test $? = 0
"$build/tests/conformance" --cases dump > replay.txt
verdict "the dumped calls are replayed" grep -qE "^0 passed, [1-9][0-9]* failed, 0 unsupported$" replay.txt
echo "$passed passed, $failed failed, 0 skipped"
test $failed = 0
