package nfs4

//go:generate go run ./internal/reference ../../docs/nfs.md
