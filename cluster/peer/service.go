package peer

// A Service numbers a remote service. Numbers are part of the protocol and are
// never reused.
type Service uint8

// The services.
const (
	ServicePropose   Service = 1 // cluster/group: propose a command to the leader
	ServiceReadIndex Service = 2 // cluster/group: the leader's read index
	ServiceBlob      Service = 3 // datastore/blob: store, read and delete blobs
	ServiceMember    Service = 4 // cluster/member: join, heartbeats, health
	ServiceAdmin     Service = 5 // administration that another node must do
	ServiceTerm      Service = 6 // cluster/group: a voter's current term
	ServiceScrub     Service = 7 // the scrub of another node's stores
	ServiceRepair    Service = 8 // how the repair of a volume that another node leads stands
)

// bulk reports whether the service's calls carry bulk data. They have
// connections of their own, so that small calls never wait behind them, and
// their bodies are checksummed end to end by their user.
func (s Service) bulk() bool { return s == ServiceBlob }
