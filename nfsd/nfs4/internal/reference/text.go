package main

const intro = `# NFS: what is supported, and how to mount it

Made by ` + "`go generate ./nfsd/nfs4`" + ` from the tables by which the server executes requests; don't edit.

A node serves NFSv4.0, 4.1 and 4.2 on the addresses in ` + "`listen.nfs`" + ` (TCP), with the user and groups that the client
says (AUTH_SYS). The root of every node is a read-only directory that lists the volumes. Each volume is a file system of
its own: ` + "`df`" + ` shows it apart, and hard links and renames stay within it. It does not matter which node a client
mounts: files, inode numbers, handles, times and locks are the same on all.

Other versions of the program are PROG_MISMATCH, minor versions above 2 NFS4ERR_MINOR_VERS_MISMATCH. Other
flavors of credential than AUTH_SYS and AUTH_NONE (who is nobody) are refused at once with AUTH_BADCRED.
`

const operationsHead = `
## Operations

NOTSUPP: the operation is legal and refused with NFS4ERR_NOTSUPP, upon which a client does without. Illegal: the minor
version has no such operation, and the answer is NFS4ERR_OP_ILLEGAL, as it is for all numbers that are not listed.

| operation | 4.0 | 4.1 | 4.2 | |
|---|---|---|---|---|
`

const attributesHead = `
## Attributes

A client that asks for others gets those that are there; setting others is NFS4ERR_ATTRNOTSUPP.

| attribute | 4.0 | 4.1 | 4.2 | |
|---|---|---|---|---|
`

const missing = `
## What is not supported, and what a client sees then

| | what a client sees |
|---|---|
| NFSv3 | the mount fails. Without ` + "`vers=`" + `, Linux finds 4.2 by itself |
| Kerberos, TLS | mounts with ` + "`sec=krb5`" + ` or ` + "`xprtsec=tls`" + ` fail; others are not delayed by the client's asking for it |
| root squashing, exports | there are none: every client reaches every volume, and its root is root |
| delegations to write, of directories, in strict directories, with 4.0 | each open and close is a request (a small file that was never read: OPEN, READ, CLOSE); files are checked for changes at each open. So it is everywhere unless they are switched on: see below |
| pNFS | all data goes through the node that is mounted. Spread clients over the nodes |
| CB_NOTIFY_LOCK with 4.0, or for who waited at a node that died | a process that waits for a lock gets it up to 30 s after it is free |
| ACLs | ` + "`nfs4_getfacl`" + ` and ` + "`nfs4_setfacl`" + `: operation not supported. Modes hold |
| security labels | all files of a mount have one SELinux context |
| quotas, snapshots | none |
| copies between clusters | ` + "`cp`" + ` reads and writes; within the cluster, COPY and CLONE work |
| names that are not UTF-8, or of more than 255 bytes | invalid argument, name too long |
| users with more than 16 groups | AUTH_SYS carries 16. With ` + "`nfs.group_lookup`" + `, the node asks its own user database |
| users and groups by name | numbers, which is what Linux sends and expects with ` + "`sec=sys`" + `; the same user must have the same number on all clients. A client may set an owner by name, if ` + "`nfs.domain`" + ` is its domain and the nodes' user databases know the name |

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
### Other clients

libnfs works from 7.0.0 on, and with it fio's nfs engine; 4.0.0, which Debian 12 has, can list and read, but writes of 64 KiB
and more fail in the client, before anything is sent.

## When a node restarts, stops or dies

What a client takes for "the server" is an identity: a floating address, or a node's own addresses. Client ids and
sessions belong to it and move with it, so that a client goes on with whichever node serves it next. **There is no grace
period, and nothing to reclaim**: no other client waits because a node died.

**A node that the client has not mounted**: the client notices a pause at most. Where that node was the leader of a
volume, the others elect another within seconds (` + "`raft.heartbeat_timeout`" + `); what it has a copy of is read from
others, and new data goes to others.

**The node that serves the client's floating address dies, is cut off or frozen**: another one takes the address after
` + "`health.takeover_after`" + `. It first fences the old node in every volume, so that nothing that this one still tries has
any effect; then it reads the clients' records, takes the address, and answers. In detail:

1. The client's connection is reset, and it connects again, as a rule within a second or two.
2. It sends each request that was not answered again, with the same session, slot and sequence. What changes
   something is in the log of the volume together with these numbers, and with its result: if it has been executed
   already, it is not executed again, and the first result is the answer. So each operation happens exactly once.
3. Opens for writing, deny modes and locks are in the log as well: they are there, with the same stateids. An open for
   reading is not; its stateid carries a proof that this client had this file open, and is accepted again. The first OPEN
   of a file that the client had open before is given a new stateid beside the old one, since only the client knows
   how far that one had counted. Files that were unlinked while they are open are kept.
4. Data that was written to a relaxed directory and not yet committed is written again by the client: the write verifier
   has changed.
5. Copies between volumes that were under way (COPY with CB_OFFLOAD) are in the log, too: they begin anew, and the
   client is told when they have ended.
6. SEQUENCE says that there is no path for callbacks, and Linux binds its connection to the back channel.
7. Who waits for a lock is known to one node. Before an address is moved in order, those who wait are told to ask again, and
   are told by the next node when the lock is free. After a node's death they ask by themselves, Linux every 30 s at the
   latest: the lock comes so much later, but nobody gets it who must not have it.
8. NFSv4.0 has no sessions. A request that is repeated is known by the client's address and port and by its RPC number, all
   of which Linux keeps. The requests of open-owners and lock-owners are numbered; a node that has just taken over
   takes any number once, and counts from there.

The old node holds back its replies as soon as it is no longer certain that it still serves the address, and drops them
when it learns that it does not; so a client never hears of an operation from a node whose word does not count.

**Deny modes**, which Linux clients do not use, are never granted against an open that is recorded, whatever happens. They can be
refused with NFS4ERR_SHARE_DENIED although nothing is in their way any more: while another OPEN of the file is under way that
is refused in the end; for a tenth of a second after a client of another node has closed the file, if that was open for
writing and denied nothing, since such records are deleted together; and if that node died within this time, until
that client opens the file again or ends. To be exact there would cost a commit for each CLOSE.

**A node that stops** (` + "`systemctl stop`" + `, SIGTERM) or whose address is moved lets its requests end, and hands its floating
addresses over before it goes: the clients' next requests are answered by another node.

**A client that mounts a node's own address** waits while that node is away, and goes on in the same way when it is
back; a restart of a node is a take-over from itself. If the node is away for longer than ` + "`health.fence_after`" + `, the
opens and locks of these clients are released, for others may need them: then they are lost, and Linux answers reads
and writes under such a lock with EIO. Mount floating addresses.

**A client that is silent** for longer than its lease (` + "`nfs.lease`" + `) keeps what it holds until another client needs it, on
whatever node, for half an hour at most.

**All nodes lose power**: as a restart of each. Everything that was acknowledged as stable is there.
`
