package nfs4

import "github.com/hawserfs/hawser/nfsd/proto"

// What an operation needs and does.
const (
	needCur     = 1 << iota // the current file handle
	needSaved               // the saved file handle
	changes                 // changes the file system or state
	sessionless             // may be the only operation of a request without SEQUENCE
	first                   // must be first
	alone                   // must be the only one
)

// An operation is how one is executed: do decodes the arguments, executes it, and
// encodes the result after the status, which it returns. nil: NOTSUPP.
type operation struct {
	do    func(*compound) proto.Status
	flags int
}

// operations are all legal ones; those without a function are not supported.
var operations = [proto.MaxOp42 + 1]operation{
	proto.OpAccess:            {(*compound).access, needCur},
	proto.OpClose:             {(*compound).close, needCur | changes},
	proto.OpCommit:            {(*compound).commit, needCur | changes},
	proto.OpCreate:            {(*compound).create, needCur | changes},
	proto.OpDelegreturn:       {(*compound).delegreturn, needCur},
	proto.OpGetattr:           {(*compound).getattrOp, needCur},
	proto.OpGetfh:             {(*compound).getfh, needCur},
	proto.OpLink:              {(*compound).link, needCur | needSaved | changes},
	proto.OpLock:              {(*compound).lock, needCur | changes},
	proto.OpLockt:             {(*compound).lockt, needCur},
	proto.OpLocku:             {(*compound).locku, needCur | changes},
	proto.OpLookup:            {(*compound).lookup, needCur},
	proto.OpLookupp:           {(*compound).lookupp, needCur},
	proto.OpNverify:           {(*compound).nverify, needCur},
	proto.OpOpen:              {(*compound).open, needCur | changes},
	proto.OpOpenDowngrade:     {(*compound).openDowngrade, needCur | changes},
	proto.OpPutfh:             {(*compound).putfh, 0},
	proto.OpPutpubfh:          {(*compound).putrootfh, 0},
	proto.OpPutrootfh:         {(*compound).putrootfh, 0},
	proto.OpRead:              {(*compound).read, needCur},
	proto.OpReaddir:           {(*compound).readdir, needCur},
	proto.OpReadlink:          {(*compound).readlink, needCur},
	proto.OpRemove:            {(*compound).remove, needCur | changes},
	proto.OpRename:            {(*compound).rename, needCur | needSaved | changes},
	proto.OpRestorefh:         {(*compound).restorefh, 0},
	proto.OpSavefh:            {(*compound).savefh, needCur},
	proto.OpSecinfo:           {(*compound).secinfo, needCur},
	proto.OpSetattr:           {(*compound).setattr, needCur | changes},
	proto.OpVerify:            {(*compound).verify, needCur},
	proto.OpWrite:             {(*compound).write, needCur | changes},
	proto.OpBackchannelCtl:    {(*compound).backchannelCtl, 0},
	proto.OpBindConnToSession: {(*compound).bindConnToSession, sessionless | alone},
	proto.OpExchangeID:        {(*compound).exchangeID, sessionless},
	proto.OpCreateSession:     {(*compound).createSession, sessionless},
	proto.OpDestroySession:    {(*compound).destroySession, sessionless},
	proto.OpFreeStateid:       {(*compound).freeStateid, 0},
	proto.OpSecinfoNoName:     {(*compound).secinfoNoName, needCur},
	proto.OpSequence:          {(*compound).sequenceLate, first},
	proto.OpTestStateid:       {(*compound).testStateid, 0},
	proto.OpDestroyClientid:   {(*compound).destroyClientid, sessionless},
	proto.OpReclaimComplete:   {(*compound).reclaimComplete, 0},
	proto.OpAllocate:          {(*compound).allocate, needCur | changes},
	proto.OpCopy:              {(*compound).copyRange, needCur | needSaved | changes},
	proto.OpDeallocate:        {(*compound).deallocate, needCur | changes},
	proto.OpIOAdvise:          {(*compound).ioAdvise, needCur},
	proto.OpOffloadCancel:     {(*compound).offloadCancel, needCur | changes},
	proto.OpOffloadStatus:     {(*compound).offloadStatus, needCur},
	proto.OpReadPlus:          {(*compound).readPlus, needCur},
	proto.OpSeek:              {(*compound).seek, needCur},
	proto.OpClone:             {(*compound).clone, needCur | needSaved | changes},
	proto.OpGetxattr:          {(*compound).getxattr, needCur},
	proto.OpSetxattr:          {(*compound).setxattr, needCur | changes},
	proto.OpListxattrs:        {(*compound).listxattrs, needCur},
	proto.OpRemovexattr:       {(*compound).removexattr, needCur | changes},
}

// lookupOp returns the operation of a number, or nil if the minor version has none.
func lookupOp(op proto.Op, minor uint32) *operation {
	last := proto.MaxOp41
	if minor >= 2 {
		last = proto.MaxOp42
	}
	if op < proto.OpAccess || op > last {
		return nil
	}
	return &operations[op]
}
