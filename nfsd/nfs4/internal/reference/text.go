package main

const intro = `# NFS: what is supported, and how to mount it

Made by ` + "`go generate ./nfsd/nfs4`" + ` from the tables by which the server executes requests; don't edit.

A node serves NFSv4.1 and NFSv4.2 on the addresses in ` + "`listen.nfs`" + ` (TCP), with the user and groups that the client
says (AUTH_SYS). The root of every node is a read-only directory that lists the volumes. Each volume is a file system of
its own: ` + "`df`" + ` shows it apart, and hard links and renames stay within it. It does not matter which node a client
mounts: files, inode numbers, handles, times and locks are the same on all.

Other versions of the program are PROG_MISMATCH, minor versions other than 1 and 2 NFS4ERR_MINOR_VERS_MISMATCH. Other
flavors of credential than AUTH_SYS and AUTH_NONE (who is nobody) are refused at once with AUTH_BADCRED.
`

const operationsHead = `
## Operations

NOTSUPP: the operation is legal and refused with NFS4ERR_NOTSUPP, upon which a client does without. Illegal: the minor
version has no such operation, and the answer is NFS4ERR_OP_ILLEGAL, as it is for all numbers that are not listed.

| operation | 4.1 | 4.2 | |
|---|---|---|---|
`

const attributesHead = `
## Attributes

A client that asks for others gets those that are there; setting others is NFS4ERR_ATTRNOTSUPP.

| attribute | 4.1 | 4.2 | |
|---|---|---|---|
`

const missing = `
## What is not supported, and what a client sees then

| | what a client sees |
|---|---|
| NFSv3, NFSv4.0 | the mount fails. Without ` + "`vers=`" + `, Linux finds 4.2 by itself |
| Kerberos, TLS | mounts with ` + "`sec=krb5`" + ` or ` + "`xprtsec=tls`" + ` fail; others are not delayed by the client's asking for it |
| root squashing, exports | there are none: every client reaches every volume, and its root is root |
| delegations | each open and close is a request (a small file that was never read: OPEN, READ, CLOSE); files are checked for changes at each open |
| pNFS | all data goes through the node that is mounted. Spread clients over the nodes |
| callbacks | a process that waits for a lock gets it up to 30 s after it is free |
| ACLs | ` + "`nfs4_getfacl`" + ` and ` + "`nfs4_setfacl`" + `: operation not supported. Modes hold |
| security labels | all files of a mount have one SELinux context |
| quotas, snapshots | none |
| copies between servers, asynchronous copies | ` + "`cp`" + ` reads and writes; within the cluster, COPY and CLONE work |
| names that are not UTF-8, or of more than 255 bytes | invalid argument, name too long |
| users with more than 16 groups | AUTH_SYS carries 16. With ` + "`nfs.group_lookup`" + `, the node asks its own user database |
| users and groups by name | numbers only, which is what Linux sends with ` + "`sec=sys`" + `; the same user must have the same number on all clients |
| floating addresses | see below: a client can't follow when its node dies for good |

## Mount options

    mount -t nfs4 -o vers=4.2,nconnect=4 NODE:/VOLUME /mnt

For all: keep ` + "`hard`" + ` (the default). With ` + "`soft`" + ` or ` + "`softerr`" + `, a pause in which nodes agree on a new leader can
become an I/O error, and lost writes with it. Leave ` + "`rsize`" + ` and ` + "`wsize`" + ` out: 1 MiB is agreed on. ` + "`nconnect`" + `
spreads one session over several connections, which helps from about 10 Gbit/s on. ` + "`sync`" + ` and ` + "`noac`" + ` make
everything slow and are not needed for safety. ` + "`max_connect`" + ` and ` + "`trunkdiscovery`" + ` do nothing: to a client, nodes
are different servers. Mount one node on a client, not several: two mounts share no cache, and locks through one are
another client's locks to the other.

Machines with equal host names (clones, containers) must have different ` + "`nfs4_unique_id`" + `s (module option of nfs),
or they evict each other; the node logs when that may be so.
`

