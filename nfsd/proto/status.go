package proto

import "strconv"

// A Status is an nfsstat4: the outcome of an operation or of a COMPOUND (RFC
// 8881 §15.1, RFC 7862 §11.1, RFC 8276 §8.5). A Status other than OK is an error.
type Status uint32

// The statuses, in the order of their numbers.
const (
	OK                       Status = 0
	ErrPerm                  Status = 1
	ErrNoent                 Status = 2
	ErrIO                    Status = 5
	ErrNxio                  Status = 6
	ErrAccess                Status = 13
	ErrExist                 Status = 17
	ErrXdev                  Status = 18
	ErrNotdir                Status = 20
	ErrIsdir                 Status = 21
	ErrInval                 Status = 22
	ErrFbig                  Status = 27
	ErrNospc                 Status = 28
	ErrRofs                  Status = 30
	ErrMlink                 Status = 31
	ErrNametoolong           Status = 63
	ErrNotempty              Status = 66
	ErrDquot                 Status = 69
	ErrStale                 Status = 70
	ErrBadhandle             Status = 10001
	ErrBadCookie             Status = 10003
	ErrNotsupp               Status = 10004
	ErrToosmall              Status = 10005
	ErrServerfault           Status = 10006
	ErrBadtype               Status = 10007
	ErrDelay                 Status = 10008
	ErrSame                  Status = 10009
	ErrDenied                Status = 10010
	ErrExpired               Status = 10011
	ErrLocked                Status = 10012
	ErrGrace                 Status = 10013
	ErrFhexpired             Status = 10014
	ErrShareDenied           Status = 10015
	ErrWrongsec              Status = 10016
	ErrClidInuse             Status = 10017
	ErrResource              Status = 10018
	ErrMoved                 Status = 10019
	ErrNofilehandle          Status = 10020
	ErrMinorVersMismatch     Status = 10021
	ErrStaleClientid         Status = 10022
	ErrStaleStateid          Status = 10023
	ErrOldStateid            Status = 10024
	ErrBadStateid            Status = 10025
	ErrBadSeqid              Status = 10026
	ErrNotSame               Status = 10027
	ErrLockRange             Status = 10028
	ErrSymlink               Status = 10029
	ErrRestorefh             Status = 10030
	ErrLeaseMoved            Status = 10031
	ErrAttrnotsupp           Status = 10032
	ErrNoGrace               Status = 10033
	ErrReclaimBad            Status = 10034
	ErrReclaimConflict       Status = 10035
	ErrBadxdr                Status = 10036
	ErrLocksHeld             Status = 10037
	ErrOpenmode              Status = 10038
	ErrBadowner              Status = 10039
	ErrBadchar               Status = 10040
	ErrBadname               Status = 10041
	ErrBadRange              Status = 10042
	ErrLockNotsupp           Status = 10043
	ErrOpIllegal             Status = 10044
	ErrDeadlock              Status = 10045
	ErrFileOpen              Status = 10046
	ErrAdminRevoked          Status = 10047
	ErrCBPathDown            Status = 10048
	ErrBadiomode             Status = 10049
	ErrBadlayout             Status = 10050
	ErrBadSessionDigest      Status = 10051
	ErrBadsession            Status = 10052
	ErrBadslot               Status = 10053
	ErrCompleteAlready       Status = 10054
	ErrConnNotBoundToSession Status = 10055
	ErrDelegAlreadyWanted    Status = 10056
	ErrBackChanBusy          Status = 10057
	ErrLayouttrylater        Status = 10058
	ErrLayoutunavailable     Status = 10059
	ErrNomatchingLayout      Status = 10060
	ErrRecallconflict        Status = 10061
	ErrUnknownLayouttype     Status = 10062
	ErrSeqMisordered         Status = 10063
	ErrSequencePos           Status = 10064
	ErrReqTooBig             Status = 10065
	ErrRepTooBig             Status = 10066
	ErrRepTooBigToCache      Status = 10067
	ErrRetryUncachedRep      Status = 10068
	ErrUnsafeCompound        Status = 10069
	ErrTooManyOps            Status = 10070
	ErrOpNotInSession        Status = 10071
	ErrHashAlgUnsupp         Status = 10072
	ErrClientidBusy          Status = 10074
	ErrPNFSIOHole            Status = 10075
	ErrSeqFalseRetry         Status = 10076
	ErrBadHighSlot           Status = 10077
	ErrDeadsession           Status = 10078
	ErrEncrAlgUnsupp         Status = 10079
	ErrPNFSNoLayout          Status = 10080
	ErrNotOnlyOp             Status = 10081
	ErrWrongCred             Status = 10082
	ErrWrongType             Status = 10083
	ErrDirdelegUnavail       Status = 10084
	ErrRejectDeleg           Status = 10085
	ErrReturnconflict        Status = 10086
	ErrDelegRevoked          Status = 10087
	ErrPartnerNotsupp        Status = 10088
	ErrPartnerNoAuth         Status = 10089
	ErrUnionNotsupp          Status = 10090
	ErrOffloadDenied         Status = 10091
	ErrWrongLFS              Status = 10092
	ErrBadlabel              Status = 10093
	ErrOffloadNoReqs         Status = 10094
	ErrNoxattr               Status = 10095
	ErrXattr2big             Status = 10096
)

