#!/bin/busybox sh
# shellcheck shell=dash
# Copies what a kernel shows of its CPUs and its scheduler into the folder $1, by path; the log goes into $1/dmesg.
# A tar of /sys would pad every file: they claim a page each. One process copies them all: an emulated fork is dear.
to=$1
mkdir -p "$to"
{
    find /sys/devices/system/cpu -maxdepth 1 -type f
    find /sys/devices/system/cpu/cpu[0-9]* -type f \
        \( -path '*/topology/*' -o -path '*/cache/*' -o -name cpu_capacity -o -name online \)
    find /sys/devices/system/node -type f \
        \( -name cpulist -o -name cpumap -o -name distance -o -name online -o -name possible -o -name 'has_*' \)
    find /sys/kernel/debug/sched/domains /proc/sys/kernel/sched_domain -type f
    ls /boot/config-* /proc/schedstat /proc/cpuinfo /proc/version /proc/cmdline /proc/sys/kernel/osrelease
} 2> /dev/null | xargs cp --parents -t "$to" 2> /dev/null
dmesg > "$to/dmesg"
