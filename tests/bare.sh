#!/bin/bash
# usage: tests/bare.sh [command ...]     (as root; needs debootstrap and a package mirror)
# Proves that a bare machine is enough: makes a minimal Debian in a folder, clones the committed tree into it, and runs there
# `./run mnist` and `./run test`, or the commands given, each timed; then `./run mnist --help` once more without any network.
# SUITE and MIRROR choose another system (MIRROR defaults to where this machine's own packages come from), KEEP=1 leaves the folder.
set -u
cd "$(dirname "$0")/.." || exit 1
test "$(id -u)" = 0 || { echo "bare.sh: needs root (debootstrap, chroot)"; exit 1; }
command -v debootstrap > /dev/null || apt-get install -qq debootstrap > /dev/null || exit 1
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
mirror=${MIRROR:-$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | awk -v s="$(. /etc/os-release && echo "$VERSION_CODENAME")" '$1 == s {print $2; exit}')}
test $# -gt 0 || set -- "./run mnist" "./run test"

bare=$(mktemp -d)
clean_up() {
  umount "$bare/proc" 2> /dev/null
  test "${KEEP:-0}" = 1 && echo "kept: $bare" && return
  grep -q " $bare/" /proc/mounts || rm -rf --one-file-system "$bare"  # never while something is mounted in it
}
trap clean_up EXIT
trap 'exit 130' INT TERM
in_bare() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "${net[@]}" chroot "$bare" bash -c "cd /root/tapir && $1" < /dev/null; }
net=()

echo "== $suite, minimal"
debootstrap --variant=minbase "$suite" "$bare" "$mirror" > "$bare.log" 2>&1 || { tail -n 20 "$bare.log"; exit 1; }
rm -f "$bare.log"
cp /etc/apt/apt.conf.d/* "$bare/etc/apt/apt.conf.d/" 2> /dev/null  # a proxy, where this machine needs one
mount -t proc proc "$bare/proc" || exit 1
git clone -q . "$bare/root/tapir" || exit 1
for folder in data/mnist conformance; do
  test -d ../shared/$folder && mkdir -p "$bare/root/shared/$folder" && cp -rL ../shared/$folder/. "$bare/root/shared/$folder"
done

failed=0
times=()
step() {  # name command
  local start=$SECONDS
  echo "== $1"
  in_bare "$2" || { failed=1; echo "FAILED: $1"; }
  times+=("$(printf '%5d s  %s' $((SECONDS - start)) "$1")")
}
for command in "$@"; do step "$command" "$command"; done
net=(unshare --net)
step "./run mnist --help, no network" "./run mnist --help > /dev/null"
echo "== $suite, $(nproc) cores"
printf '%s\n' "${times[@]}"
exit $failed
