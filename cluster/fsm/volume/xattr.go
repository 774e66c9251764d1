package volume

// Limits of extended attributes. The first two are Linux' (XATTR_SIZE_MAX and
// XATTR_LIST_MAX), so that what can be set can be listed and copied.
const (
	MaxXattrValue = 64 << 10 // bytes in one value
	maxXattrNames = 64 << 10 // bytes in the names of an inode, one more counted for each
	maxXattrBytes = 1 << 20  // bytes in the values of an inode
)
