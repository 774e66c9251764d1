package conf

import "time"

// Repair says how data comes back to its full number of copies, and how it is
// moved when disks are emptied or evened out.
type Repair struct {
	After    time.Duration `conf:"after" desc:"time that a node or disk may be away before its copies are made anew on others" min:"1s" max:"720h"`
	Rate     Size          `conf:"rate" desc:"bytes a second that this node fetches from others for repair, draining and balancing, at most" min:"1MiB" max:"100GiB"`
	Parallel int           `conf:"parallel" desc:"replica sets of a volume that are moved at a time; this node's value counts where it leads the volume" min:"1" max:"64"`
}

// defaultRepair moves a terabyte in less than three hours into each node.
func defaultRepair() Repair {
	return Repair{After: 10 * time.Minute, Rate: 100 << 20, Parallel: 4}
}
