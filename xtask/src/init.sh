#!/bin/busybox sh
# shellcheck shell=dash
# First process of a guest: file systems, ports to the host, the command, power off.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TMPDIR=/tmp
mkdir -p /proc /sys /dev /tmp /root /run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf 2> /dev/null
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
ip link set lo up 2> /dev/null
while read -r module; do
    insmod "/guest/$module"
done < /guest/modules

# The device of a port that QEMU calls $1.
port() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        for folder in /sys/class/virtio-ports/*; do
            if [ "$(cat "$folder/name" 2> /dev/null)" = "$1" ]; then
                echo "/dev/${folder##*/}"
                return
            fi
        done
        sleep 1
    done
    echo "guest: no port $1" > /dev/console
    echo /dev/console
}

# Domains that are built again after this line are described in the kernel's log.
echo Y > /sys/kernel/debug/sched/verbose 2> /dev/null
while read -r cpu; do
    echo 0 > "/sys/devices/system/cpu/cpu$cpu/online"
done < /guest/offline
out=$(port out)
err=$(port err)
status=$(port status)
cd /root || exit
sh /guest/command > "$out" 2> "$err" < /dev/null
echo "$?" > "$status"
poweroff -f
