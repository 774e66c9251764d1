package volume

import (
	"github.com/hawserfs/hawser/cluster"
)

// checkInodes looks at each inode by itself, and counts usage.
func (c *checker) checkInodes() {
	c.each(prefixInode, func(key, val []byte) {
		c.Inodes++
		ino, ok := parseInodeKey(key)
		if !ok {
			c.inodef(ino, "the key %x is damaged", key)
			return
		}
		n, err := decodeInode(val)
		if err != nil {
			c.inodef(ino, "the record is damaged: %v", err)
			return
		}
		c.usage.Inodes++
		c.usage.Bytes += n.Used
		switch {
		case n.Ino != ino:
			c.inodef(ino, "the record says %d", n.Ino)
		case ino == 0 || ino >= c.rec.NextIno:
			c.inodef(ino, "is not below the next one, %d", c.rec.NextIno)
		case n.Type < cluster.TypeRegular || n.Type > cluster.TypeSocket:
			c.inodef(ino, "has the unknown type %d", n.Type)
		case n.Mode&^cluster.ModeMask != 0:
			c.inodef(ino, "has the mode %o", n.Mode)
		case n.Gen == 0:
			c.inodef(ino, "has no generation")
		}
		if n.Type != cluster.TypeDirectory && (n.Entries != 0 || n.Parent != 0) {
			c.inodef(ino, "is no directory, but has %d entries and the parent %d", n.Entries, n.Parent)
		}
		if n.Type != cluster.TypeRegular && n.Used != 0 {
			c.inodef(ino, "is no regular file, but has %d bytes", n.Used)
		}
		if n.Type == cluster.TypeSymlink && (n.Target == "" || n.Size != uint64(len(n.Target))) {
			c.inodef(ino, "has a target of %d bytes and the size %d", len(n.Target), n.Size)
		}
		if n.Nlink == 0 && n.Type != cluster.TypeRegular {
			c.inodef(ino, "has no link and is no regular file: it should be gone")
		}
		if n.Size > cluster.MaxFileSize {
			c.inodef(ino, "has the size %d", n.Size)
		}
		if n.Nlink == 0 != c.isUnlinked(ino) {
			c.inodef(ino, "has %d links, and is among the unlinked: %v", n.Nlink, c.isUnlinked(ino))
		}
	})
	if _, ok := c.inode(cluster.RootIno); !ok {
		c.inodef(cluster.RootIno, "the root directory is not there")
	}
}

// checkDirents looks at each entry by itself, at each hash's entries together,
// and at the number of entries of each directory.
func (c *checker) checkDirents() {
	var dir cluster.Ino
	var entries uint64
	finish := func() {
		if dir == 0 {
			return
		}
		if n, ok := c.inode(dir); ok && n.Entries != entries {
			c.inodef(dir, "says it has %d entries, it has %d", n.Entries, entries)
		}
	}
	var head slotHead // of the present hash
	var headCookie uint64
	var others int
	endHash := func() {
		if headCookie == 0 {
			return
		}
		if head.chained != (others > 0) || head.ino == 0 && others == 0 {
			c.inodef(dir, "cookie %d says that others follow: %v, there are %d", headCookie, head.chained, others)
		}
		headCookie, others = 0, 0
	}
	c.each(prefixDirent, func(key, val []byte) {
		parent, cookie, ok := parseDirentKey(key)
		if !ok {
			c.inodef(parent, "the entry's key %x is damaged", key)
			return
		}
		if parent != dir {
			endHash()
			finish()
			dir, entries = parent, 0
			if n, ok := c.inode(dir); !ok || n.Type != cluster.TypeDirectory {
				c.inodef(dir, "has entries, but is no directory")
			}
		}
		h, err := decodeSlot(val)
		if err != nil {
			c.inodef(dir, "the entry of cookie %d is damaged: %v", cookie, err)
			return
		}
		if cookie&(cookieSlots-1) == 0 {
			endHash()
			head, headCookie, others = h, cookie, 0
		} else if others++; headCookie != cookie&^(cookieSlots-1) {
			c.inodef(dir, "cookie %d has no first one", cookie)
			headCookie = 0
		}
		if h.ino == 0 {
			return
		}
		entries++
		c.Entries++
		name := string(h.name)
		if errno := CheckName(name); errno != cluster.OK {
			c.inodef(dir, "the name %q: %v", name, errno)
		}
		if first := c.rec.firstSlot(dir, name); first != cookie&^(cookieSlots-1) {
			c.inodef(dir, "the name %q has the cookie %d, but belongs to %d", name, cookie, first)
		}
		n, ok := c.inode(h.ino)
		switch {
		case !ok:
			c.inodef(h.ino, "is not there, but has the name %q in directory %d", name, dir)
		case n.Gen != h.gen || n.Type != h.typ:
			c.inodef(h.ino, "is of generation %d and type %d, its name %q in directory %d says %d and %d",
				n.Gen, n.Type, name, dir, h.gen, h.typ)
		case n.Type == cluster.TypeDirectory && n.Parent != dir:
			c.inodef(h.ino, "says its parent is %d, but is %q in %d", n.Parent, name, dir)
		}
	})
	endHash()
	finish()
	// Directories without any entry.
	c.each(prefixInode, func(_, val []byte) {
		n, err := decodeInode(val)
		if err != nil || n.Type != cluster.TypeDirectory || n.Entries == 0 {
			return
		}
		has := false
		c.Ascend(appendDirentBound(nil, n.Ino, 0), appendDirentBound(nil, n.Ino+1, 0), func(_, _ []byte) bool {
			has = true
			return false
		})
		if !has {
			c.inodef(n.Ino, "says it has %d entries, it has none", n.Entries)
		}
	})
}

