#!/bin/busybox sh
# shellcheck shell=dash
# One guest of the live scheduler's matrix: it is attached in each mode, loaded, looked at and stopped. One line for each mode on standard
# output: mode, what became of it, and the most instructions that the verifier followed for one program.

await() {
    for _ in $(seq 600); do
        read -r state < /sys/kernel/sched_ext/state
        [ "$state" != "$1" ] || return 0
        [ "$1" != enabled ] || kill -0 "$run" 2> /dev/null || return 1
        sleep 0.2
    done
    return 1
}

verified() {
    cat /proc/"$run"/fdinfo/* 2> /dev/null | awk '/^verified_insns/ && $2 > most { most = $2 } END { print most + 0 }'
}

said() {
    tail -n 1 /tmp/run | tr '|\000-\037' ' '
}

for mode in gather spread; do
    huddle run --mode $mode > /tmp/run 2>&1 &
    run=$!
    if ! await enabled; then
        wait $run
        echo "$mode|not attached: $(said)|0"
        continue
    fi
    most=$(verified)
    result=ok
    guest-load --pairs 2 --hogs 3 --seconds 2 > /tmp/load 2>&1 || result="load failed: $(tail -n 1 /tmp/load)"
    for _ in 1 2 3 4; do (for i in 1 2 3 4 5 6; do echo "$i" | cat > /dev/null; done) & done
    sleep 1
    placed=$(huddle status --json | awk '/"direct"|"pinned"/ { gsub(/[^0-9]/, ""); sum += $0 } END { print sum + 0 }')
    [ "${placed:-0}" -gt 0 ] || result="nothing was placed"
    read -r state < /sys/kernel/sched_ext/state
    [ "$state" = enabled ] || result="ended: $(said)"
    huddle stop > /dev/null 2>&1
    wait $run || result="left with $?: $(said)"
    await disabled || result="still $state"
    echo "$mode|$result|$most"
done
exit 0
