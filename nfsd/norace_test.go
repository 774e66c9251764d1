//go:build !race

package nfsd

const raceDetector = false