var statusName = map[Status]string{
	OK:                       "NFS4_OK",
	ErrPerm:                  "NFS4ERR_PERM",
	ErrNoent:                 "NFS4ERR_NOENT",
	ErrIO:                    "NFS4ERR_IO",
	ErrNxio:                  "NFS4ERR_NXIO",
	ErrAccess:                "NFS4ERR_ACCESS",
	ErrExist:                 "NFS4ERR_EXIST",
	ErrXdev:                  "NFS4ERR_XDEV",
	ErrNotdir:                "NFS4ERR_NOTDIR",
	ErrIsdir:                 "NFS4ERR_ISDIR",
	ErrInval:                 "NFS4ERR_INVAL",
	ErrFbig:                  "NFS4ERR_FBIG",
	ErrNospc:                 "NFS4ERR_NOSPC",
	ErrRofs:                  "NFS4ERR_ROFS",
	ErrMlink:                 "NFS4ERR_MLINK",
	ErrNametoolong:           "NFS4ERR_NAMETOOLONG",
	ErrNotempty:              "NFS4ERR_NOTEMPTY",
	ErrDquot:                 "NFS4ERR_DQUOT",
	ErrStale:                 "NFS4ERR_STALE",
	ErrBadhandle:             "NFS4ERR_BADHANDLE",
	ErrBadCookie:             "NFS4ERR_BAD_COOKIE",
	ErrNotsupp:               "NFS4ERR_NOTSUPP",
	ErrToosmall:              "NFS4ERR_TOOSMALL",
	ErrServerfault:           "NFS4ERR_SERVERFAULT",
	ErrBadtype:               "NFS4ERR_BADTYPE",
	ErrDelay:                 "NFS4ERR_DELAY",
	ErrSame:                  "NFS4ERR_SAME",
	ErrDenied:                "NFS4ERR_DENIED",
	ErrExpired:               "NFS4ERR_EXPIRED",
	ErrLocked:                "NFS4ERR_LOCKED",
	ErrGrace:                 "NFS4ERR_GRACE",
	ErrFhexpired:             "NFS4ERR_FHEXPIRED",
	ErrShareDenied:           "NFS4ERR_SHARE_DENIED",
	ErrWrongsec:              "NFS4ERR_WRONGSEC",
	ErrClidInuse:             "NFS4ERR_CLID_INUSE",
	ErrResource:              "NFS4ERR_RESOURCE",
	ErrMoved:                 "NFS4ERR_MOVED",
	ErrNofilehandle:          "NFS4ERR_NOFILEHANDLE",
	ErrMinorVersMismatch:     "NFS4ERR_MINOR_VERS_MISMATCH",
	ErrStaleClientid:         "NFS4ERR_STALE_CLIENTID",
	ErrStaleStateid:          "NFS4ERR_STALE_STATEID",
	ErrOldStateid:            "NFS4ERR_OLD_STATEID",
	ErrBadStateid:            "NFS4ERR_BAD_STATEID",
	ErrBadSeqid:              "NFS4ERR_BAD_SEQID",
	ErrNotSame:               "NFS4ERR_NOT_SAME",
	ErrLockRange:             "NFS4ERR_LOCK_RANGE",
	ErrSymlink:               "NFS4ERR_SYMLINK",
	ErrRestorefh:             "NFS4ERR_RESTOREFH",
	ErrLeaseMoved:            "NFS4ERR_LEASE_MOVED",
	ErrAttrnotsupp:           "NFS4ERR_ATTRNOTSUPP",
	ErrNoGrace:               "NFS4ERR_NO_GRACE",
	ErrReclaimBad:            "NFS4ERR_RECLAIM_BAD",
	ErrReclaimConflict:       "NFS4ERR_RECLAIM_CONFLICT",
	ErrBadxdr:                "NFS4ERR_BADXDR",
	ErrLocksHeld:             "NFS4ERR_LOCKS_HELD",
	ErrOpenmode:              "NFS4ERR_OPENMODE",
	ErrBadowner:              "NFS4ERR_BADOWNER",
	ErrBadchar:               "NFS4ERR_BADCHAR",
	ErrBadname:               "NFS4ERR_BADNAME",
	ErrBadRange:              "NFS4ERR_BAD_RANGE",
	ErrLockNotsupp:           "NFS4ERR_LOCK_NOTSUPP",
	ErrOpIllegal:             "NFS4ERR_OP_ILLEGAL",
	ErrDeadlock:              "NFS4ERR_DEADLOCK",
	ErrFileOpen:              "NFS4ERR_FILE_OPEN",
	ErrAdminRevoked:          "NFS4ERR_ADMIN_REVOKED",
	ErrCBPathDown:            "NFS4ERR_CB_PATH_DOWN",
	ErrBadiomode:             "NFS4ERR_BADIOMODE",
	ErrBadlayout:             "NFS4ERR_BADLAYOUT",
	ErrBadSessionDigest:      "NFS4ERR_BAD_SESSION_DIGEST",
	ErrBadsession:            "NFS4ERR_BADSESSION",
	ErrBadslot:               "NFS4ERR_BADSLOT",
	ErrCompleteAlready:       "NFS4ERR_COMPLETE_ALREADY",
	ErrConnNotBoundToSession: "NFS4ERR_CONN_NOT_BOUND_TO_SESSION",
	ErrDelegAlreadyWanted:    "NFS4ERR_DELEG_ALREADY_WANTED",
	ErrBackChanBusy:          "NFS4ERR_BACK_CHAN_BUSY",
	ErrLayouttrylater:        "NFS4ERR_LAYOUTTRYLATER",
	ErrLayoutunavailable:     "NFS4ERR_LAYOUTUNAVAILABLE",
	ErrNomatchingLayout:      "NFS4ERR_NOMATCHING_LAYOUT",
	ErrRecallconflict:        "NFS4ERR_RECALLCONFLICT",
	ErrUnknownLayouttype:     "NFS4ERR_UNKNOWN_LAYOUTTYPE",
	ErrSeqMisordered:         "NFS4ERR_SEQ_MISORDERED",
	ErrSequencePos:           "NFS4ERR_SEQUENCE_POS",
	ErrReqTooBig:             "NFS4ERR_REQ_TOO_BIG",
	ErrRepTooBig:             "NFS4ERR_REP_TOO_BIG",
	ErrRepTooBigToCache:      "NFS4ERR_REP_TOO_BIG_TO_CACHE",
	ErrRetryUncachedRep:      "NFS4ERR_RETRY_UNCACHED_REP",
	ErrUnsafeCompound:        "NFS4ERR_UNSAFE_COMPOUND",
	ErrTooManyOps:            "NFS4ERR_TOO_MANY_OPS",
	ErrOpNotInSession:        "NFS4ERR_OP_NOT_IN_SESSION",
	ErrHashAlgUnsupp:         "NFS4ERR_HASH_ALG_UNSUPP",
	ErrClientidBusy:          "NFS4ERR_CLIENTID_BUSY",
	ErrPNFSIOHole:            "NFS4ERR_PNFS_IO_HOLE",
	ErrSeqFalseRetry:         "NFS4ERR_SEQ_FALSE_RETRY",
	ErrBadHighSlot:           "NFS4ERR_BAD_HIGH_SLOT",
	ErrDeadsession:           "NFS4ERR_DEADSESSION",
	ErrEncrAlgUnsupp:         "NFS4ERR_ENCR_ALG_UNSUPP",
	ErrPNFSNoLayout:          "NFS4ERR_PNFS_NO_LAYOUT",
	ErrNotOnlyOp:             "NFS4ERR_NOT_ONLY_OP",
	ErrWrongCred:             "NFS4ERR_WRONG_CRED",
	ErrWrongType:             "NFS4ERR_WRONG_TYPE",
	ErrDirdelegUnavail:       "NFS4ERR_DIRDELEG_UNAVAIL",
	ErrRejectDeleg:           "NFS4ERR_REJECT_DELEG",
	ErrReturnconflict:        "NFS4ERR_RETURNCONFLICT",
	ErrDelegRevoked:          "NFS4ERR_DELEG_REVOKED",
	ErrPartnerNotsupp:        "NFS4ERR_PARTNER_NOTSUPP",
	ErrPartnerNoAuth:         "NFS4ERR_PARTNER_NO_AUTH",
	ErrUnionNotsupp:          "NFS4ERR_UNION_NOTSUPP",
	ErrOffloadDenied:         "NFS4ERR_OFFLOAD_DENIED",
	ErrWrongLFS:              "NFS4ERR_WRONG_LFS",
	ErrBadlabel:              "NFS4ERR_BADLABEL",
	ErrOffloadNoReqs:         "NFS4ERR_OFFLOAD_NO_REQS",
	ErrNoxattr:               "NFS4ERR_NOXATTR",
	ErrXattr2big:             "NFS4ERR_XATTR2BIG",
}

// String returns the RFC's name of the status, such as NFS4ERR_NOENT.
func (s Status) String() string {
	if n, ok := statusName[s]; ok {
		return n
	}
	return "NFS4ERR_" + strconv.Itoa(int(s))
}

// Error returns the RFC's name of the status.
func (s Status) Error() string { return s.String() }

// Err returns nil for OK and s otherwise.
func (s Status) Err() error {
	if s == OK {
		return nil
	}
	return s
}