const mounting = `
### Datasets: much read, seldom written

    mount -t nfs4 -o vers=4.2,ro,nconnect=8,nocto,actimeo=3600 NODE:/main/datasets /data

With ` + "`actimeo=3600`" + `, a client believes for an hour what it knows of attributes, names and cached data: use it only for
what is not changed in place. OPEN and CLOSE of each file remain, so pack small samples into larger files. Large
sequential reads fill the connection by themselves; raise the client's ` + "`read_ahead_kb`" + ` (` + "`/sys/class/bdi`" + `) to
16384 or so if one stream has to. ` + "`fsc`" + ` with cachefilesd keeps data on the client's disk for the next epoch.

### Checkpoints: large files, written at once, seldom read

    hawser class set /main/checkpoints consistency=relaxed copies=2
    mount -t nfs4 -o vers=4.2,nconnect=8 NODE:/main/checkpoints /ckpt

In a relaxed directory, data is sent to the disks early and committed with COMMIT, so that a large write costs a few
commits. What fsync or close have returned for is on as many disks as the class has copies, and survives that all
nodes lose power. What is not yet committed is lost with the node, and the client, which still has it, writes it again
by itself. Write under a temporary name, fsync, rename: others see all or nothing. Who opens a file sees what was there
when another one closed it; readers on other nodes that have it open may see a state that is up to 2 s old.

### Home directories: everything

    mount -t nfs4 -o vers=4.2 NODE:/main/home /home

With no other options, and in a strict directory (the default): what a client has closed, another sees at its next open;
locks, O_EXCL and O_APPEND of one client at a time work as on other NFS servers. For users with more than 16 groups,
set ` + "`nfs.group_lookup`" + `.
`

const restarts = `
## When a node restarts or dies

**A node that the client has not mounted**: the client notices a pause at most. Where that node was the leader of a
volume, the others elect another within seconds (` + "`raft.heartbeat_timeout`" + `); what it has a copy of is read from
others, and new data goes to others.

**The node that the client has mounted restarts**: with ` + "`hard`" + `, processes wait and go on. In detail:

1. The client connects again: at once, after 3 s, and then at growing intervals of up to a minute.
2. Its session is not known any more (BADSESSION), nor is its client id (STALE_CLIENTID). It makes new ones and
   reclaims its opens and locks, which the cluster has kept. Files that were unlinked while they were open are kept for
   five minutes for that.
3. Meanwhile, new opens and locks on this node alone wait (GRACE). Reading, writing and everything else go on, and other
   nodes are not concerned. The grace period ends as soon as all clients that were there before have reclaimed, at the
   latest after ` + "`nfs.grace`" + `. A client that is gone for good makes it last so long, once.
4. Data that was written to a relaxed directory and not yet committed is written again by the client: the write verifier
   has changed.
5. Replies are not kept over a restart. A request that was executed, and whose reply was lost, is executed again: a
   mkdir, link, rename or remove that was under way may then report EEXIST or ENOENT although it has worked. O_EXCL is
   not concerned, nor are reads and writes.

**The node that the client has mounted is away for longer than ` + "`health.fence_after`" + `** (or is cut off from the others
for so long): it is fenced, so that nothing that it still tries has any effect, and the locks of its clients are free
for others. A client whose lock another holds when the node is back has lost it: Linux answers reads and writes under
such a lock with EIO.

**The node that the client has mounted dies for good**: its clients wait until a node with its address is there again.
Addresses do not move to other nodes yet. Nothing that was acknowledged as stable is lost; mount another node:

    umount -f -l /mnt
    mount -t nfs4 OTHERNODE:/VOLUME /mnt

**All nodes lose power**: as a restart of each. Everything that was acknowledged as stable is there.
`
