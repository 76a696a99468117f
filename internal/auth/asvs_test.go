package auth_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const repository = "../.."

// asvs counts the requirements of levels 1 and 2 in each section of release 5.0.0, numbered from 1; requirements
// of level 3 follow.
var asvs = map[string]int{
	"4.1": 3, "4.2": 1, "4.3": 2, "4.4": 4,
	"6.1": 3, "6.2": 12, "6.3": 4, "6.4": 4, "6.5": 5, "6.6": 3, "6.8": 4,
	"7.1": 3, "7.2": 4, "7.3": 2, "7.4": 5, "7.5": 2, "7.6": 2,
	"8.1": 2, "8.2": 3, "8.3": 1, "8.4": 1,
	"16.1": 1, "16.2": 5, "16.3": 4, "16.4": 3, "16.5": 3,
}

var asvsLimits = []string{"2.1.3", "15.1.3", "2.3.2", "2.3.3", "2.3.4", "2.4.1", "15.2.2"}

func TestEveryRowOfASVSHasAnAnswer(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("asvs.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for section, n := range asvs {
		for i := range n {
			want = append(want, fmt.Sprintf("%s.%d", section, i+1))
		}
	}
	want = append(want, asvsLimits...)
	tests := testsOf(t)
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) < 3 || !('0' <= cells[0][0] && cells[0][0] <= '9') {
			continue
		}
		answer := strings.Join(cells[2:], " | ")
		got = append(got, requirements(cells[0])...)
		wrong := ""
		switch named := testName.FindAllString(answer, -1); {
		case slices.ContainsFunc(named, func(name string) bool { return !tests[name] }):
			wrong = "names a test that does not exist"
		case strings.HasPrefix(answer, "met"):
			if len(named) == 0 && !strings.Contains(answer, "nothing to test") {
				wrong = "names no test, and does not say that there is nothing to test"
			}
		case !reasoned.MatchString(answer):
			wrong = "is neither met, nor does it say why not"
		}
		if wrong != "" {
			t.Errorf("row %s %s: %s", cells[0], wrong, answer)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the rows are\n%v, want\n%v", got, want)
	}
}

var (
	testName = regexp.MustCompile(`\bTest[A-Z]\w*|web/(src|e2e)/[\w./-]+\.test\.tsx?`)
	goTest   = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(t \*testing\.T\)`)
	reasoned = regexp.MustCompile(`^(not applicable|not met( in full)?)(: |, )\S+ \S+`)
)

func requirements(cell string) (all []string) {
	for one := range strings.SplitSeq(cell, ", ") {
		first, last, isRange := strings.Cut(one, "–")
		if !isRange {
			all = append(all, one)
			continue
		}
		section := first[:strings.LastIndex(first, ".")+1]
		from, _ := strconv.Atoi(strings.TrimPrefix(first, section))
		to, _ := strconv.Atoi(strings.TrimPrefix(last, section))
		for n := from; n <= to; n++ {
			all = append(all, section+strconv.Itoa(n))
		}
	}
	return all
}

func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "node_modules" || strings.HasPrefix(name, ".") && len(name) > 2):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".test.ts"), strings.HasSuffix(name, ".test.tsx"):
			relative, err := filepath.Rel(repository, path)
			tests[filepath.ToSlash(relative)] = true
			return err
		case strings.HasSuffix(name, "_test.go"):
			source, err := os.ReadFile(path)
			for _, found := range goTest.FindAllSubmatch(source, -1) {
				tests[string(found[1])] = true
			}
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
