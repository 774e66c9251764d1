// Package proto has the numbers of NFSv4.1 and NFSv4.2 that the server and the
// client share: operations, statuses, attributes, flags and limits. They are
// those of RFC 7863 (NFSv4.2, which includes NFSv4.1), RFC 8276 (extended
// attributes), RFC 8275 (umask) and RFC 9754 (open arguments). Names are the
// RFCs', without the prefix that the type or the group stands for.
package proto
