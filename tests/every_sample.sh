#!/bin/bash
# usage: tests/every_sample.sh BUILD_DIR
# Every sample for a few steps, on small data made here: it ends well, with a table, a plot and a TensorBoard file; and when it is stopped
# in the middle of an epoch and resumed, its last checkpoint is that of an uninterrupted run, bit for bit.
set -u
build=$(readlink -f "${1:?usage: tests/every_sample.sh BUILD_DIR}")
sources=$(readlink -f "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0 skipped=0
verdict() {  # name condition...
  if "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1"; fi
}
newest() { ls "$1" | sort -V | tail -n 1; }
same() { cmp "$1/$(newest "$1")" "$2/$(newest "$2")"; }

mkdir cifar
for i in 1 2 3 4 5; do head -c $((3073 * 16)) /dev/zero | tr '\0' "\\$i" > cifar/data_batch_$i.bin; done
head -c $((3073 * 16)) /dev/zero | tr '\0' '\7' > cifar/test_batch.bin
text=$sources/LICENSE

stop=3  # of the run that is resumed
check() {  # name options...: 2 epochs
  local name=$1 program=$build/samples/$1
  shift
  if ! test -x "$program"; then
    echo "skipped: $name is not built"
    skipped=$((skipped + 1))
    return
  fi
  mkdir "$name.run" && cd "$name.run" || exit 1
  set -- "$program" "$@" --epochs 2 --threads 1
  verdict "$name --help" "$program" --help > help.txt
  verdict "$name ends well" "$@" --checkpoint whole --logdir log --plot curves.svg > whole.txt 2> bars.txt
  verdict "$name shows a table" grep -q "peak memory" whole.txt
  verdict "$name draws its curves" grep -q "<svg" curves.svg
  verdict "$name writes for TensorBoard" test -n "$(find log -name 'events.out.tfevents.*' -size +0)"
  verdict "$name stops within an epoch" "$@" --steps $stop --checkpoint part > part.txt 2>&1
  verdict "$name resumes" "$@" --resume --checkpoint part > rest.txt 2>&1
  verdict "$name says that it resumes" grep -q "resumed after step $stop" rest.txt
  verdict "$name is the same when interrupted" same part whole
  cd ..
}
digits=(--data generated --limit 128 --batch-size 16)
words=(--data "$text" --batch-size 4 --batches 5 --context 16 --width 32 --layers 1 --length 20 --prompt " ")
check linear_regression
check mnist "${digits[@]}"
check cifar --data "$work/cifar" --width 4 --batch-size 16
check gpt "${words[@]}" --heads 2
check lstm_text "${words[@]}"
check seq2seq --dim 16 --examples 128 --batch-size 16
check autoencoder "${digits[@]}"
check dcgan "${digits[@]}"
stop=550 check dqn --frames 600
echo "$passed passed, $failed failed, $skipped skipped"
test $failed = 0
