package cluster

import "strconv"

// An Errno is an error of the file system or of the data path that travels
// over the wire, through the Raft log and into protocol statuses. Numbers are
// append-only. The zero value is success and is never returned as an error.
type Errno uint16

// The errors. Each file-system error means what errno(3) says of its namesake.
const (
	OK           Errno = iota
	EPERM              // not the owner, and not privileged
	ENOENT             // no such name
	EIO                // data is lost or unreadable
	EACCES             // permission denied by mode bits
	EEXIST             // the name exists
	EXDEV              // across volumes
	ENOTDIR            // not a directory
	EISDIR             // is a directory
	EINVAL             // an argument makes no sense
	EFBIG              // beyond the largest file size
	ENOSPC             // no space, or no replica set that can be written
	EROFS              // read-only
	EMLINK             // too many links
	ENAMETOOLONG       // a name of more than MaxName bytes
	ENOTEMPTY          // directory not empty
	EDQUOT             // quota exceeded
	ESTALE             // the inode is gone, or its generation differs
	EBADHANDLE         // a file handle that this cluster did not make
	ENOTSUP            // not supported
	ELOCKED            // a conflicting lock is held
	ELOOP              // a directory would become its own ancestor's child
	ENXIO              // no data or hole beyond the offset (SEEK)
	ENODATA            // no such extended attribute
	EBADNAME           // a name that is not UTF-8, or has '/' or NUL
	ESYMLINK           // is a symbolic link where that is not allowed
	EFENCED            // the writer is fenced: open a new one
	ERETRY             // a replica set changed: write again under a new blob id
	EAGAIN             // no leader or overloaded: try again later
	ECONFLICT          // the compare of a compare-and-swap failed
	EVERSION           // a command or format of a newer version
	ECORRUPT           // a checksum does not match
	ENOBLOB            // the store has no such blob
	EDISK              // the store's disk has failed or is full
	EINTERNAL          // a bug: see the log
	ESHARE             // a share reservation conflicts: an open denies it, or it denies an open
	EREPLAY            // the request is older than what its slot has executed
	numErrno
)

var errnoText = [numErrno]string{
	"success", "operation not permitted", "no such file or directory", "input/output error",
	"permission denied", "file exists", "cross-volume link", "not a directory", "is a directory",
	"invalid argument", "file too large", "no space left", "read-only file system", "too many links",
	"file name too long", "directory not empty", "quota exceeded", "stale file handle",
	"bad file handle", "operation not supported", "locked by another owner",
	"directory would contain itself", "no such data or hole", "no such extended attribute",
	"bad file name", "is a symbolic link", "writer is fenced", "replica set changed", "try again later",
	"changed meanwhile", "newer version", "checksum mismatch", "no such blob", "disk failed or full",
	"internal error", "share reservation conflicts", "request is older than the last one of its slot",
}

// Error returns the error's text.
func (e Errno) Error() string {
	if e < numErrno {
		return errnoText[e]
	}
	return "error " + strconv.Itoa(int(e))
}

// Err returns nil for OK and e otherwise.
func (e Errno) Err() error {
	if e == OK {
		return nil
	}
	return e
}
