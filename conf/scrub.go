package conf

import "time"

// Scrub says how the node verifies what is on its disks, and when it gives a
// disk up.
type Scrub struct {
	Every       time.Duration `conf:"every" desc:"time in which every copy on the node's disks is read and verified once" min:"1h" max:"8760h"`
	Rate        Size          `conf:"rate" desc:"bytes a second that a scrub reads from each disk, at most" min:"64KiB" max:"100GiB"`
	MaxErrors   int           `conf:"max_errors" desc:"damaged copies found within error_window with which a disk is taken out of service; 0: it never is" min:"0" max:"1000000"`
	ErrorWindow time.Duration `conf:"error_window" desc:"window of time for max_errors" min:"1m" max:"8760h"`
}

// defaultScrub reads 30 TiB in a period, at most.
func defaultScrub() Scrub {
	return Scrub{Every: 14 * 24 * time.Hour, Rate: 32 << 20, MaxErrors: 50, ErrorWindow: 24 * time.Hour}
}
