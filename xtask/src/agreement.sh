#!/bin/busybox sh
# shellcheck shell=dash
# Functions of the guest that records wake-ups for `huddle agree`; the calls follow this text, generated. Each record is the
# tracer's text between two lines that begin with `##`.

cd /sys/kernel/tracing || exit 1

# probe DEFINITION: adds a probe where the kernel lets it be.
probe() {
    echo "$1" >> kprobe_events 2> /dev/null || echo "no probe: $1" >&2
}

offset() {
    guest-load --offsets "$1" | cut -d ' ' -f 2
}

pid=$(offset pid) recent=$(offset recent_used_cpu) flips=$(offset wakee_flips)
fields="pid=+$pid(\$arg1):s32 recent=+$recent(\$arg1):s32 flips=+$flips(\$arg1):u32"
# Before 5.11 the function also gets the domain flag of the kind of placement.
case $(uname -r) in
5.10.*) probe "p:huddle/select select_task_rq_fair prev=\$arg2:s32 kind=\$arg3:s32 flags=\$arg4:s32 $fields" ;;
*) probe "p:huddle/select select_task_rq_fair prev=\$arg2:s32 flags=\$arg3:s32 $fields" ;;
esac
probe 'r256:huddle/selected select_task_rq_fair cpu=$retval:s32'
# What the steps ask of a CPU; where that is part of its callers, what they and the entry rule ask.
if grep -q ' choose_idle_cpu$' /proc/kallsyms; then
    probe 'p:huddle/choose choose_idle_cpu cpu=$arg1:s32'
    probe 'r256:huddle/idle choose_idle_cpu idle=$retval:u8'
else
    probe 'p:huddle/look available_idle_cpu cpu=$arg1:s32'
    probe 'r256:huddle/idle available_idle_cpu idle=$retval:s32'
fi

echo 0 > tracing_on
echo mono > trace_clock
echo 6144 > buffer_size_kb
echo 0 > options/function-trace 2> /dev/null
for event in switch waking wakeup wakeup_new migrate_task process_fork process_exec process_exit; do
    echo 1 > "events/sched/sched_$event/enable"
done
echo 1 > events/huddle/enable

# record NAME MS BEFORE ARGUMENT...: a load, and MS of it from BEFORE seconds after its start on.
record() {
    name=$1 window=$2 before=$3
    shift 3
    echo "$name: guest-load $*" >&2
    echo > trace
    [ "$before" != 0 ] || echo 1 > tracing_on
    guest-load "$@" > /tmp/load &
    [ "$before" = 0 ] || sleep "$before"
    echo 1 > tracing_on
    sleep "$window"
    echo 0 > tracing_on
    wait
    echo "## kernel=$(uname -r) load=$name arguments=$*"
    grep -h '^overrun: [1-9]' per_cpu/cpu*/stats | sed 's/^/## lost /'
    awk '$NF > 0 && NF == 3 { print "## missed " $1 " " $3 }' kprobe_profile
    # The columns are wide with blanks.
    sed 's/^ *//' trace | grep -v '^#'
    echo "## end $(cat /tmp/load)"
}
