#!/bin/bash
# usage: tests/every_sample.sh BUILD_DIR
# Every sample for a few steps, on small data made here: it ends well, with a table, a plot and a TensorBoard file; and when it is stopped
# in the middle of an epoch and resumed, its last checkpoint is that of an uninterrupted run, bit for bit. What is wrong with its options it
# says in one line before it trains. Where it offers --compile, its steps are replayed.
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

replays() {  # file: of each signature all calls but the first four were replayed, or checked against the program, as --explain says
  awk '/ signatures?, .* calls$/ { few = 4 * $1; calls = $3 } /^signature: recorded/ { replays += $6 } /^  checked / { replays += $2 }
       END { exit !(calls > few && replays >= calls - few) }' "$1"
}

stop=3    # of the run that is resumed
launch=()  # what starts it
check() {  # name options...: 2 epochs
  local program=$build/samples/$1 name=$1${launch:+ of many}
  shift
  if ! test -x "$program"; then
    echo "skipped: $name is not built"
    skipped=$((skipped + 1))
    return
  fi
  mkdir "$name.run" && cd "$name.run" || exit 1
  set -- "${launch[@]}" "$program" "$@" --epochs 2 --threads 1
  verdict "$name --help" "$program" --help > help.txt
  verdict "$name ends well" "$@" --checkpoint whole --logdir log --plot curves.svg > whole.txt 2> bars.txt
  verdict "$name shows a table" grep -q "peak memory" whole.txt
  verdict "$name draws its curves" grep -q "<svg" curves.svg
  verdict "$name writes for TensorBoard" test -n "$(find log -name 'events.out.tfevents.*' -size +0)"
  verdict "$name stops within an epoch" "$@" --steps $stop --checkpoint part > part.txt 2>&1
  verdict "$name resumes" "$@" --resume --checkpoint part > rest.txt 2>&1
  verdict "$name says that it resumes" grep -q "resumed after step $stop" rest.txt
  verdict "$name is the same when interrupted" same part whole
  # Not of many processes, for collectives are no kernels; resnet comes below, with more steps.
  if test ${#launch[@]} = 0 && test $name != resnet && grep -q -- --compile help.txt; then
    verdict "$name --compile ends well" env TAPIR_LOG=compile "$@" --compile --explain --steps $((stop + 9)) > compiled.txt 2>&1
    verdict "$name --compile replays: $(grep -A 1 ^signature: compiled.txt)" replays compiled.txt
    verdict "$name --compile says why in plain names" test "$(grep -c 5tapir compiled.txt)" = 0
  fi
  cd ..
}
digits=(--data generated --limit 128 --batch-size 16)
words=(--data "$text" --batch-size 4 --batches 8 --context 16 --width 32 --layers 1 --length 20 --prompt " ")
drawn=(--size 32 --width 4 --batch-size 8)
check linear_regression
check mnist "${digits[@]}"
check cifar --data "$work/cifar" --width 4 --batch-size 8
check gpt "${words[@]}" --heads 2
check resnet "${drawn[@]}" --limit 32 --lr 0.005 --data generated  # at higher rates roundings grow, of many processes too
shapes=$work/resnet.run/datasets/shapes
launch=("$build/tapir-run" --nproc 2)
check gpt_ddp "${words[@]}" --heads 2
check mnist_ddp "${digits[@]}"
check resnet "${drawn[@]}" --limit 32 --lr 0.005 --data "$shapes" --sync-bn
ctrl_c() {  # name options...: all ranks stop in one place, and the checkpoint of that is there
  local program=$build/samples/$1
  test -x "$program" || return
  "${launch[@]}" "$program" "${@:2}" --threads 1 --epochs 1000 --checkpoint stopped --checkpoint-every 1 > stopped.txt 2>&1 &
  until test -n "$(ls stopped 2> /dev/null)"; do kill -0 $! 2> /dev/null || break; sleep 0.02; done
  kill -INT $!
  wait $!
  verdict "$1: Ctrl-C ends with status 130" test $? = 130
  verdict "$1: Ctrl-C says how to go on" grep -q "go on with --resume --checkpoint stopped" stopped.txt
  verdict "$1: Ctrl-C leaves whole checkpoints" test -z "$(find stopped -name '*.tmp')"
}
ctrl_c mnist_ddp "${digits[@]}"
launch=()
check lstm_text "${words[@]}"
check seq2seq --dim 16 --examples 128 --batch-size 16
check autoencoder "${digits[@]}"
check dcgan "${digits[@]}"
stop=550 check dqn --frames 600

# What had better be told at once: nothing is trained, and the one line says what the option is, what was expected and what came.
refuses() {  # name line options...
  local program=$build/samples/$1 line="$1: $2" what="$1 ${*:3}" code
  test -x "$program" || return
  timeout 60 "$program" "${@:3}" > said.txt 2> refused.txt
  code=$?
  verdict "$what: status" test $code != 0 -a $code -lt 124
  verdict "$what: says '$(cat refused.txt)'" test "$(cat refused.txt)" = "$line"
  verdict "$what: before it trains" test "$(grep -c epoch said.txt)" = 0
}
for name in linear_regression mnist cifar gpt gpt_ddp lstm_text seq2seq autoencoder dcgan dqn mnist_ddp resnet; do
  refuses $name '--epochs: expected a whole number from 1 on, got "0"' --epochs 0
  refuses $name '--batch-size: expected at most 1000000000, got "20000000000"' --batch-size 20000000000
  refuses $name '--lr: expected a number above 0, got "nan"' --lr nan
  refuses $name '--steps: expected a whole number from 0 on, got "some"' --steps some
  refuses $name '--seed: expected a whole number from 0 on, got "-1"' --seed -1
  refuses $name '--plot: expected a file in a folder that can be written, got "none/curves.svg"' --plot none/curves.svg
  refuses $name '--checkpoint: expected a folder that can be written, got "said.txt"' --checkpoint said.txt
  refuses $name '--resume: expected --checkpoint FOLDER with it, got none' --resume
  refuses $name '--checkpoint-every: expected --checkpoint FOLDER with it, got none' --checkpoint-every 5
done
CUDA_VISIBLE_DEVICES= refuses mnist '--device: expected cpu, cuda or cuda:N, with N below the 0 devices here, got "tpu"' --device tpu
refuses mnist '--explain: expected --compile with it, got none' --explain
for name in mnist mnist_ddp autoencoder dcgan cifar resnet; do
  refuses $name '--limit: expected a whole number from 0 on, got "-5"' --limit -5
done
refuses dcgan '--batch-size: expected at most the 8 samples there are, got 128' --data generated --limit 8
refuses cifar '--batch-size: expected at most the 8 samples there are, got 128' --data "$work/cifar" --limit 8
refuses mnist_ddp '--backend: mpi not in {tcp,gloo,nccl}' --backend mpi
for option in autoencoder/code dcgan/noise cifar/width cifar/depth dqn/frames seq2seq/dim seq2seq/examples gpt/heads \
    {gpt,lstm_text}/{width,layers,batches}; do
  refuses ${option%/*} "--${option#*/}: expected a whole number from 1 on, got \"0\"" --${option#*/} 0
done
refuses cifar '--workers: expected a whole number from 0 on, got "-1"' --workers -1
refuses resnet '--workers: expected a whole number from 0 on, got "-1"' --workers -1
refuses resnet '--batch-size: expected at most the 8 samples there are, got 32' --data "$shapes" --limit 8
refuses resnet '--data: expected a folder with train/CLASS/1.jpg, or CIFAR-10, got "none"' --data none
refuses resnet '--pretrained: expected a file that can be read, got "none.pth"' --pretrained none.pth
refuses dqn '--gamma: expected a number from 0 to 1, got "2"' --gamma 2
refuses seq2seq '--examples: expected at most 65200, got "65201"' --examples 65201
letters=" ,./-0123456789abcdefghijklmnopqrstuvwxyz"
refuses seq2seq "--phrase: expected letters out of \"$letters\", got \"ABC\"" --phrase ABC
refuses seq2seq '--phrase: expected 1 to 28 letters, got 0 in ""' --phrase ""
refuses seq2seq '--phrase: expected 1 to 28 letters, got 35 in "the fourteenth of july 1970 at noon"' \
  --phrase "the fourteenth of july 1970 at noon"
touch empty
characters=$(($(fold -w 1 "$text" | sort -u | grep -c .) + 1))  # and the line's end
for name in gpt lstm_text; do
  refuses $name '--prompt: expected at least one character, got none' --data "$text" --prompt ""
  refuses $name "--prompt: [CharVocabulary] expected one of $characters characters, got \"~\" at position 1" \
    --data "$text" --prompt "a~"
  refuses $name '--temperature: expected a number above 0, got "0"' --temperature 0
  refuses $name '--temperature: expected a number above 0, got "-1"' --temperature -1
  refuses $name '--context: expected a whole number from 2 on, got "1"' --context 1
  refuses $name '--length: expected a whole number from 0 on, got "-1"' --length -1
  refuses $name '--data: expected a text file, got "none.txt", which is not there' --data none.txt
  refuses $name '--context: expected fewer than the 0 characters of a part of the text, got 64' --data empty
done
refuses gpt '--heads: expected a divisor of the width 128, got 3' --data "$text" --heads 3

works() {  # name condition options...
  local program=$build/samples/$1
  test -x "$program" || return
  "$program" "${@:3}" --threads 1 > said.txt 2>&1
  verdict "$1 ${*:3} ends well" test $? = 0
  verdict "$1 ${*:3}: $2" eval "$2"
}
small=(--data generated --limit 9 --batch-size 4 --steps 1)
works autoencoder '! grep -q png said.txt && ! test -e autoencoder.png' "${small[@]}" --picture ""
works autoencoder 'test -s autoencoder.png' "${small[@]}"
works dcgan '! grep -q png said.txt && ! test -e dcgan.png' "${small[@]}" --picture ""
words=(--data "$text" --steps 1 --batch-size 2 --width 8 --layers 1 --temperature 0.5)
works gpt 'grep -q "^the Software is the" said.txt' "${words[@]}" --context 16 --length 40 --prompt "the Software is the"
works gpt '! grep -q expected said.txt' "${words[@]}" --context 2 --length 5 --prompt th
works linear_regression 'test $(grep -c "kernel calls" said.txt) = 1' --compile --explain

# resnet: compiled it learns the same; its checkpoints are weights to begin with; two processes are one.
if test -x "$build/samples/resnet"; then
  validation() { sed -n 's/^\(\[0\]\)\? *[0-9][0-9]*  *\([0-9.]*\)  *\([0-9.]*\) .*/\3/p' "$1" | tail -n 1; }  # the last epoch's loss
  near() { awk -v a="$1" -v b="$2" 'BEGIN {exit !(a > 0 && (a - b) ^ 2 < (1e-3 * a) ^ 2)}'; }
  drawn+=(--epochs 2 --workers 0)
  works resnet 'replays said.txt' "${drawn[@]}" --limit 64 --data "$shapes" --compile --explain
  here=("${drawn[@]}" --limit 32 --data "$shapes")
  works resnet 'grep -qE "replayed [1-9][0-9]* times" said.txt' "${here[@]}" --lr 0.005 --compile --explain --checkpoint compiled
  verdict "resnet --compile learns the same" same compiled resnet.run/whole
  first=resnet.run/whole/$(newest resnet.run/whole)
  works resnet 'near $(validation said.txt) $(validation resnet.run/whole.txt)' "${here[@]}" --pretrained "$first" --freeze --lr 1e-30
  mkdir few
  for part in train val; do mkdir few/$part && cp -r "$shapes/$part/ring" "$shapes/$part/star" few/$part; done
  works resnet 'grep -q "the last layer is new: 6 classes there, 2 here" said.txt' "${drawn[@]}" --limit 32 --data few --pretrained "$first" --steps 1
  works resnet 'true' "${here[@]}" --augment rand --amp bf16 --steps 1 --ema 0
  "$build/tapir-run" --nproc 2 "$build/samples/resnet" "${here[@]}" --lr 0.005 --sync-bn --threads 1 > two.txt 2>&1
  verdict "resnet: two processes equal one" near "$(validation two.txt)" "$(validation resnet.run/whole.txt)"
fi
echo "$passed passed, $failed failed, $skipped skipped"
test $failed = 0
