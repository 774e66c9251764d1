package nfs4

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A trap is a mistake of a server that breaks Linux clients, found in others.
type trap struct {
	what string
	done string
	// tests prove it: of this package, or FOLDER.TestName. Without any, the
	// trap can't be fallen into yet, and done says why.
	tests []string
}

// traps are numbered from 1; a comment "Trap 7" at a test means one of them.
var traps = []trap{
	{
		"SEQ_MISORDERED from a server that has lost its slots: the client tries every 15 s, for ever",
		"a session that is not known is BADSESSION, its client STALE_CLIENTID; one that was taken over goes on, and each slot takes the seqid that comes",
		[]string{"TestTrap01RestartIsNoMisorder", "TestTakeoverAtEveryPoint", "../state.TestSlotAfterTakeover", "../client.TestRestart"},
	},
	{
		"STALE_STATEID from TEST_STATEID or any other operation of 4.1: endless loop",
		"no operation has it: what is of another incarnation is BAD_STATEID",
		[]string{"TestOpenStateids", "TestTestAndFreeStateid"},
	},
	{
		"GRACE because a client has not sent RECLAIM_COMPLETE, outside of the grace period: opens hang",
		"there is no grace period: nothing is ever lost, so that nothing is GRACE",
		[]string{"TestReclaim"},
	},
	{
		"a request is dropped and the connection stays open: the client waits for ever",
		"each call is answered, or its connection is closed",
		[]string{"TestTrap04EveryCallIsAnswered", "TestPanicFreesSlot", "FuzzCompound", "../oncrpc.TestHeaders", "../oncrpc.TestClose", "../client.TestGivenUp"},
	},
	{
		"DELAY from SEQUENCE: a stall of 15 s",
		"a retry of what is under way is parked, and answered by the first execution; more than 4 parked on one slot get DELAY, which no Linux client can cause",
		[]string{"TestRetryInProgress", "../state.TestSlotModel"},
	},
	{
		"RETRY_UNCACHED_REP for what has changed something: the client does it again",
		"replies of up to 1 KiB are kept also if the client did not ask for it: more than any that Linux lets go and that changed something",
		[]string{"TestUncachedRetry", "TestSequence", "TestReplyTooBig"},
	},
	{
		"CREATE_SESSION: a wrong csa_sequence makes the client drop all state; more than asked for, or less than 8 operations, makes the mount fail",
		"tracked and answered again as RFC 8881 §18.36.4 has it; never more than asked",
		[]string{"TestCreateSessionReplay", "TestTakeoverOfSessions", "TestCreateSessionGrants", "../state.TestCreateSessionPhases", "../state.TestCreateSessionWraps", "../state.TestCreateSessionGrants"},
	},
	{
		"a connection that is bound to the fore channel only: no callback ever arrives",
		"both directions are granted when asked for, by CREATE_SESSION and by BIND_CONN_TO_SESSION",
		[]string{"TestTrap08BackChannel", "TestCreateSessionGrants"},
	},
	{
		"callbacks with AUTH_NULL are refused by clients",
		"they have the credential that the client has offered",
		[]string{"TestTrap09CallbackCredential"},
	},
	{
		"a callback that is sent again under the same sequence, or whose reply waits behind what it was sent for",
		"RETRY_UNCACHED_REP takes the slot on; replies are read beside requests",
		[]string{"TestTrap10LostCallback", "TestCallbackSlotsAfterTakeover", "../oncrpc.TestCallback", "../oncrpc.TestCallbackPassesCalls"},
	},
	{
		"CB_PATH_DOWN that stays set: the client drains its slots and binds in a loop",
		"set only while no connection is bound to a back channel that the client has asked for, and not for one that never answers",
		[]string{"TestTrap11StatusFlags", "TestTrap11NeverStuck", "TestCallbackPath"},
	},
	{
		"OPENs of one owner and file with different stateids, or seqids out of order: the client waits 5 s for each",
		"one \"other\" until the last CLOSE, seqids 1, 2, 3 and so on",
		[]string{"TestOpenStateids", "TestTrap12ConcurrentOpens", "TestTrap12OpenAfterTakeover"},
	},
	{
		"CLOSE that races with OPEN",
		"OLD_STATEID for an old seqid, BAD_STATEID for what is closed",
		[]string{"TestOpenStateids"},
	},
	{
		"seqid 0 and the special current stateid compared with the seqid that there is",
		"they stand for what there is now",
		[]string{"TestCurrentStateid"},
	},
	{
		"SETATTR of anything but the size refused for its stateid or a share reservation",
		"the stateid matters for the size alone",
		[]string{"TestShareReservations", "TestSetattr"},
	},
	{
		"change_info4 in other numbers than the change attribute, or \"atomic\" and not true",
		"both are the index of the command in the log",
		[]string{"TestChangeInfo", "TestTrap17TwoFrontEnds"},
	},
	{
		"change or times that go backwards on another front-end, or are cached there",
		"attributes come from the state machine, at an index that is agreed on",
		[]string{"TestTrap17TwoFrontEnds", "../../vfs.TestChangeNamesContent", "../../vfs.TestSuiteFollower", "../../vfs.TestReadIsOfOneState"},
	},
	{
		"attributes that were not asked for, or values of a wrong length: EIO",
		"each attribute alone, all together, and with some that are not supported",
		[]string{"TestEveryAttribute"},
	},
	{
		"attributes in supported_attrs that never come; roots without an fsid; a missing mounted_on_fileid; one fsid for two file systems",
		"all that is in supported_attrs is answered; a volume and the root that lists volumes have each their own",
		[]string{"TestEveryAttribute", "TestFsidCrossing"},
	},
	{
		"an attrset that does not say what was set; suppattr_exclcreat with more than supported_attrs",
		"what the file system says that it set; EXCLUSIVE4_1 sets everything, since the verifier has its own place",
		[]string{"TestTrap20Attrset", "TestExclusiveCreate", "TestSetattr"},
	},
	{
		"READDIR: cookies that are not unique, not stable, refused after a removal, reserved or too large; \".\" and \"..\"; no end",
		"a cookie is a number given to the entry once; the verifier is constant",
		[]string{"TestReaddir", "TestTrap21ReaddirWhileRemoving", "../client.TestReaddir"},
	},
	{
		"a highest slot of 0, or one that shrinks",
		"it is what CREATE_SESSION granted, always",
		[]string{"TestTrap22SlotTable"}, // and each test that uses sess.do
	},
	{
		"two front-ends with one so_major_id and sessions of their own: the client merges them; different scopes in one cluster: locks lost",
		"the server owner is the identity, which is served by one node at a time, the scope the cluster",
		[]string{"TestExchangeIDArguments", "TestOldFrontEndIsSilent"},
	},
	{
		"CONFIRMED_R for a client whose state was lost: it does not reclaim",
		"a record is in memory with its state, or there is none",
		[]string{"TestTrap24ConfirmedOnlyWithState", "TestTakeoverOfSessions", "../state.TestExchangeIDCases", "TestClientRestart"},
	},
	{
		"OP_ILLEGAL for an operation that is legal and not known",
		"NOTSUPP for all legal ones of the minor version",
		[]string{"TestTrap25LegalOperations", "TestCompoundRules"},
	},
	{
		"delegations that conflict, or that can't be returned while they are recalled",
		"off by default; what a holder does never waits for its own",
		[]string{"TestTrap26NoDelegations", "TestTrap26HolderNeverWaits", "TestDelegationOffer"},
	},
	{
		"a lease that is renewed by what fails, or not by what succeeds; a client dropped with its connection",
		"each SEQUENCE that succeeds renews; a silent client keeps what nobody wants",
		[]string{"TestTrap27Renewal", "TestLease", "TestLockOfLapsedClient"},
	},
	{
		"WRITE committed less than asked for; a verifier that survives a loss, or changes without one",
		"committed is what was asked for or more; the verifier is of the writer that holds the data",
		[]string{"TestReadWrite", "TestUnstableVerifier", "../../vfs.TestFencedDropsHeldData"},
	},
	{
		"FREE_STATEID or TEST_STATEID missing; LAYOUTRETURN and GETDEVICEINFO wrong",
		"they are there; pNFS is not",
		[]string{"TestTestAndFreeStateid", "TestLocks"},
	},
	{
		"two hosts with one name evict each other",
		"so they do, and the log says which and what to do",
		[]string{"TestSameNameIsLogged"},
	},
	{
		"SEEK beyond the last data with a result instead of NXIO: a wrong offset",
		"NXIO",
		[]string{"TestRanges"},
	},
	{
		"MOVED without fs_locations; the reclaim flag of LOCK ignored",
		"nothing moves, so that nothing is MOVED; a reclaim is granted to who holds the lock already",
		[]string{"TestReclaim"},
	},
}

