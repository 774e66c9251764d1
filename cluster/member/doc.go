// Package member is a node's part in the cluster: it joins, keeps the Raft
// groups that run here, and, where this node leads a group, does that leader's
// duties: who votes, which replica sets there are, who is up, and whose
// front-end is fenced.
//
// Health decides where new data is placed and when the locks of a lost node
// are released. It never decides what is true: that is in the groups' logs.
package member
