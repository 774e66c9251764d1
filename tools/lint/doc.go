// Package lint holds the rules that the compiler does not: which package may
// import which (layers_test.go), and the versions of the linters that `make
// lint` runs. It is a module of its own, so that the linters' dependencies stay
// out of the program's.
package lint
