package proto

// The RPC program and its procedures (RFC 7863).
const (
	Program        = 100003
	Version        = 4
	ProcNull       = 0
	ProcCompound   = 1
	CBProgram      = 0x40000000
	CBVersion      = 1
	ProcCBNull     = 0
	ProcCBCompound = 1
)

// Sizes of fixed and limits of variable fields, in bytes.
const (
	FHSize        = 128
	VerifierSize  = 8
	OtherSize     = 12
	OpaqueLimit   = 1024
	SessionIDSize = 16
	DeviceIDSize  = 16
)

// The largest values.
const (
	MaxFileLen = 0xffffffffffffffff
	MaxFileOff = 0xfffffffffffffffe
)

// File types (nfs_ftype4).
const (
	TypeReg       = 1
	TypeDir       = 2
	TypeBlk       = 3
	TypeChr       = 4
	TypeLnk       = 5
	TypeSock      = 6
	TypeFIFO      = 7
	TypeAttrDir   = 8
	TypeNamedAttr = 9
)

// Who sets a time (time_how4).
const (
	SetToServerTime = 0
	SetToClientTime = 1
)

// Rights of ACCESS (RFC 8881 §18.1, RFC 8276 §8.5).
const (
	AccessRead    = 0x00000001
	AccessLookup  = 0x00000002
	AccessModify  = 0x00000004
	AccessExtend  = 0x00000008
	AccessDelete  = 0x00000010
	AccessExecute = 0x00000020
	AccessXaread  = 0x00000040
	AccessXawrite = 0x00000080
	AccessXalist  = 0x00000100
)

// Whether file handles expire (fh_expire_type).
const (
	FHPersistent       = 0x00000000
	FHNoexpireWithOpen = 0x00000001
	FHVolatileAny      = 0x00000002
	FHVolMigration     = 0x00000004
	FHVolRename        = 0x00000008
)

// What aclsupport says.
const (
	ACLSupportAllowACL = 0x00000001
	ACLSupportDenyACL  = 0x00000002
	ACLSupportAuditACL = 0x00000004
	ACLSupportAlarmACL = 0x00000008
)

// How the change attribute behaves (change_attr_type4).
const (
	ChangeTypeIsMonotonicIncr        = 0
	ChangeTypeIsVersionCounter       = 1
	ChangeTypeIsVersionCounterNopnfs = 2
	ChangeTypeIsTimeMetadata         = 3
	ChangeTypeIsUndefined            = 4
)

// How durable a write is (stable_how4).
const (
	Unstable = 0
	DataSync = 1
	FileSync = 2
)

// What a range of a file is (data_content4).
const (
	ContentData = 0
	ContentHole = 1
)

// Lock types (nfs_lock_type4).
const (
	ReadLt   = 1
	WriteLt  = 2
	ReadwLt  = 3
	WritewLt = 4
)

// How a file is created (createmode4).
const (
	Unchecked   = 0
	Guarded     = 1
	Exclusive   = 2
	Exclusive41 = 3
)

// Whether OPEN creates (opentype4).
const (
	OpenNoCreate = 0
	OpenCreate   = 1
)

// Share reservations and wishes of OPEN (RFC 8881 §18.16).
const (
	ShareAccessRead                          = 0x00000001
	ShareAccessWrite                         = 0x00000002
	ShareAccessBoth                          = 0x00000003
	ShareDenyNone                            = 0x00000000
	ShareDenyRead                            = 0x00000001
	ShareDenyWrite                           = 0x00000002
	ShareDenyBoth                            = 0x00000003
	ShareAccessWantDelegMask                 = 0xFF00
	ShareAccessWantNoPreference              = 0x0000
	ShareAccessWantReadDeleg                 = 0x0100
	ShareAccessWantWriteDeleg                = 0x0200
	ShareAccessWantAnyDeleg                  = 0x0300
	ShareAccessWantNoDeleg                   = 0x0400
	ShareAccessWantCancel                    = 0x0500
	ShareAccessWantSignalDelegWhenResrcAvail = 0x10000
	ShareAccessWantPushDelegWhenUncontended  = 0x20000
	ShareAccessWantDelegTimestamps           = 0x100000
	ShareAccessWantOpenXorDelegation         = 0x200000
)

// Delegation types (open_delegation_type4; the last two are of RFC 9754).
const (
	OpenDelegateNone            = 0
	OpenDelegateRead            = 1
	OpenDelegateWrite           = 2
	OpenDelegateNoneExt         = 3
	OpenDelegateReadAttrsDeleg  = 4
	OpenDelegateWriteAttrsDeleg = 5
)

