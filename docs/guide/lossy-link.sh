#!/usr/bin/env bash
# Copies 100 MiB over an emulated link of 1 Gb/s, 50 ms and 0.1 % loss: with zerolane, with curl, with rsync. Run it as root.
#
#   sudo bash docs/guide/lossy-link.sh
#
# The program is $ZEROLANE, else target/release/zerolane, else the one in PATH. curl and rsync are left out where they are missing.
set -euo pipefail

# timed NAME COMMAND...: runs the command and prints how long it took.
timed() {
    local TIMEFORMAT="$1: %R s"
    shift
    time "$@"
}

# In host 2: an HTTP server, an rsync server, and zerolane.
serve() {
    python3 -m http.server --directory "$work/share" --bind "$ZEROLANE_LAB_ADDR2" 8000 >"$work/http.log" 2>&1 &
    rsync --daemon --no-detach --config "$work/rsyncd.conf" >"$work/rsync.log" 2>&1 &
    exec "$ZEROLANE" serve --read-only --listen "$ZEROLANE_LAB_ADDR2" "$work/share" >"$work/zerolane.log" 2>&1
}

# In host 1. The lab ends when this ends.
copy() {
    sleep 2 # until the servers listen
    timed 'zerolane cp, encrypted' "$ZEROLANE" cp -q "$ZEROLANE_LAB_ADDR2:file" "$work/zerolane"
    cmp "$work/share/file" "$work/zerolane"
    if command -v curl >/dev/null && command -v python3 >/dev/null; then
        timed "curl over TCP $congestion" curl -s -o "$work/curl" "http://$ZEROLANE_LAB_ADDR2:8000/file"
    fi
    if command -v rsync >/dev/null; then
        timed "rsync over TCP $congestion" rsync "rsync://$ZEROLANE_LAB_ADDR2/share/file" "$work/rsync"
    fi
}

case ${1:-} in
serve | copy)
    work=$ZEROLANE_HOME
    echo bbr >/proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null || true
    congestion=$(cat /proc/sys/net/ipv4/tcp_congestion_control)
    "$1"
    exit
    ;;
esac

release=$(dirname "${BASH_SOURCE[0]}")/../../target/release/zerolane
if [ -z "${ZEROLANE:-}" ]; then
    if [ -x "$release" ]; then ZEROLANE=$(realpath "$release"); else ZEROLANE=$(command -v zerolane); fi
fi
# In memory, with keys of its own.
ZEROLANE_HOME=$(mktemp -d /dev/shm/zerolane-XXXXXX)
export ZEROLANE ZEROLANE_HOME
trap 'rm -rf "$ZEROLANE_HOME"' EXIT
modprobe -q tcp_bbr 2>/dev/null || true
mkdir "$ZEROLANE_HOME/share"
head -c 100M /dev/urandom >"$ZEROLANE_HOME/share/file"
printf 'use chroot = no\n[share]\npath = %s/share\n' "$ZEROLANE_HOME" >"$ZEROLANE_HOME/rsyncd.conf"
printf 'bash %q copy\nbash %q serve\n' "$(realpath "$0")" "$(realpath "$0")" >"$ZEROLANE_HOME/script"
"$ZEROLANE" lab --rtt 50ms --loss 0.1% --rate 1gbit --queue bdp --script "$ZEROLANE_HOME/script"
