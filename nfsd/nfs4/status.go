package nfs4

import (
	"errors"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// statusFenced says that another front-end serves the identity: the request must
// not be answered. It is never sent.
const statusFenced = proto.Status(1<<32 - 3)

// statusOf maps the errors of the file system to NFS statuses. What is missing
// is SERVERFAULT.
var statusOf = map[cluster.Errno]proto.Status{
	cluster.OK:           proto.OK,
	cluster.EPERM:        proto.ErrPerm,
	cluster.ENOENT:       proto.ErrNoent,
	cluster.EIO:          proto.ErrIO,
	cluster.EACCES:       proto.ErrAccess,
	cluster.EEXIST:       proto.ErrExist,
	cluster.EXDEV:        proto.ErrXdev,
	cluster.ENOTDIR:      proto.ErrNotdir,
	cluster.EISDIR:       proto.ErrIsdir,
	cluster.EINVAL:       proto.ErrInval,
	cluster.EFBIG:        proto.ErrFbig,
	cluster.ENOSPC:       proto.ErrNospc,
	cluster.EROFS:        proto.ErrRofs,
	cluster.EMLINK:       proto.ErrMlink,
	cluster.ENAMETOOLONG: proto.ErrNametoolong,
	cluster.ENOTEMPTY:    proto.ErrNotempty,
	cluster.EDQUOT:       proto.ErrDquot,
	cluster.ESTALE:       proto.ErrStale,
	cluster.EBADHANDLE:   proto.ErrBadhandle,
	cluster.ENOTSUP:      proto.ErrNotsupp,
	cluster.ELOCKED:      proto.ErrDenied,
	cluster.ELOOP:        proto.ErrInval, // as rename(2) says it
	cluster.ENXIO:        proto.ErrNxio,
	cluster.ENODATA:      proto.ErrNoxattr,
	cluster.EBADNAME:     proto.ErrBadchar,
	cluster.ESYMLINK:     proto.ErrSymlink,
	cluster.EFENCED:      statusFenced,
	cluster.ESHARE:       proto.ErrShareDenied,
	cluster.ERETRY:       proto.ErrDelay,
	cluster.EAGAIN:       proto.ErrDelay,
	cluster.ECONFLICT:    proto.ErrDelay,
	cluster.ECORRUPT:     proto.ErrIO,
	cluster.ENOBLOB:      proto.ErrIO,
	cluster.EDISK:        proto.ErrIO,
}

// status returns the status for an error of the file system. Errors that are
// no Errno are failures of the cluster, which pass: the client tries again.
func status(err error) proto.Status {
	if err == nil {
		return proto.OK
	}
	var errno cluster.Errno
	if !errors.As(err, &errno) {
		return proto.ErrDelay
	}
	if st, ok := statusOf[errno]; ok {
		return st
	}
	return proto.ErrServerfault
}

// errno returns err's Errno, or OK if it has none.
func errno(err error) cluster.Errno {
	var e cluster.Errno
	errors.As(err, &e)
	return e
}
