// Package commonpasswords knows the passwords that people choose most, which guessers try first.
//
// The list has those of at least MinLength characters in two public lists: the 100,000 passwords that are most frequent in
// Have I Been Pwned, published by the UK's National Cyber Security Centre (PwnedPasswordsTop100k.txt), and the list of
// zxcvbn (data/passwords.txt of github.com/dropbox/zxcvbn, MIT licence). To these come some of our own, in ours.txt.
// Shorter ones are refused for their length, so the 10,000 most common passwords of any length are refused. The program holds no password, only the first 32
// bits of each one's SHA-256, sorted: 4 bytes a password. A password on the list is always found. One that is not on
// it is taken for one with a probability of 1 in 400,000.
package commonpasswords

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"slices"
	"sort"
	"strings"
)

// MinLength is the length of the shortest passwords on the list, in characters.
const MinLength = 10

//go:embed digests.bin
var digests string

const size = 4

// Contains reports whether a password is on the list. Case does not matter.
func Contains(password string) bool {
	wanted := digest(password)
	n := Count()
	i, found := sort.Find(n, func(i int) int { return cmp.Compare(wanted, digests[i*size:(i+1)*size]) })
	return i < n && found
}

// Count is the number of passwords on the list.
func Count() int { return len(digests) / size }

// digest is a part of a hash, in which the order of bytes is that of numbers.
func digest(password string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(password)))
	return string(sum[:size])
}

// Compile makes the list of some passwords.
func Compile(passwords []string) []byte {
	all := make([]uint32, len(passwords))
	for i, password := range passwords {
		all[i] = binary.BigEndian.Uint32([]byte(digest(password)))
	}
	slices.Sort(all)
	var compiled []byte
	for _, one := range slices.Compact(all) {
		compiled = binary.BigEndian.AppendUint32(compiled, one)
	}
	return compiled
}