// checkLinks compares the link counts with the names that there are. A
// directory has one name, and a link more for each directory in it.
func (c *checker) checkLinks() {
	n := parts(c.Entries + c.Inodes)
	for part := range n {
		names := make(map[cluster.Ino]uint32)
		subdirs := make(map[cluster.Ino]uint32)
		c.each(prefixDirent, func(key, val []byte) {
			dir, _, _ := parseDirentKey(key)
			h, err := decodeSlot(val)
			if err != nil || h.ino == 0 {
				return
			}
			if uint64(h.ino)%n == part {
				names[h.ino]++
			}
			if h.typ == cluster.TypeDirectory && uint64(dir)%n == part {
				subdirs[dir]++
			}
		})
		c.each(prefixInode, func(_, val []byte) {
			i, err := decodeInode(val)
			if err != nil || uint64(i.Ino)%n != part {
				return
			}
			switch {
			case i.Type != cluster.TypeDirectory:
				if i.Nlink != names[i.Ino] {
					c.inodef(i.Ino, "has %d links, but %d names", i.Nlink, names[i.Ino])
				}
			case i.Nlink != 2+subdirs[i.Ino]:
				c.inodef(i.Ino, "has %d links, but %d directories in it", i.Nlink, subdirs[i.Ino])
			case i.Ino == cluster.RootIno:
				if i.Parent != cluster.RootIno || names[i.Ino] != 0 {
					c.inodef(i.Ino, "the root has the parent %d and %d names", i.Parent, names[i.Ino])
				}
			case names[i.Ino] != 1:
				c.inodef(i.Ino, "is a directory with %d names", names[i.Ino])
			}
		})
	}
}

// checkTree looks whether each directory's parents lead to the root. That they
// are where they say was seen by checkDirents.
func (c *checker) checkTree() {
	reached := map[cluster.Ino]bool{cluster.RootIno: true}
	var path []cluster.Ino
	c.each(prefixInode, func(_, val []byte) {
		n, err := decodeInode(val)
		if err != nil || n.Type != cluster.TypeDirectory {
			return
		}
		path = path[:0]
		ino, parent := n.Ino, n.Parent
		// In a circle, mark meets itself; it moves up after 1, 2, 4, … steps.
		mark, next := cluster.Ino(0), 1
		for !reached[ino] {
			path = append(path, ino)
			up, ok := c.inode(parent)
			if !ok || up.Type != cluster.TypeDirectory || ino == mark {
				c.inodef(n.Ino, "its parents do not lead to the root, from %d on", parent)
				return
			}
			if len(path) == next {
				mark, next = ino, 2*next
			}
			ino, parent = up.Ino, up.Parent
		}
		for _, p := range path {
			reached[p] = true
		}
		if uint64(len(reached)) > countMax {
			clear(reached) // what is known is found again
			reached[cluster.RootIno] = true
		}
	})
}

// checkXattrs looks whether the extended attributes are of an inode, and as
// many as it says.
func (c *checker) checkXattrs() {
	var ino cluster.Ino
	var names, bytes uint64
	finish := func() {
		if ino == 0 {
			return
		}
		if n, ok := c.inode(ino); !ok {
			c.inodef(ino, "is not there, but has extended attributes")
		} else if uint64(n.XattrNames) != names || uint64(n.XattrBytes) != bytes {
			c.inodef(ino, "says %d and %d bytes of extended attributes' names and values, there are %d and %d",
				n.XattrNames, n.XattrBytes, names, bytes)
		}
	}
	c.each(prefixXattr, func(key, val []byte) {
		of, name, ok := parseXattrKey(key)
		if !ok {
			c.inodef(of, "the extended attribute's key %x is damaged", key)
			return
		}
		if of != ino {
			finish()
			ino, names, bytes = of, 0, 0
		}
		names += uint64(len(name)) + 1
		bytes += uint64(len(val))
	})
	finish()
}
