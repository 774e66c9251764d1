package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// Kind returns KindFormat.
func (Format) Kind() fsm.Kind { return KindFormat }

// AppendTo appends the command's encoding to dst.
func (c Format) AppendTo(dst []byte) []byte {
	dst = append(dst, c.HashKey[:]...)
	dst = appendClass(dst, c.Class)
	return codec.AppendUvarint(dst, uint64(c.Mode))
}

func (c *Format) decode(d *codec.Dec) {
	copy(c.HashKey[:], d.Fixed(len(c.HashKey)))
	c.Class = decodeClass(d)
	c.Mode = d.Uvarint32()
}

// createOpen in an encoded CreateHow says that Create has an Open, at its end.
const createOpen byte = 0x80

// Kind returns KindCreate.
func (Create) Kind() fsm.Kind { return KindCreate }

// AppendTo appends the command's encoding to dst.
func (c Create) AppendTo(dst []byte) []byte {
	dst = appendCred(dst, &c.Cred)
	dst = codec.AppendUvarint(dst, uint64(c.Dir))
	dst = codec.AppendString(dst, c.Name)
	c.How &^= CreateHow(createOpen) // means nothing
	how := byte(c.How)
	if c.Open != nil {
		how |= createOpen
	}
	dst = append(dst, byte(c.Type), how)
	if c.How == Exclusive {
		dst = codec.AppendUint64(dst, c.Verifier)
	}
	dst = appendSetAttr(dst, &c.Attr)
	dst = codec.AppendUint32(dst, c.Gen)
	switch c.Type {
	case cluster.TypeSymlink:
		dst = codec.AppendString(dst, c.Target)
	case cluster.TypeBlock, cluster.TypeChar:
		dst = codec.AppendUvarint(dst, uint64(c.Major))
		dst = codec.AppendUvarint(dst, uint64(c.Minor))
	}
	if c.Open != nil {
		dst = appendState(dst, c.Open)
	}
	return dst
}

func (c *Create) decode(d *codec.Dec) {
	decodeCred(d, &c.Cred)
	c.Dir = cluster.Ino(d.Uvarint())
	c.Name = d.String(maxString)
	c.Type = cluster.FileType(d.Uint8())
	how := d.Uint8()
	if c.How = CreateHow(how &^ createOpen); c.How == Exclusive {
		c.Verifier = d.Uint64()
	}
	decodeSetAttr(d, &c.Attr)
	c.Gen = d.Uint32()
	switch c.Type {
	case cluster.TypeSymlink:
		c.Target = d.String(maxString)
	case cluster.TypeBlock, cluster.TypeChar:
		c.Major = d.Uvarint32()
		c.Minor = d.Uvarint32()
	}
	if how&createOpen != 0 {
		c.Open = new(State)
		decodeState(d, c.Open)
	}
}

// AppendTo appends the result's encoding to dst.
func (r CreateResult) AppendTo(dst []byte) []byte {
	dst = appendAttr(dst, &r.Attr)
	dst = appendChange(dst, r.Dir)
	dst = codec.AppendBool(dst, r.Created)
	return codec.AppendUvarint(dst, uint64(r.Set))
}

// DecodeCreateResult decodes the result of a Create that did not fail.
func DecodeCreateResult(body []byte) (CreateResult, error) {
	d := codec.NewDec(body)
	var r CreateResult
	decodeAttr(&d, &r.Attr)
	r.Dir = decodeChange(&d)
	r.Created = d.Bool()
	r.Set = cluster.SetMask(d.Uvarint16())
	return r, d.Done()
}

// Kind returns KindLink.
func (Link) Kind() fsm.Kind { return KindLink }

// AppendTo appends the command's encoding to dst.
func (c Link) AppendTo(dst []byte) []byte {
	dst = appendCred(dst, &c.Cred)
	dst = codec.AppendUvarint(dst, uint64(c.Ino))
	dst = codec.AppendUvarint(dst, uint64(c.Dir))
	return codec.AppendString(dst, c.Name)
}

