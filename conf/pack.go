package conf

import "time"

// Pack says how bytes of small files are put together.
type Pack struct {
	After time.Duration `conf:"after" desc:"how long a small file stays as it is before its bytes are moved from the state machine into a blob with others'" min:"1s" max:"24h"`
	Every time.Duration `conf:"every" desc:"how often it is looked what there is to be packed, compacted and joined" min:"100ms" max:"1h"`
	Rate  Size          `conf:"rate" desc:"bytes a second that packing writes at most, in each volume, copies not counted" min:"1MiB" max:"100GiB"`
}

// defaultPack keeps up with ten thousand files of 4 KiB a second.
func defaultPack() Pack {
	return Pack{After: time.Minute, Every: 10 * time.Second, Rate: 40 << 20}
}
