package main

const delegations = `
## Delegations

A client that has a file delegated opens, reads and closes it without asking, and trusts what it has cached, until
it is told that somebody else changes the file. They are off by default:

    nfs: {delegations: read}

switches them on for this node's clients, in all volumes or in those of ` + "`nfs.delegation_volumes`" + `; use the same on all
nodes. They are worth it for many small files that are read again and again and seldom changed, such as source trees,
environments and small datasets: looking at such a file again costs no request at all. Where clients change each other's
files they cost a callback for each change; a file whose delegations were recalled is not delegated again for 30 s.

| | |
|---|---|
| which | to read, in NFSv4.1 and 4.2. There are none to write, none of directories, none in 4.0, and no attributes with them (RFC 9754) |
| where | in relaxed directories. In strict ones there are none: a change would have to wait for every client that has one |
| who | a client that has opened a file for reading, has a working back channel, and has fewer than 16384; nobody may have the file open for writing or deny reading, nor have changed it while it was opened |
| recalled by | everything that moves the change attribute (data, size, mode, owner, times, names, extended attributes), an open for writing, and one that denies reading |

**Through the same node**, the operation that is in the way waits for a tenth of a second, and is answered
NFS4ERR_DELAY then: Linux tries again by itself. The holder's own operations never wait, so that it can write back
what it has to.
**Through another node**, the change is made at once, and the holder hears of it as soon as the node that it has
mounted has applied it, normally within milliseconds. In between it may use what it has cached: that is what relaxed
means. Until it has returned the delegation it is shown the file's attributes as they were, since Linux takes new ones
for its own doing and would keep the data that it has cached. What it may use includes shared locks that Linux keeps
to itself while it has a delegation: a client of another node can get an exclusive lock in this moment, and Linux then
answers the reader with EIO. Where files are locked against clients of other nodes, use strict directories, or leave
delegations off.

A delegation that is not returned within ` + "`nfs.lease`" + `, because its client does not answer or can't be reached, is revoked: what
waits for it goes on, the client is told by SEQUENCE, and Linux opens what it needs anew.

**After a take-over** (a node's death or restart, an address that was moved) all delegations have ended, since nobody
could tell their holders of changes meanwhile. The clients are told with the first reply; Linux opens what it has open
anew, by itself and without an error. For some seconds, in which it finds out what it has, the change attribute of
regular files is left out of what it asks for, but for files that it opens. Only shared locks that it had kept to
itself are lost with them.
`
