// Package kclient runs stock Linux kernels as NFS clients on one machine, for
// tests and by hand.
//
// A Lab is a set of hosts, each a network namespace with a private address, on
// one bridge whose cables can be pulled. A Guest is a Linux kernel that runs
// as a process (Debian's user-mode-linux), plugged into the lab with an address
// of its own. It boots in about a second with this machine's files as its
// read-only root, so every program installed here runs in it.
//
// Labs and guests need root and the packages user-mode-linux, kmod, iproute2
// and nfs-common. Everything they start ends with them.
package kclient
