package proto

// The attribute numbers (fattr4: RFC 7863; RFC 8275 §5, RFC 8276 §8.4, RFC 9754).
const (
	AttrSupportedAttrs    = 0
	AttrType              = 1
	AttrFHExpireType      = 2
	AttrChange            = 3
	AttrSize              = 4
	AttrLinkSupport       = 5
	AttrSymlinkSupport    = 6
	AttrNamedAttr         = 7
	AttrFsid              = 8
	AttrUniqueHandles     = 9
	AttrLeaseTime         = 10
	AttrRdattrError       = 11
	AttrACL               = 12
	AttrAclsupport        = 13
	AttrArchive           = 14
	AttrCansettime        = 15
	AttrCaseInsensitive   = 16
	AttrCasePreserving    = 17
	AttrChownRestricted   = 18
	AttrFilehandle        = 19
	AttrFileid            = 20
	AttrFilesAvail        = 21
	AttrFilesFree         = 22
	AttrFilesTotal        = 23
	AttrFSLocations       = 24
	AttrHidden            = 25
	AttrHomogeneous       = 26
	AttrMaxfilesize       = 27
	AttrMaxlink           = 28
	AttrMaxname           = 29
	AttrMaxread           = 30
	AttrMaxwrite          = 31
	AttrMimetype          = 32
	AttrMode              = 33
	AttrNoTrunc           = 34
	AttrNumlinks          = 35
	AttrOwner             = 36
	AttrOwnerGroup        = 37
	AttrQuotaAvailHard    = 38
	AttrQuotaAvailSoft    = 39
	AttrQuotaUsed         = 40
	AttrRawdev            = 41
	AttrSpaceAvail        = 42
	AttrSpaceFree         = 43
	AttrSpaceTotal        = 44
	AttrSpaceUsed         = 45
	AttrSystem            = 46
	AttrTimeAccess        = 47
	AttrTimeAccessSet     = 48
	AttrTimeBackup        = 49
	AttrTimeCreate        = 50
	AttrTimeDelta         = 51
	AttrTimeMetadata      = 52
	AttrTimeModify        = 53
	AttrTimeModifySet     = 54
	AttrMountedOnFileid   = 55
	AttrDirNotifDelay     = 56
	AttrDirentNotifDelay  = 57
	AttrDacl              = 58
	AttrSacl              = 59
	AttrChangePolicy      = 60
	AttrFSStatus          = 61
	AttrFSLayoutTypes     = 62
	AttrLayoutHint        = 63
	AttrLayoutTypes       = 64
	AttrLayoutBlksize     = 65
	AttrLayoutAlignment   = 66
	AttrFSLocationsInfo   = 67
	AttrMdsthreshold      = 68
	AttrRetentionGet      = 69
	AttrRetentionSet      = 70
	AttrRetentevtGet      = 71
	AttrRetentevtSet      = 72
	AttrRetentionHold     = 73
	AttrModeSetMasked     = 74
	AttrSuppattrExclcreat = 75
	AttrFSCharsetCap      = 76
	AttrCloneBlksize      = 77
	AttrSpaceFreed        = 78
	AttrChangeAttrType    = 79
	AttrSecLabel          = 80
	AttrModeUmask         = 81
	AttrXattrSupport      = 82
	AttrTimeDelegAccess   = 84
	AttrTimeDelegModify   = 85
	AttrOpenArguments     = 86

	NumAttrs = 87 // one more than the highest
)

