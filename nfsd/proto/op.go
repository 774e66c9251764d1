package proto

import "strconv"

// An Op is the number of an operation in a COMPOUND (nfs_opnum4: RFC 7863, RFC 8276 §8.6).
type Op uint32

// The operations. Those from OpBackchannelCtl on are of NFSv4.1, those from
// OpAllocate on of NFSv4.2.
const (
	OpAccess             Op = 3
	OpClose              Op = 4
	OpCommit             Op = 5
	OpCreate             Op = 6
	OpDelegpurge         Op = 7
	OpDelegreturn        Op = 8
	OpGetattr            Op = 9
	OpGetfh              Op = 10
	OpLink               Op = 11
	OpLock               Op = 12
	OpLockt              Op = 13
	OpLocku              Op = 14
	OpLookup             Op = 15
	OpLookupp            Op = 16
	OpNverify            Op = 17
	OpOpen               Op = 18
	OpOpenattr           Op = 19
	OpOpenConfirm        Op = 20
	OpOpenDowngrade      Op = 21
	OpPutfh              Op = 22
	OpPutpubfh           Op = 23
	OpPutrootfh          Op = 24
	OpRead               Op = 25
	OpReaddir            Op = 26
	OpReadlink           Op = 27
	OpRemove             Op = 28
	OpRename             Op = 29
	OpRenew              Op = 30
	OpRestorefh          Op = 31
	OpSavefh             Op = 32
	OpSecinfo            Op = 33
	OpSetattr            Op = 34
	OpSetclientid        Op = 35
	OpSetclientidConfirm Op = 36
	OpVerify             Op = 37
	OpWrite              Op = 38
	OpReleaseLockowner   Op = 39
	OpBackchannelCtl     Op = 40
	OpBindConnToSession  Op = 41
	OpExchangeID         Op = 42
	OpCreateSession      Op = 43
	OpDestroySession     Op = 44
	OpFreeStateid        Op = 45
	OpGetDirDelegation   Op = 46
	OpGetdeviceinfo      Op = 47
	OpGetdevicelist      Op = 48
	OpLayoutcommit       Op = 49
	OpLayoutget          Op = 50
	OpLayoutreturn       Op = 51
	OpSecinfoNoName      Op = 52
	OpSequence           Op = 53
	OpSetSSV             Op = 54
	OpTestStateid        Op = 55
	OpWantDelegation     Op = 56
	OpDestroyClientid    Op = 57
	OpReclaimComplete    Op = 58
	OpAllocate           Op = 59
	OpCopy               Op = 60
	OpCopyNotify         Op = 61
	OpDeallocate         Op = 62
	OpIOAdvise           Op = 63
	OpLayouterror        Op = 64
	OpLayoutstats        Op = 65
	OpOffloadCancel      Op = 66
	OpOffloadStatus      Op = 67
	OpReadPlus           Op = 68
	OpSeek               Op = 69
	OpWriteSame          Op = 70
	OpClone              Op = 71
	OpGetxattr           Op = 72
	OpSetxattr           Op = 73
	OpListxattrs         Op = 74
	OpRemovexattr        Op = 75
	OpIllegal            Op = 10044
)

// The highest operation of each minor version.
const (
	MaxOp40 = OpReleaseLockowner
	MaxOp41 = OpReclaimComplete
	MaxOp42 = OpRemovexattr
)