func (c *Link) decode(d *codec.Dec) {
	decodeCred(d, &c.Cred)
	c.Ino = cluster.Ino(d.Uvarint())
	c.Dir = cluster.Ino(d.Uvarint())
	c.Name = d.String(maxString)
}

// AppendTo appends the result's encoding to dst.
func (r LinkResult) AppendTo(dst []byte) []byte {
	return appendChange(appendAttr(dst, &r.Attr), r.Dir)
}

// DecodeLinkResult decodes the result of a Link that did not fail.
func DecodeLinkResult(body []byte) (LinkResult, error) {
	d := codec.NewDec(body)
	var r LinkResult
	decodeAttr(&d, &r.Attr)
	r.Dir = decodeChange(&d)
	return r, d.Done()
}

// Kind returns KindRemove.
func (Remove) Kind() fsm.Kind { return KindRemove }

// AppendTo appends the command's encoding to dst.
func (c Remove) AppendTo(dst []byte) []byte {
	dst = appendCred(dst, &c.Cred)
	dst = codec.AppendUvarint(dst, uint64(c.Dir))
	return codec.AppendString(dst, c.Name)
}

func (c *Remove) decode(d *codec.Dec) {
	decodeCred(d, &c.Cred)
	c.Dir = cluster.Ino(d.Uvarint())
	c.Name = d.String(maxString)
}

// AppendTo appends the result's encoding to dst.
func (r RemoveResult) AppendTo(dst []byte) []byte {
	return appendAttr(appendChange(dst, r.Dir), &r.Attr)
}

// DecodeRemoveResult decodes the result of a Remove that did not fail.
func DecodeRemoveResult(body []byte) (RemoveResult, error) {
	d := codec.NewDec(body)
	var r RemoveResult
	r.Dir = decodeChange(&d)
	decodeAttr(&d, &r.Attr)
	return r, d.Done()
}

// Kind returns KindRename.
func (Rename) Kind() fsm.Kind { return KindRename }

// AppendTo appends the command's encoding to dst.
func (c Rename) AppendTo(dst []byte) []byte {
	dst = appendCred(dst, &c.Cred)
	dst = codec.AppendUvarint(dst, uint64(c.FromDir))
	dst = codec.AppendString(dst, c.FromName)
	dst = codec.AppendUvarint(dst, uint64(c.ToDir))
	return codec.AppendString(dst, c.ToName)
}

func (c *Rename) decode(d *codec.Dec) {
	decodeCred(d, &c.Cred)
	c.FromDir = cluster.Ino(d.Uvarint())
	c.FromName = d.String(maxString)
	c.ToDir = cluster.Ino(d.Uvarint())
	c.ToName = d.String(maxString)
}

// AppendTo appends the result's encoding to dst.
func (r RenameResult) AppendTo(dst []byte) []byte {
	dst = appendChange(appendChange(dst, r.From), r.To)
	dst = appendAttr(dst, &r.Attr)
	return codec.AppendUvarint(dst, uint64(r.Replaced))
}

// DecodeRenameResult decodes the result of a Rename that did not fail.
func DecodeRenameResult(body []byte) (RenameResult, error) {
	d := codec.NewDec(body)
	var r RenameResult
	r.From = decodeChange(&d)
	r.To = decodeChange(&d)
	decodeAttr(&d, &r.Attr)
	r.Replaced = cluster.Ino(d.Uvarint())
	return r, d.Done()
}

// Kind returns KindSetAttr.
func (SetAttr) Kind() fsm.Kind { return KindSetAttr }

// AppendTo appends the command's encoding to dst.
func (c SetAttr) AppendTo(dst []byte) []byte {
	dst = appendCred(dst, &c.Cred)
	dst = codec.AppendUvarint(dst, uint64(c.Ino))
	dst = appendSetAttr(dst, &c.Attr)
	return codec.AppendBool(dst, c.Open)
}

