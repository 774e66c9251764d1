package checksum

import "hash/crc32"

// A crc is linear over GF(2): that of A followed by B is the crc of A,
// advanced over len(B) zero bytes, xor the crc of B. Advancing is a
// multiplication by a 32×32 bit matrix, kept here for one block as four
// tables, one for each byte of the crc.

type matrix [32]uint32 // column i is the image of bit i

func (m *matrix) apply(v uint32) uint32 {
	var r uint32
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 != 0 {
			r ^= m[i]
		}
	}
	return r
}

func (m *matrix) squared() (s matrix) {
	for i := range s {
		s[i] = m.apply(m[i])
	}
	return s
}

// zeros[k] advances a crc over 2^k zero bytes.
var zeros = func() (z [13]matrix) {
	z[0][0] = crc32.Castagnoli // one zero bit
	for i := 1; i < 32; i++ {
		z[0][i] = 1 << (i - 1)
	}
	for range 3 {
		z[0] = z[0].squared()
	}
	for k := 1; k < len(z); k++ {
		z[k] = z[k-1].squared()
	}
	return z
}()

var blockTable = func() (t [4][256]uint32) {
	for i := range t {
		for v := range t[i] {
			t[i][v] = zeros[12].apply(uint32(v) << (8 * i))
		}
	}
	return t
}()

func shiftBlock(c uint32) uint32 {
	return blockTable[0][c&0xff] ^ blockTable[1][c>>8&0xff] ^ blockTable[2][c>>16&0xff] ^ blockTable[3][c>>24]
}

// shift advances c over n < 2^13 zero bytes.
func shift(c uint32, n int) uint32 {
	for k := 0; n != 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			c = zeros[k].apply(c)
		}
	}
	return c
}
