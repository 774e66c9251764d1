//go:build !race

package vfs_test

const raceDetector = false
