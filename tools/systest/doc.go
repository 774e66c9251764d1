// Package systest proves Hawser as its users see it: hawser processes on the
// hosts of a lab, and stock Linux kernels that mount them and do real work,
// while nodes die.
//
// The tests need root, Linux and the packages that kclient needs. Without them
// they are skipped with a loud line; with CI=true that is a failure.
package systest
