package volume

import "github.com/hawserfs/hawser/cluster"

// checkStandIn looks at a record that is no blob's.
func (c *checker) checkStandIn(b *Blob) {
	of, ok := c.blob(b.Stored)
	if !ok || of.Stored != b.ID {
		c.blobf(b.ID, "stands in for blob %v, which is not stored there", b.Stored)
	}
	c.checkMaker(b.ID)
}

// checkForm looks at how a blob is stored.
func (c *checker) checkForm(b *Blob, set *ReplicaSet) {
	if b.Kind != set.blobKind() {
		c.blobf(b.ID, "is of kind %d, and its replica set %d has code %v", b.Kind, b.Set, set.Code)
	}
	if b.moved() {
		if in, ok := c.rawBlob(b.Stored); !ok || in.Kind != standIn || in.Stored != b.ID {
			c.blobf(b.ID, "is stored as %v, which does not stand in for it", b.Stored)
		}
	}
	if _, queued := c.Get(nil, appendToCodeKey(nil, b.ID)); queued != b.Queued {
		c.blobf(b.ID, "says of being in the list of those to be coded: %v", b.Queued)
	}
}

func (c *checker) checkMaker(id cluster.BlobID) {
	if _, known := c.writers[id.Writer()]; !known {
		c.blobf(id, "no writer has made it")
	}
}

// checkToCode looks at the list of blobs to be coded.
func (c *checker) checkToCode() {
	c.each(prefixToCode, func(key, val []byte) {
		x, ok := decodeToCode(key, val)
		if !ok {
			c.blobf(x.Blob, "its record among those to be coded is damaged")
			return
		}
		if _, there := c.blob(x.Blob); !there {
			c.blobf(x.Blob, "is to be coded, but is not there")
		}
	})
}
