package config

// suggestion returns "; did you mean …?" for the known name that a wrong one was most likely meant
// to be, or "" if none is near.
func suggestion(wrong string, known []string) string {
	best, nearest := max(2, len(wrong)/3)+1, ""
	for _, name := range known {
		if d := distance(wrong, name); d < best {
			best, nearest = d, name
		}
	}
	if nearest == "" {
		return ""
	}
	return "; did you mean " + nearest + "?"
}

// distance is the number of bytes to insert, delete or replace to get from one name to the other
// (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance of a's first i bytes to b's first j
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
