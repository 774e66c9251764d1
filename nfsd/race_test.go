//go:build race

package nfsd

// raceDetector: pools drop some of what they are given, on purpose.
const raceDetector = true