var opName = [MaxOp42 + 1]string{
	OpAccess:             "ACCESS",
	OpClose:              "CLOSE",
	OpCommit:             "COMMIT",
	OpCreate:             "CREATE",
	OpDelegpurge:         "DELEGPURGE",
	OpDelegreturn:        "DELEGRETURN",
	OpGetattr:            "GETATTR",
	OpGetfh:              "GETFH",
	OpLink:               "LINK",
	OpLock:               "LOCK",
	OpLockt:              "LOCKT",
	OpLocku:              "LOCKU",
	OpLookup:             "LOOKUP",
	OpLookupp:            "LOOKUPP",
	OpNverify:            "NVERIFY",
	OpOpen:               "OPEN",
	OpOpenattr:           "OPENATTR",
	OpOpenConfirm:        "OPEN_CONFIRM",
	OpOpenDowngrade:      "OPEN_DOWNGRADE",
	OpPutfh:              "PUTFH",
	OpPutpubfh:           "PUTPUBFH",
	OpPutrootfh:          "PUTROOTFH",
	OpRead:               "READ",
	OpReaddir:            "READDIR",
	OpReadlink:           "READLINK",
	OpRemove:             "REMOVE",
	OpRename:             "RENAME",
	OpRenew:              "RENEW",
	OpRestorefh:          "RESTOREFH",
	OpSavefh:             "SAVEFH",
	OpSecinfo:            "SECINFO",
	OpSetattr:            "SETATTR",
	OpSetclientid:        "SETCLIENTID",
	OpSetclientidConfirm: "SETCLIENTID_CONFIRM",
	OpVerify:             "VERIFY",
	OpWrite:              "WRITE",
	OpReleaseLockowner:   "RELEASE_LOCKOWNER",
	OpBackchannelCtl:     "BACKCHANNEL_CTL",
	OpBindConnToSession:  "BIND_CONN_TO_SESSION",
	OpExchangeID:         "EXCHANGE_ID",
	OpCreateSession:      "CREATE_SESSION",
	OpDestroySession:     "DESTROY_SESSION",
	OpFreeStateid:        "FREE_STATEID",
	OpGetDirDelegation:   "GET_DIR_DELEGATION",
	OpGetdeviceinfo:      "GETDEVICEINFO",
	OpGetdevicelist:      "GETDEVICELIST",
	OpLayoutcommit:       "LAYOUTCOMMIT",
	OpLayoutget:          "LAYOUTGET",
	OpLayoutreturn:       "LAYOUTRETURN",
	OpSecinfoNoName:      "SECINFO_NO_NAME",
	OpSequence:           "SEQUENCE",
	OpSetSSV:             "SET_SSV",
	OpTestStateid:        "TEST_STATEID",
	OpWantDelegation:     "WANT_DELEGATION",
	OpDestroyClientid:    "DESTROY_CLIENTID",
	OpReclaimComplete:    "RECLAIM_COMPLETE",
	OpAllocate:           "ALLOCATE",
	OpCopy:               "COPY",
	OpCopyNotify:         "COPY_NOTIFY",
	OpDeallocate:         "DEALLOCATE",
	OpIOAdvise:           "IO_ADVISE",
	OpLayouterror:        "LAYOUTERROR",
	OpLayoutstats:        "LAYOUTSTATS",
	OpOffloadCancel:      "OFFLOAD_CANCEL",
	OpOffloadStatus:      "OFFLOAD_STATUS",
	OpReadPlus:           "READ_PLUS",
	OpSeek:               "SEEK",
	OpWriteSame:          "WRITE_SAME",
	OpClone:              "CLONE",
	OpGetxattr:           "GETXATTR",
	OpSetxattr:           "SETXATTR",
	OpListxattrs:         "LISTXATTRS",
	OpRemovexattr:        "REMOVEXATTR",
}

// String returns the RFC's name of the operation without its OP_.
func (o Op) String() string {
	if o <= MaxOp42 && opName[o] != "" {
		return opName[o]
	}
	if o == OpIllegal {
		return "ILLEGAL"
	}
	return "OP_" + strconv.Itoa(int(o))
}

// A CBOp is the number of an operation in a CB_COMPOUND (nfs_cb_opnum4: RFC 7863).
type CBOp uint32

// The callback operations.
const (
	CBGetattr            CBOp = 3
	CBRecall             CBOp = 4
	CBLayoutrecall       CBOp = 5
	CBNotify             CBOp = 6
	CBPushDeleg          CBOp = 7
	CBRecallAny          CBOp = 8
	CBRecallableObjAvail CBOp = 9
	CBRecallSlot         CBOp = 10
	CBSequence           CBOp = 11
	CBWantsCancelled     CBOp = 12
	CBNotifyLock         CBOp = 13
	CBNotifyDeviceid     CBOp = 14
	CBOffload            CBOp = 15
	CBIllegal            CBOp = 10044
)