// How OPEN names the file (open_claim_type4).
const (
	ClaimNull         = 0
	ClaimPrevious     = 1
	ClaimDelegateCur  = 2
	ClaimDelegatePrev = 3
	ClaimFH           = 4
	ClaimDelegCurFH   = 5
	ClaimDelegPrevFH  = 6
)

// Why there is no delegation (why_no_delegation4).
const (
	WNDNotWanted              = 0
	WNDContention             = 1
	WNDResource               = 2
	WNDNotSuppFtype           = 3
	WNDWriteDelegNotSuppFtype = 4
	WNDNotSuppUpgrade         = 5
	WNDNotSuppDowngrade       = 6
	WNDCancelled              = 7
	WNDIsDir                  = 8
)

// Flags of a reply to OPEN.
const (
	OpenResultConfirm          = 0x00000002
	OpenResultLocktypePosix    = 0x00000004
	OpenResultPreserveUnlinked = 0x00000008
	OpenResultMayNotifyLock    = 0x00000020
)

// Directions in which a client binds a connection (channel_dir_from_client4).
const (
	CDFCFore       = 0x1
	CDFCBack       = 0x2
	CDFCForeOrBoth = 0x3
	CDFCBackOrBoth = 0x7
)

// Directions in which a connection was bound (channel_dir_from_server4).
const (
	CDFSFore = 0x1
	CDFSBack = 0x2
	CDFSBoth = 0x3
)

// Flags of EXCHANGE_ID (RFC 8881 §18.35; the third is of RFC 7862 §14.1).
const (
	ExchgIDFlagSuppMovedRefer   = 0x00000001
	ExchgIDFlagSuppMovedMigr    = 0x00000002
	ExchgIDFlagSuppFenceOps     = 0x00000004
	ExchgIDFlagBindPrincStateid = 0x00000100
	ExchgIDFlagUseNonPNFS       = 0x00010000
	ExchgIDFlagUsePNFSMDS       = 0x00020000
	ExchgIDFlagUsePNFSDS        = 0x00040000
	ExchgIDFlagMaskPNFS         = 0x00070000
	ExchgIDFlagUpdConfirmedRecA = 0x40000000
	ExchgIDFlagConfirmedR       = 0x80000000
)

// State protection (state_protect_how4).
const (
	SP4None     = 0
	SP4MachCred = 1
	SP4SSV      = 2
)

// Flags of CREATE_SESSION (RFC 8881 §18.36).
const (
	CreateSessionFlagPersist      = 0x00000001
	CreateSessionFlagConnBackChan = 0x00000002
	CreateSessionFlagConnRDMA     = 0x00000004
)

// Status flags of SEQUENCE (RFC 8881 §18.46).
const (
	Seq4StatusCBPathDown              = 0x00000001
	Seq4StatusCBGSSContextsExpiring   = 0x00000002
	Seq4StatusCBGSSContextsExpired    = 0x00000004
	Seq4StatusExpiredAllStateRevoked  = 0x00000008
	Seq4StatusExpiredSomeStateRevoked = 0x00000010
	Seq4StatusAdminStateRevoked       = 0x00000020
	Seq4StatusRecallableStateRevoked  = 0x00000040
	Seq4StatusLeaseMoved              = 0x00000080
	Seq4StatusRestartReclaimNeeded    = 0x00000100
	Seq4StatusCBPathDownSession       = 0x00000200
	Seq4StatusBackchannelFault        = 0x00000400
	Seq4StatusDevidChanged            = 0x00000800
	Seq4StatusDevidDeleted            = 0x00001000
)

// Hints of IO_ADVISE (IO_ADVISE_type4: RFC 7862 §15.5), bits of a bitmap4.
const (
	IOAdviseNormal                = 0
	IOAdviseSequential            = 1
	IOAdviseSequentialBackwards   = 2
	IOAdviseRandom                = 3
	IOAdviseWillneed              = 4
	IOAdviseWillneedOpportunistic = 5
	IOAdviseDontneed              = 6
	IOAdviseNoreuse               = 7
	IOAdviseRead                  = 8
	IOAdviseWrite                 = 9
	IOAdviseInitProximity         = 10
)

// Flags of fs_charset_cap (RFC 8881 §14.4).
const (
	FSCharsetCapContainsNonUTF8 = 0x1
	FSCharsetCapAllowsOnlyUTF8  = 0x2
)

// What SECINFO_NO_NAME asks about (secinfo_style4).
const (
	SecinfoStyleCurrentFH = 0
	SecinfoStyleParent    = 1
)

// Answers of GET_DIR_DELEGATION (gddrnf4_status).
const (
	GDDOK      = 0
	GDDUnavail = 1
)

// Whether SETXATTR creates or replaces (setxattr_option4: RFC 8276 §8.4.2).
const (
	SetxattrEither  = 0
	SetxattrCreate  = 1
	SetxattrReplace = 2
)
