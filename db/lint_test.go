package db_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// crossings says where a query touches a table of owned without a condition on one tenant. The check is stricter than
// SQL, and knows only the SQL of our queries.
func crossings(query string, owned []string) []string {
	words := tokens(query)
	return append(beyond(words), lint(parse(words), owned, map[string]bool{})...)
}

// beyond names SQL that lint would let pass: an outer join's ON does not hold its left table, and the others bring in
// tables or tenants by other ways.
func beyond(words []string) (wrong []string) {
	inSet := false
	for i, word := range words {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch {
		case word == "left", word == "right", word == "full", word == "natural":
			wrong = append(wrong, "an outer or natural join: "+word)
		case word == "merge", word == "only", word == "using":
			wrong = append(wrong, word+" is not understood")
		case word == "set":
			inSet = true
		case word == "where", word == "from", word == "returning":
			inSet = false
		case inSet && word == "tenant_id" && next == "=":
			wrong = append(wrong, "the tenant of a row is changed")
		case parameter.MatchString(word) && i > 1 && words[i-1] == "=" && strings.HasSuffix(words[i-2], "tenant_id") &&
			slices.Contains([]string{"+", "-", "*", "/", "%", "|"}, next):
			wrong = append(wrong, "the tenant is computed")
		}
	}
	return wrong
}

var (
	comment = regexp.MustCompile(`--[^\n]*`)
	token   = regexp.MustCompile(`'(?:[^']|'')*'|[\w.$]+|[^\s\w]`)
	keyword = regexp.MustCompile(
		`^(from|where|on|set|join|left|right|inner|cross|full|group|order|limit|values|select|returning|using|` +
			`default|union|for|do)$`)
	parameter = regexp.MustCompile(`^\$\d+$|^sqlc\.arg$`)
)

func tokens(query string) []string {
	query = strings.ToLower(comment.ReplaceAllString(query, ""))
	return token.FindAllString(strings.ReplaceAll(query, `"`, ""), -1)
}

type node struct {
	text  string
	inner []node
}

func parse(tokens []string) []node {
	stack := [][]node{nil}
	for _, text := range tokens {
		top := len(stack) - 1
		switch text {
		case "(":
			stack = append(stack, nil)
		case ")":
			if top > 0 {
				stack[top-1] = append(stack[top-1], node{text: "()", inner: stack[top]})
				stack = stack[:top]
			}
		default:
			stack[top] = append(stack[top], node{text: text})
		}
	}
	return stack[0]
}

type reference struct{ table, alias string }

func lint(statement []node, owned []string, outside map[string]bool) (wrong []string) {
	references, wrong := findReferences(statement, owned)
	held := map[string]bool{}
	for alias := range outside {
		held[alias] = true
	}
	around := slices.ContainsFunc(statement, func(n node) bool { return n.text == "or" })
	for range references { // as often as one table may be held by way of another
		for _, r := range references {
			held[r.alias] = held[r.alias] || !around && isHeld(statement, r.alias, len(references) == 1, held)
		}
	}
	for _, r := range references {
		if !held[r.alias] {
			wrong = append(wrong, fmt.Sprintf("%s (%s) is not held to one tenant", r.table, r.alias))
		}
	}
	wrong = append(wrong, insertedTenants(statement, owned, held)...)
	return append(wrong, lintInner(statement, owned, held)...)
}

func lintInner(nodes []node, owned []string, held map[string]bool) (wrong []string) {
	for _, n := range nodes {
		if len(n.inner) > 0 && n.inner[0].text == "select" {
			wrong = append(wrong, lint(n.inner, owned, held)...)
		} else {
			wrong = append(wrong, lintInner(n.inner, owned, held)...)
		}
	}
	return wrong
}

