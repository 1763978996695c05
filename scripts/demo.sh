#!/bin/bash
# A bank on Quire, killed in mid-flight, and nothing lost. About a minute; leaves nothing behind, also when it fails.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

SECONDS_OF_WORK=${SECONDS_OF_WORK:-12}
[ -e /dev/fuse ] || die "there is no /dev/fuse: this machine has no FUSE (in a container, pass --device /dev/fuse)"
if [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then die "/dev/fuse is closed to $(id -un): run as root, or open it (chmod 666 /dev/fuse)"; fi

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-demo.XXXXXX")
image=$work/bank.img mnt=$work/mnt logs=$work/logs
daemon='' workers=()

cleanup() {
	local code=$?
	trap - EXIT INT TERM
	for pid in "${workers[@]}" $daemon; do kill -9 "$pid" 2>/dev/null || true; done
	if mountpoint -q "$mnt" 2>/dev/null || ! stat "$mnt" >/dev/null 2>&1; then detach || true; fi
	[ "$code" = 0 ] || { say; say "The demo failed (exit code $code). What the daemon said:"; tail -n 20 "$work/daemon.log" 2>/dev/null || true; }
	rm -rf --one-file-system "$work"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

detach() { if [ "$(id -u)" = 0 ]; then umount -l "$mnt"; else fusermount3 -u -z "$mnt"; fi; } 2>/dev/null
step() { say; say "$bold$*$plain"; }
# Prints a command as a newcomer would type it, then runs it.
show() { local line="$*"; line=${line//$work\//}; line=${line//"$QUIRE"/quire}; say "  \$ ${line//"$LAB"/quire-lab}"; "$@" 2>&1 | sed 's/^/    /'; return "${PIPESTATUS[0]}"; }
acknowledged() { cat "$logs"/*/bank-* 2>/dev/null | wc -l; }

mount_quire() {
	say "  \$ quire mount bank.img mnt -f &"
	"$QUIRE" mount "$image" "$mnt" -f >>"$work/daemon.log" 2>&1 &
	daemon=$!
	for _ in $(seq 600); do
		mountpoint -q "$mnt" && break
		kill -0 $daemon 2>/dev/null || { wait $daemon || true; daemon=''; die "quire mount ended: $(tail -n 3 "$work/daemon.log")"; }
		sleep 0.1
	done
	mountpoint -q "$mnt" || die "quire mount gave no mount in a minute"
	say "    mounted; the daemon is process $daemon"
}

mkdir -p "$mnt" "$logs/wal" "$logs/delete"

step "1. A disk image with a plain ext4 file system, made by mke2fs."
show mke2fs -q -F -t ext4 -E root_owner="$(id -u):$(id -g)" "$image" 512M

step "2. Quire mounts it, in user space, with a journal that Quire writes itself."
mount_quire
show df -h --output=fstype,size,used,target "$mnt"

step "3. Two banks open on it. Four SQLite processes move money between accounts (synchronous=EXTRA)."
say "   Each writes the number of a transfer to a log outside of the mount once SQLite has said that it is committed."
for mode in wal delete; do
	mkdir "$mnt/$mode"
	"$LAB" bank create --dir "$mnt/$mode" --log "$logs/$mode" --journal $mode
	for worker in 0 1; do
		"$LAB" work bank --dir "$mnt/$mode" --log "$logs/$mode" --worker $worker --seed $RANDOM --seconds 600 2>>"$work/workers.log" &
		workers+=($!)
	done
done
for second in $(seq "$SECONDS_OF_WORK"); do
	sleep 1
	[ $((second % 3)) != 0 ] || say "    after $second s: $(acknowledged) transfers acknowledged"
done
sleep 0.$((RANDOM % 9 + 1))
for pid in "${workers[@]}"; do kill -0 "$pid" 2>/dev/null || die "a bank stopped by itself: $(cat "$work/workers.log")"; done

step "4. In mid-flight the daemon is killed. Nothing is flushed, nobody is asked."
say "  \$ kill -KILL $daemon"
kill -KILL $daemon
{ wait $daemon || true; } 2>/dev/null
daemon=''
for pid in "${workers[@]}"; do { kill -KILL "$pid" || true; wait "$pid" || true; } 2>/dev/null; done
workers=()
total=$(acknowledged)
detach
[ "$total" -gt 0 ] || die "no transfer was acknowledged: nothing to show"
say "    $total transfers were acknowledged until then. The image says that it needs recovery:"
say "  \$ quire info bank.img | grep Features"
"$QUIRE" info "$image" 2>/dev/null | grep Features | tee "$work/features" | sed 's/^/    /'
grep -q needs_recovery "$work/features" || die "the image does not need recovery; it should"

step "5. Recovery, from the journal. (A mount does it, too; after -o data=ordered also the kernel and e2fsck, which then find plain jbd2.)"
show "$QUIRE" recover "$image" || [ $? = 1 ] # as fsck: 1 means recovered

step "6. e2fsck, which is not ours, looks at every structure and finds nothing wrong."
show e2fsck -fn "$image" | tee "$work/fsck"
! grep -q '? no' "$work/fsck" || die "e2fsck found something to fix"

step "7. Mounted again: both databases whole, no money lost, every acknowledged transfer there."
mount_quire
for mode in wal delete; do
	show sqlite3 "$mnt/$mode/bank.db" 'pragma integrity_check;'
	show "$LAB" bank check --dir "$mnt/$mode" --log "$logs/$mode"
done

step "8. A clean unmount, and a last look by e2fsck."
show "$QUIRE" umount "$mnt"
wait $daemon
daemon=''
show e2fsck -fn "$image"

say
say "${bold}Killed with $total transfers acknowledged; $total transfers found. Nothing lost.$plain"