var attrName = [NumAttrs]string{
	AttrSupportedAttrs:    "supported_attrs",
	AttrType:              "type",
	AttrFHExpireType:      "fh_expire_type",
	AttrChange:            "change",
	AttrSize:              "size",
	AttrLinkSupport:       "link_support",
	AttrSymlinkSupport:    "symlink_support",
	AttrNamedAttr:         "named_attr",
	AttrFsid:              "fsid",
	AttrUniqueHandles:     "unique_handles",
	AttrLeaseTime:         "lease_time",
	AttrRdattrError:       "rdattr_error",
	AttrACL:               "acl",
	AttrAclsupport:        "aclsupport",
	AttrArchive:           "archive",
	AttrCansettime:        "cansettime",
	AttrCaseInsensitive:   "case_insensitive",
	AttrCasePreserving:    "case_preserving",
	AttrChownRestricted:   "chown_restricted",
	AttrFilehandle:        "filehandle",
	AttrFileid:            "fileid",
	AttrFilesAvail:        "files_avail",
	AttrFilesFree:         "files_free",
	AttrFilesTotal:        "files_total",
	AttrFSLocations:       "fs_locations",
	AttrHidden:            "hidden",
	AttrHomogeneous:       "homogeneous",
	AttrMaxfilesize:       "maxfilesize",
	AttrMaxlink:           "maxlink",
	AttrMaxname:           "maxname",
	AttrMaxread:           "maxread",
	AttrMaxwrite:          "maxwrite",
	AttrMimetype:          "mimetype",
	AttrMode:              "mode",
	AttrNoTrunc:           "no_trunc",
	AttrNumlinks:          "numlinks",
	AttrOwner:             "owner",
	AttrOwnerGroup:        "owner_group",
	AttrQuotaAvailHard:    "quota_avail_hard",
	AttrQuotaAvailSoft:    "quota_avail_soft",
	AttrQuotaUsed:         "quota_used",
	AttrRawdev:            "rawdev",
	AttrSpaceAvail:        "space_avail",
	AttrSpaceFree:         "space_free",
	AttrSpaceTotal:        "space_total",
	AttrSpaceUsed:         "space_used",
	AttrSystem:            "system",
	AttrTimeAccess:        "time_access",
	AttrTimeAccessSet:     "time_access_set",
	AttrTimeBackup:        "time_backup",
	AttrTimeCreate:        "time_create",
	AttrTimeDelta:         "time_delta",
	AttrTimeMetadata:      "time_metadata",
	AttrTimeModify:        "time_modify",
	AttrTimeModifySet:     "time_modify_set",
	AttrMountedOnFileid:   "mounted_on_fileid",
	AttrDirNotifDelay:     "dir_notif_delay",
	AttrDirentNotifDelay:  "dirent_notif_delay",
	AttrDacl:              "dacl",
	AttrSacl:              "sacl",
	AttrChangePolicy:      "change_policy",
	AttrFSStatus:          "fs_status",
	AttrFSLayoutTypes:     "fs_layout_types",
	AttrLayoutHint:        "layout_hint",
	AttrLayoutTypes:       "layout_types",
	AttrLayoutBlksize:     "layout_blksize",
	AttrLayoutAlignment:   "layout_alignment",
	AttrFSLocationsInfo:   "fs_locations_info",
	AttrMdsthreshold:      "mdsthreshold",
	AttrRetentionGet:      "retention_get",
	AttrRetentionSet:      "retention_set",
	AttrRetentevtGet:      "retentevt_get",
	AttrRetentevtSet:      "retentevt_set",
	AttrRetentionHold:     "retention_hold",
	AttrModeSetMasked:     "mode_set_masked",
	AttrSuppattrExclcreat: "suppattr_exclcreat",
	AttrFSCharsetCap:      "fs_charset_cap",
	AttrCloneBlksize:      "clone_blksize",
	AttrSpaceFreed:        "space_freed",
	AttrChangeAttrType:    "change_attr_type",
	AttrSecLabel:          "sec_label",
	AttrModeUmask:         "mode_umask",
	AttrXattrSupport:      "xattr_support",
	AttrTimeDelegAccess:   "time_deleg_access",
	AttrTimeDelegModify:   "time_deleg_modify",
	AttrOpenArguments:     "open_arguments",
}

// AttrName returns the RFC's name of an attribute, without FATTR4_ and in lower
// case; "" for numbers without one.
func AttrName(n int) string {
	if n < 0 || n >= NumAttrs {
		return ""
	}
	return attrName[n]
}