func findReferences(statement []node, owned []string) (references []reference, wrong []string) {
	at := func(i int) node {
		if i < len(statement) {
			return statement[i]
		}
		return node{}
	}
	inFrom := false // the list of tables, in which a comma separates two
	for i, n := range statement {
		switch {
		case n.text == "from":
			inFrom = true
		case keyword.MatchString(n.text) &&
			!slices.Contains([]string{"on", "join", "left", "right", "inner", "cross", "full"}, n.text):
			inFrom = false
		}
		table := strings.TrimPrefix(n.text, "public.")
		if !slices.Contains(owned, table) || i == 0 {
			continue
		}
		next := i + 1
		if at(next).text == "as" {
			next++
		}
		alias := table
		if name := at(next).text; name != "" && regexp.MustCompile(`^\w+$`).MatchString(name) &&
			!keyword.MatchString(name) {
			alias = name
			next++
		}
		switch before := at(i - 1).text; {
		case before == "into":
			if !slices.ContainsFunc(at(next).inner, func(n node) bool { return n.text == "tenant_id" }) {
				wrong = append(wrong, table+": the insert does not name the tenant")
			}
		case before == "from", before == "join", before == "update", before == "," && inFrom:
			references = append(references, reference{table, alias})
		}
	}
	return references, wrong
}

func insertedTenants(statement []node, owned []string, held map[string]bool) (wrong []string) {
	for i := 0; i+2 < len(statement); i++ {
		table := strings.TrimPrefix(statement[i+1].text, "public.")
		if statement[i].text != "into" || !slices.Contains(owned, table) {
			continue
		}
		rest := statement[i+2:]
		columns := slices.IndexFunc(rest, func(n node) bool { return n.text == "()" })
		source := slices.IndexFunc(rest, func(n node) bool { return n.text == "values" || n.text == "select" })
		if columns < 0 || source < columns {
			continue // findReferences complained already
		}
		place := slices.IndexFunc(items(rest[columns].inner),
			func(item []node) bool { return len(item) == 1 && item[0].text == "tenant_id" })
		var rows [][][]node
		if rest[source].text == "select" {
			selected := rest[source+1:]
			if end := slices.IndexFunc(selected, func(n node) bool { return keyword.MatchString(n.text) }); end >= 0 {
				selected = selected[:end]
			}
			rows = append(rows, items(selected))
		} else {
			for _, n := range rest[source+1:] {
				if n.text != "()" && n.text != "," {
					break
				}
				if n.text == "()" {
					rows = append(rows, items(n.inner))
				}
			}
		}
		for _, row := range rows {
			if place >= 0 && (place >= len(row) || !isOneTenant(row[place], held)) {
				wrong = append(wrong, table+": the insert does not hold to one tenant")
			}
		}
	}
	return wrong
}

func items(list []node) (all [][]node) {
	all = [][]node{nil}
	for _, n := range list {
		if n.text == "," {
			all = append(all, nil)
		} else if n.text != "distinct" {
			all[len(all)-1] = append(all[len(all)-1], n)
		}
	}
	return all
}

func isOneTenant(expression []node, held map[string]bool) bool {
	if len(expression) == 0 {
		return false
	}
	if alias, ok := strings.CutSuffix(expression[0].text, ".tenant_id"); ok {
		return len(expression) == 1 && held[alias]
	}
	if !parameter.MatchString(expression[0].text) {
		return false
	}
	return !slices.ContainsFunc(expression[1:], func(n node) bool {
		return n.text != "()" && n.text != ":" && n.text != "bigint"
	})
}

func isHeld(statement []node, alias string, only bool, held map[string]bool) bool {
	for i := 1; i+2 < len(statement); i++ {
		condition := statement[i-1].text == "where" || statement[i-1].text == "and" || statement[i-1].text == "on"
		if !condition || statement[i+1].text != "=" {
			continue
		}
		left, right := statement[i].text, statement[i+2].text
		for range 2 {
			if left == alias+".tenant_id" || only && left == "tenant_id" {
				other, isTenant := strings.CutSuffix(right, ".tenant_id")
				if parameter.MatchString(right) || isTenant && held[other] {
					return true
				}
			}
			left, right = right, left
		}
	}
	return false
}
