#!/bin/bash
# usage: tests/distributed/launchers.sh BUILD_DIR
# The two-machine recipe of docs/distributed.md, in two network namespaces with a link between them: the same command on both. Then each
# launcher's environment, as far as the launcher is here. Ends with a line `N passed, N failed, N skipped`.
set -u
build=$(readlink -f "${1:?usage: tests/distributed/launchers.sh BUILD_DIR}")
passed=0 failed=0 skipped=0
verdict() {  # name status output
  if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1"; tail -n 5 "$3"; fi
}
skip() { echo "skipped: $1"; skipped=$((skipped + 1)); }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
worker=$build/tests/distributed_worker
if ! test -x "$worker" || ! test -x "$build/tapir-run"; then
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
export OMP_NUM_THREADS=1
TAPIR_STORE_SECRET=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')

network='mount -t tmpfs none /run && ip link set lo up && ip netns add a && ip netns add b &&
  ip link add va type veth peer name vb && ip link set va netns a && ip link set vb netns b &&
  for n in a b; do ip netns exec $n ip link set lo up && ip netns exec $n ip link set v$n up || exit 9; done &&
  ip netns exec a ip addr add 10.9.0.1/24 dev va && ip netns exec b ip addr add 10.9.0.2/24 dev vb'
for backend in tcp gloo; do
  TAPIR_STORE_SECRET=$TAPIR_STORE_SECRET unshare --user --map-root-user --net --mount bash -c "($network) || exit 77
    for n in a b; do ip netns exec \$n timeout 50 '$build/tapir-run' --nproc 2 --nnodes 2 --rdzv 10.9.0.1:29400 '$worker' ddp $backend & done
    wait -n && wait -n" > "$work/hosts" 2>&1
  code=$?
  if [ $code = 77 ] || [ $code = 1 ] && grep -q "unshare\|Operation not permitted\|ip: " "$work/hosts"; then skip "no network namespaces here"
  elif grep -q "Tapir built with gloo" "$work/hosts"; then skip "built without gloo"
  elif grep -q "Tapir built with libcrypto" "$work/hosts"; then skip "built without libcrypto"
  else verdict "two hosts, $backend" $code "$work/hosts"; fi
done

# Three machines on a bridge; the link of one is cut at a random moment while they train. The other two go on without it, and it does not
# go on alone. TAPIR_ELASTIC_TRIALS says how often.
three='mount -t tmpfs none /run && ip link set lo up && ip link add name bridge0 type bridge && ip link set bridge0 up &&
  for n in 1 2 3; do ip netns add m$n && ip link add v$n type veth peer name p$n && ip link set v$n netns m$n &&
    ip link set p$n master bridge0 up && ip netns exec m$n ip link set lo up && ip netns exec m$n ip link set v$n up &&
    ip netns exec m$n ip addr add 10.9.0.$n/24 dev v$n || exit 9; done'
for trial in $(seq "${TAPIR_ELASTIC_TRIALS:-1}") last; do
  limits="--min-ranks 4"
  [ $trial = last ] && limits="--min-ranks 5"
  rm -rf "$work"/run*
  TAPIR_STORE_SECRET=$TAPIR_STORE_SECRET unshare --user --map-root-user --net --mount bash -c "($three) || exit 77
    export TAPIR_TEST_PACE=100000
    for n in 1 2 3; do (
      TAPIR_TEST_FILE='$work/run'\$n ip netns exec m\$n timeout 100 '$build/tapir-run' --nproc 2 --nnodes 3 --node-rank \$((n - 1)) \
        --rdzv 10.9.0.1:29400 --silence 4 $limits '$worker' elastic > '$work/run'\$n.out 2>&1; echo \$? > '$work/run'\$n.status) & done
    for i in \$(seq 600); do grep -q 'rank 5 of 6 from step 0' '$work/run3.out' && break; sleep 0.1; done
    sleep $((RANDOM % 4)).$((RANDOM % 10)); ip link set p3 down; wait" > "$work/three" 2>&1
  code=$?
  cat "$work"/run*.out >> "$work/three" 2> /dev/null
  statuses=$(cat "$work"/run*.status 2> /dev/null | tr '\n' ' ')
  if [ $code = 77 ] || [ $code = 1 ] && grep -q "unshare\|Operation not permitted\|ip: " "$work/three"; then skip "no network namespaces here"; break
  elif grep -q "Tapir built with libcrypto" "$work/three"; then skip "built without libcrypto"; break; fi
  if [ "$limits" = "--min-ranks 4" ]; then
    [ "$statuses" = "0 0 2 " ] && grep -q "machine 2 has said nothing for 4 s" "$work/run1.out" && grep -q "final loss.*of 4 ranks, falls" "$work/run1.out" &&
      ! grep -q "final loss" "$work/run3.out"
  else
    [ "$statuses" = "1 1 2 " ] && ! grep -q "final loss" "$work/three"
  fi
  verdict "a machine of three is lost, $limits: $statuses" $? "$work/three"
done

port=$((20000 + $$ % 20000))  # Slurm's rule makes it of the job's number
for rank in 0 1; do
  SLURM_PROCID=$rank SLURM_NTASKS=2 SLURM_LOCALID=$rank SLURM_NTASKS_PER_NODE=2 SLURM_JOB_ID=$port \
    SLURM_JOB_NODELIST=localhost timeout 50 "$worker" ddp > "$work/slurm$rank" 2>&1 &
done
wait -n && wait -n
verdict "Slurm's variables" $? "$work/slurm0"

if command -v mpirun > /dev/null && mpirun --version 2>&1 | grep -q "Open MPI"; then
  MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) timeout 50 mpirun --allow-run-as-root --oversubscribe -np 2 "$worker" ddp > "$work/mpi" 2>&1
  verdict "mpirun of Open MPI" $? "$work/mpi"
else skip "no Open MPI here"; fi
torchrun=${TAPIR_TORCHRUN:-$(command -v torchrun)}
if [ -n "$torchrun" ]; then
  timeout 120 "$torchrun" --no-python --master-port $((port + 2)) --nproc-per-node 2 "$worker" ddp > "$work/torchrun" 2>&1
  verdict torchrun $? "$work/torchrun"
else skip "no torchrun here (TAPIR_TORCHRUN names one)"; fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
