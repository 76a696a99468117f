package commonpasswords_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth/commonpasswords"
)

func TestCommonPasswordsAreKnownInAnyCase(t *testing.T) {
	t.Parallel()
	for _, common := range []string{
		"1234567890", "qwertyuiop", "basketball", "Password123", "1Q2W3E4R5T", "liverpool1", "123qweasdzxc",
		"manchester", "zxcvbnm123",
	} {
		if !commonpasswords.Contains(common) {
			t.Errorf("%s is not on the list", common)
		}
	}
	ours, err := os.ReadFile("ours.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(ours)) {
		if common := strings.TrimSpace(line); !commonpasswords.Contains(common) {
			t.Errorf("%s of ours.txt is not on the list; generate it again", common)
		}
	}
	if n := commonpasswords.Count(); n < 9500 {
		t.Errorf("the list has %d passwords", n)
	}
}

func TestRandomPasswordsAreNotOnTheList(t *testing.T) {
	t.Parallel()
	taken := 0
	for range 20_000 {
		if commonpasswords.Contains(rand.Text()) {
			taken++
		}
	}
	if taken > 3 { // 0.05 are expected
		t.Errorf("%d of 20000 random passwords are taken for common ones", taken)
	}
	for _, chosen := range []string{
		"eight old grey cats asleep", "a fine analytical engine",
		"correct-horse-47-battery", "",
	} {
		if commonpasswords.Contains(chosen) {
			t.Errorf("%q is on the list", chosen)
		}
	}
}

func TestAListFindsAllThatItWasMadeOf(t *testing.T) {
	t.Parallel()
	compiled := commonpasswords.Compile([]string{"one password", "ONE password", "another password"})
	again := commonpasswords.Compile([]string{"another password", "one password"})
	if len(compiled) != 8 || !bytes.Equal(compiled, again) {
		t.Errorf("the list is %x, and %x of the same in another order", compiled, again)
	}
}
