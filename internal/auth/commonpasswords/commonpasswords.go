// Package commonpasswords knows the most common passwords, which guessers try first.
//
// They are those of at least MinLength characters in the 100,000 most frequent ones of Have I Been Pwned,
// published by
// the UK's National Cyber Security Centre (PwnedPasswordsTop100k.txt), in the list of zxcvbn (data/passwords.txt
// of
// github.com/dropbox/zxcvbn, MIT licence), and in ours.txt. The program contains the sorted first 32 bits of each
// SHA-256, so an unlisted password is found with a probability of 1 in 400,000.
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

// MinLength is in characters.
const MinLength = 10

//go:embed digests.bin
var digests string

const size = 4

// Contains reports whether a password is listed, in any case.
func Contains(password string) bool {
	wanted := digest(password)
	n := Count()
	i, found := sort.Find(n, func(i int) int { return cmp.Compare(wanted, digests[i*size:(i+1)*size]) })
	return i < n && found
}

// Count returns the number of listed passwords.
func Count() int { return len(digests) / size }

func digest(password string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(password)))
	return string(sum[:size])
}

// Compile builds the list.
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
