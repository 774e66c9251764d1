package writer

// counters hands out the numbers of blobs and knows below which all of them
// are final.
type counters struct {
	next uint32 // not handed out yet
	low  uint32 // all below are final
	// done says of low, low+1 … whether they are final. The first one, if
	// there is one, is not.
	done []bool
}

func (c *counters) alloc() uint32 {
	n := c.next
	c.next++
	c.done = append(c.done, false)
	return n
}

// finish makes n final. It may be repeated.
func (c *counters) finish(n uint32) {
	if n < c.low || n >= c.next {
		return
	}
	c.done[n-c.low] = true
	i := 0
	for i < len(c.done) && c.done[i] {
		i++
	}
	c.low += uint32(i)
	c.done = c.done[i:]
}
