package state

// modes is a set of pairs of share access and deny mode, with which an owner has
// opened a file: it can be downgraded to what some of them make together (RFC 8881
// §18.18.3), as if the others had been closed.
type modes uint16

// anyModes stands for the pairs of an open of before a take-over, which are not known.
const anyModes = ^modes(0)

func mode(access, deny uint32) modes { return 1 << (access&3 | deny&3<<2) }

// within returns the pairs that ask for no more than access and deny.
func (s modes) within(access, deny uint32) (in modes) {
	for i := range uint32(16) {
		if a, d := i&3, i>>2; a&^access == 0 && d&^deny == 0 {
			in |= s & mode(a, d)
		}
	}
	return in
}

// make reports whether some pairs together are access and deny.
func (s modes) make(access, deny uint32) bool {
	var a, d uint32
	for i := range uint32(16) {
		if s.within(access, deny)&mode(i&3, i>>2) != 0 {
			a, d = a|i&3, d|i>>2
		}
	}
	return a == access && d == deny
}
