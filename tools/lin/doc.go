// Package lin says whether what clients saw of a strict directory could have
// happened one operation after the other, each between its call and its
// return: histories are recorded with a Recorder and checked with porcupine.
//
// An operation whose outcome is not known may take effect at any time after
// its call, or never; it returns at the end of time.
package lin
