// Package xdr encodes and decodes XDR (RFC 4506) by hand: an Encoder that
// appends to a byte slice and can carry payload that it does not copy, and a
// Decoder over a byte slice with a sticky error. There is no reflection and no
// allocation beyond the buffers.
package xdr