func (c *SetAttr) decode(d *codec.Dec) {
	decodeCred(d, &c.Cred)
	c.Ino = cluster.Ino(d.Uvarint())
	decodeSetAttr(d, &c.Attr)
	c.Open = d.Bool()
}

// Kind returns KindSetClass.
func (SetClass) Kind() fsm.Kind { return KindSetClass }

// AppendTo appends the command's encoding to dst.
func (c SetClass) AppendTo(dst []byte) []byte {
	dst = appendCred(dst, &c.Cred)
	dst = codec.AppendUvarint(dst, uint64(c.Ino))
	return appendClass(dst, c.Class)
}

func (c *SetClass) decode(d *codec.Dec) {
	decodeCred(d, &c.Cred)
	c.Ino = cluster.Ino(d.Uvarint())
	c.Class = decodeClass(d)
}

// AppendTo appends the result's encoding to dst.
func (r AttrResult) AppendTo(dst []byte) []byte {
	dst = codec.AppendBool(appendAttr(dst, &r.Attr), r.More)
	return codec.AppendUvarint(dst, r.Done)
}

// DecodeAttrResult decodes the result of a SetAttr, SetClass, CommitExtents,
// Punch or Clone that did not fail.
func DecodeAttrResult(body []byte) (AttrResult, error) {
	d := codec.NewDec(body)
	var r AttrResult
	decodeAttr(&d, &r.Attr)
	r.More = d.Bool()
	r.Done = d.Uvarint()
	return r, d.Done()
}

// Kind returns KindTouch.
func (Touch) Kind() fsm.Kind { return KindTouch }

// AppendTo appends the command's encoding to dst.
func (c Touch) AppendTo(dst []byte) []byte {
	return codec.AppendUint64(appendInos(dst, c.Inos), uint64(c.Atime))
}

func (c *Touch) decode(d *codec.Dec) {
	c.Inos = decodeInos(d)
	c.Atime = cluster.Time(d.Uint64())
}

// Kind returns KindSetXattr.
func (SetXattr) Kind() fsm.Kind { return KindSetXattr }

// AppendTo appends the command's encoding to dst.
func (c SetXattr) AppendTo(dst []byte) []byte {
	dst = appendCred(dst, &c.Cred)
	dst = codec.AppendUvarint(dst, uint64(c.Ino))
	dst = codec.AppendString(dst, c.Name)
	dst = codec.AppendBytes(dst, c.Value)
	return append(dst, byte(c.How))
}

func (c *SetXattr) decode(d *codec.Dec) {
	decodeCred(d, &c.Cred)
	c.Ino = cluster.Ino(d.Uvarint())
	c.Name = d.String(maxString)
	c.Value = d.Bytes(maxString)
	c.How = CreateHow(d.Uint8())
}

// Kind returns KindRemoveXattr.
func (RemoveXattr) Kind() fsm.Kind { return KindRemoveXattr }

// AppendTo appends the command's encoding to dst.
func (c RemoveXattr) AppendTo(dst []byte) []byte {
	dst = appendCred(dst, &c.Cred)
	dst = codec.AppendUvarint(dst, uint64(c.Ino))
	return codec.AppendString(dst, c.Name)
}

func (c *RemoveXattr) decode(d *codec.Dec) {
	decodeCred(d, &c.Cred)
	c.Ino = cluster.Ino(d.Uvarint())
	c.Name = d.String(maxString)
}

// AppendTo appends the result's encoding to dst.
func (r XattrResult) AppendTo(dst []byte) []byte { return appendChange(dst, r.Change) }

// DecodeXattrResult decodes the result of a SetXattr or RemoveXattr that did
// not fail.
func DecodeXattrResult(body []byte) (XattrResult, error) {
	d := codec.NewDec(body)
	r := XattrResult{Change: decodeChange(&d)}
	return r, d.Done()
}
