#!/bin/sh
# First process of a guest: mounts what a shell needs, loads the NFS client,
# brings up the network, and then runs the commands whose numbers it reads
# from the console, each in the background, reporting the exit status of each.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/shm 2>/dev/null && mount -t tmpfs tmpfs /dev/shm
option() { sed -n "s#.* k_$1=\([^ ]*\).*#\1#p" /proc/cmdline; }
scratch=$(option scratch)
for d in /run /tmp /mnt /var/lib/nfs /root; do mount -t tmpfs tmpfs $d; done
modules=/run/kmod/lib/modules/$(uname -r)
mkdir -p /mnt/nfs /mnt/scratch /mnt/host "$modules"
mount -t hostfs none /mnt/scratch -o "$scratch"
mount -t hostfs -o ro none /mnt/host
mount -t hostfs -o ro none "$modules" -o "$(option modules)"
for m in nfsv4 nfsv3; do modprobe -q -d /run/kmod $m; done
# A frame for which there is no memory stops the user-mode network driver for
# good: it reads the frame to a place that the host can't write to, takes the
# error for one of the device, and sends nothing any more. So frames get a
# sixteenth of the memory for themselves.
echo $(($(sed -n 's/MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo) / 16)) >/proc/sys/vm/min_free_kbytes
ip link set lo up
ip addr add "$(option ip)" dev vec0
ip link set vec0 up
hostname "$(option name)"
stty -echo 2>/dev/null
cd /mnt
echo kclient-ready
while read -r id; do
	(
		sh "/mnt/scratch/$id.cmd" >"/mnt/scratch/$id.out" 2>&1 </dev/null
		status=$?
		sync "/mnt/scratch/$id.out"
		echo "kclient-done $id $status"
	) &
done
echo o >/proc/sysrq-trigger
sleep 5