// TestTraps checks that each trap has a test, and that it is there.
func TestTraps(t *testing.T) {
	if len(traps) != 32 {
		t.Errorf("%d traps, want 32", len(traps))
	}
	there := map[string]map[string]bool{}
	for i, p := range traps {
		if p.what == "" || p.done == "" {
			t.Errorf("trap %d: it has to say what it is and what is done", i+1)
		}
		for _, name := range p.tests {
			dir := "."
			if at := strings.LastIndexByte(name, '.'); at >= 0 {
				dir, name = name[:at], name[at+1:]
			}
			if there[dir] == nil {
				there[dir] = testsIn(t, dir)
			}
			if !there[dir][name] {
				t.Errorf("trap %d: there is no %s in %s", i+1, name, dir)
			}
		}
	}
	// And each test that is named after a trap is in the table.
	for name := range there["."] {
		digits, ok := strings.CutPrefix(name, "TestTrap")
		if !ok || name == "TestTraps" {
			continue
		}
		n := int(digits[0]-'0')*10 + int(digits[1]-'0')
		if n < 1 || n > len(traps) || !strings.Contains(strings.Join(traps[n-1].tests, " "), name) {
			t.Errorf("%s is not in the table", name)
		}
	}
}

// testsIn returns the tests and fuzz targets of a package.
func testsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}
