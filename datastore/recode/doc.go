// Package recode gives blobs another form: copies become shards when they are
// cold, and shards copies again, while their files are in use.
//
// A blob is read whole, and verified against the checksum that its record has;
// its new form is put under a new blob id; and one command makes it the blob's.
// What stores have of the old form is garbage from then on. Whatever is
// interrupted leaves either form, and at most a new one that nothing refers to,
// which the collector finds: so each step may be repeated, by anyone.
//
// The state machine lists the blobs that are to be coded, so that the list is
// what a new leader goes on with.
package recode
