#!/bin/busybox sh
# shellcheck shell=dash
# Functions of the guest that compares schedulers; the calls follow this text, generated. Each measurement is a line of
# JSON on standard output.

log=/tmp/scheduler.log
wanted=disabled
pid=

# Sets $state to what sched_ext says; a kernel without it has no scheduler of its.
look() {
    state=disabled
    { read -r state < /sys/kernel/sched_ext/state; } 2> /dev/null
}

# await STATE: whether sched_ext reaches that state within a minute, or as long as its scheduler lives.
await() {
    for _ in $(seq 300); do
        look
        [ "$state" != "$1" ] || return 0
        [ "$1" != enabled ] || kill -0 "$pid" 2> /dev/null || return 1
        sleep 0.2
    done
    return 1
}

# A file's last line, fit for a string of JSON.
last() {
    tail -n 1 "$1" | tr -d '\000-\037' | tr '\\"' "/'"
}

# failed TURN SCHEDULER WHAT WHY
failed() {
    echo "turn $1, $2, $3: $4" >&2
    printf '{"turn":%s,"scheduler":"%s","case":"%s","failed":"%s"}\n' "$1" "$2" "$3" "$4"
}

# attach TURN SCHEDULER COMMAND...: starts the command, which attaches a scheduler and stays.
attach() {
    turn=$1 scheduler=$2
    shift 2
    wanted=enabled
    "$@" > "$log" 2>&1 &
    pid=$!
    await enabled || failed "$turn" "$scheduler" attach "sched_ext is $state; $(last "$log")"
}

# detach TURN SCHEDULER COMMAND...: the command makes the attached scheduler leave.
detach() {
    turn=$1 scheduler=$2
    shift 2
    "$@" >> "$log" 2>&1
    if ! await disabled; then
        failed "$turn" "$scheduler" detach "sched_ext is $state; $(last "$log")"
        kill -KILL "$pid" 2> /dev/null
        await disabled
    fi
    wait "$pid"
    wanted=disabled
}

# measure TURN SCHEDULER CASE ARGUMENT...: one load, if the scheduler is attached before and after it.
measure() {
    turn=$1 scheduler=$2 case=$3
    shift 3
    look
    if [ "$state" = "$wanted" ]; then
        echo "turn $turn, $scheduler, $case" >&2
        load=$(guest-load --json "$@" 2> /tmp/load.log)
        status=$?
        look
        if [ "$status" -ne 0 ]; then
            failed "$turn" "$scheduler" "$case" "$(last /tmp/load.log)"
        elif [ "$state" != "$wanted" ]; then
            failed "$turn" "$scheduler" "$case" "sched_ext is $state; $(last "$log")"
        else
            printf '{"turn":%s,"scheduler":"%s","case":"%s","load":%s}\n' "$turn" "$scheduler" "$case" "$load"
        fi
    else
        failed "$turn" "$scheduler" "$case" "not run: sched_ext is $state"
    fi
}

read -r release < /proc/sys/kernel/osrelease
printf '{"release":"%s"}\n' "$release"
