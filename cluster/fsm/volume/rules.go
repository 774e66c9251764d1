package volume

// A rule is one of the checks that the safety of data rests on. Tests switch
// rules off, one at a time, to show that they would notice.
type rule uint32

// The rules.
const (
	ruleOwnBlob    rule = 1 << iota // a commit has blobs of its own writer only
	ruleLowWater                    // … that are not below the low-water mark
	ruleOnce                        // … that are not committed already
	ruleNotGarbage                  // … that are not in the delete queue
	ruleEpoch                       // … put at the present epoch of their set
	ruleWritable                    // … which is writable
	ruleNewBlob                     // an extent's blob comes with the command
	ruleBlobBounds                  // an extent lies within its blob
	ruleCollect                     // the delete queue keeps what its writer may still commit
	ruleQuiet                       // members of a set with blobs change only while it is read-only
	ruleRetire                      // a set with blobs is not retired
	ruleSetEpoch                    // a set changes only from its present epoch
	ruleConflict                    // locks of different owners exclude each other
	ruleShare                       // opens do not conflict with what others deny
	ruleHeld                        // an unlinked file stays while a writer may have it open
	ruleReaped                      // nothing is added to a file that is being reaped
	ruleStates                      // an unlinked file stays while a state of it is recorded
	ruleSameBytes                   // inline bytes are moved only if they are those that were put into the blob
	ruleSameExtent                  // a part of a blob is moved only where it is that part still
	ruleMarked                      // a file's mark goes only if nothing was added since it was looked at
	ruleSetCode                     // a set's blobs are of one code
	ruleRecodeSame                  // a blob's new form has the bytes of the old one
	ruleRecodeFrom                  // a blob is recoded from the form that was read
)

// rulesOff has the rules that a test has switched off.
var rulesOff rule

// on reports whether a rule is in force: always, but in tests.
func on(r rule) bool { return rulesOff&r == 0 }
