package gateway

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/sluicegate/sluice/internal/rules"
)

func cleanPath(path string) string {
	path = withoutHost(path)
	if isClean(path) {
		return path
	}
	b := make([]byte, 0, len(path)+16)
	if path == "" || path[0] != '/' {
		b = append(b, '/')
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		var escaped [1]byte
		if c == '%' && i+2 < len(path) {
			if _, err := hex.Decode(escaped[:], []byte(path[i+1:i+3])); err == nil {
				i += 2
				if c = escaped[0]; !isUnreserved(c) {
					b = appendEscape(b, c)
					continue
				}
			}
		}
		switch {
		case c == '/' && len(b) > 0 && b[len(b)-1] == '/':
		case isPathByte(c):
			b = append(b, c)
		default:
			b = appendEscape(b, c)
		}
	}
	return resolveDots(string(b))
}

func withoutHost(path string) string {
	for _, scheme := range []string{"http://", "https://"} {
		if len(path) >= len(scheme) && strings.EqualFold(path[:len(scheme)], scheme) {
			rest := path[len(scheme):]
			if at := strings.IndexByte(rest, '/'); at >= 0 {
				return rest[at:]
			}
			return "/"
		}
	}
	path, _, _ = strings.Cut(path, "#")
	return path
}

func isClean(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for i := 1; i < len(path); i++ {
		if c := path[i]; c == '%' || !isPathByte(c) || path[i-1] == '/' && (c == '/' || c == '.') {
			return false
		}
	}
	return true
}

func resolveDots(path string) string {
	if !strings.Contains(path, "/.") {
		return path
	}
	var kept []string
	segments := strings.Split(path[1:], "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch segment {
		case ".", "..":
			if segment == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, segment)
		}
	}
	return "/" + strings.Join(kept, "/")
}

// Fold is a difference between paths that routers ignore: Express takes /Orders/ for /orders.
type Fold string

// The folds: letters become lower-case, a slash at the end and path parameters (;v=1) go, and %2F becomes a slash.
const (
	FoldCase           Fold = "case"
	FoldTrailingSlash  Fold = "trailing_slash"
	FoldParameters     Fold = "parameters"
	FoldEncodedSlashes Fold = "encoded_slashes"
)

var allFolds = []Fold{FoldCase, FoldTrailingSlash, FoldParameters, FoldEncodedSlashes}

// foldPath cleans again where a fold may have made dot segments of /..;/ or %2F..%2F.
func foldPath(path string, folds []Fold) string {
	if slices.Contains(folds, FoldEncodedSlashes) && strings.Contains(path, "%2F") {
		path = cleanPath(strings.ReplaceAll(path, "%2F", "/"))
	}
	if slices.Contains(folds, FoldParameters) && strings.Contains(path, ";") {
		segments := strings.Split(path, "/")
		for i := range segments {
			segments[i], _, _ = strings.Cut(segments[i], ";")
		}
		path = cleanPath(strings.Join(segments, "/"))
	}
	if slices.Contains(folds, FoldCase) {
		path = lowerPath(path)
	}
	if slices.Contains(folds, FoldTrailingSlash) && len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// lowerPath keeps escapes, whose letters are upper-case.
func lowerPath(path string) string {
	if strings.IndexFunc(path, func(c rune) bool { return 'A' <= c && c <= 'Z' }) < 0 {
		return path
	}
	lower := []byte(path)
	for i := 0; i < len(lower); i++ {
		switch c := lower[i]; {
		case c == '%':
			i += 2
		case 'A' <= c && c <= 'Z':
			lower[i] += 'a' - 'A'
		}
	}
	return string(lower)
}

func foldTemplate(template string, folds []Fold) string {
	segments := strings.Split(template[1:], "/")
	for i, segment := range segments {
		if !isPlaceholder(segment) {
			segments[i] = foldPath("/"+segment, folds)[1:]
		}
	}
	folded := "/" + strings.Join(segments, "/")
	if slices.Contains(folds, FoldTrailingSlash) && len(folded) > 1 {
		folded = strings.TrimSuffix(folded, "/")
	}
	return folded
}

func appendEscape(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(b, '%', digits[c>>4], digits[c&15])
}

// isUnreserved accepts unreserved of RFC 3986 section 2.3.
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// isPathByte accepts pchar of RFC 3986 section 3.3, and slashes.
func isPathByte(c byte) bool { return isUnreserved(c) || strings.IndexByte("/!$&'()*+,;=:@", c) >= 0 }

type templates struct {
	children map[string]*templates // by literal segment
	any      *templates            // child for a placeholder
	template string                // that ends here
	below    string                // the template that ends here with *
}

func (e *Endpoint) compileTemplates() templates {
	var root templates
	for _, template := range e.Templates {
		node := &root
		segments := strings.Split(foldTemplate(template, e.Folds)[1:], "/")
		for i, segment := range segments {
			switch {
			case segment == "*" && i == len(segments)-1:
				node.below = template
				node = nil
			case isPlaceholder(segment):
				if node.any == nil {
					node.any = new(templates)
				}
				node = node.any
			default:
				if node.children == nil {
					node.children = map[string]*templates{}
				}
				if node.children[segment] == nil {
					node.children[segment] = new(templates)
				}
				node = node.children[segment]
			}
		}
		if node != nil {
			node.template = template
		}
	}
	return root
}

func (t *templates) fold(path string) string {
	if t.children == nil && t.any == nil && t.below == "" {
		return path
	}
	if template := t.find(path[1:]); template != "" {
		return template
	}
	return path
}

func (t *templates) find(rest string) string {
	segment, after, more := strings.Cut(rest, "/")
	down := func(next *templates) string {
		if more {
			return next.find(after)
		}
		return next.template
	}
	if next := t.children[segment]; next != nil {
		if template := down(next); template != "" {
			return template
		}
	}
	if t.any != nil && segment != "" {
		if template := down(t.any); template != "" {
			return template
		}
	}
	if rest != "" {
		return t.below
	}
	return ""
}

func isPlaceholder(segment string) bool {
	return len(segment) > 2 && segment[0] == '{' && segment[len(segment)-1] == '}'
}

func (e *Endpoint) validateTemplates(errs *rules.FieldErrors) {
	if len(e.Templates) > maxTemplates {
		errs.Add("endpoint.templates", fmt.Sprintf("must be at most %d, got %d", maxTemplates, len(e.Templates)))
		return
	}
	shapes := map[string]int{}
	for i, template := range e.Templates {
		field := fmt.Sprintf("endpoint.templates.%d", i)
		shape, wrong := templateShape(template)
		if wrong == "" {
			shape, wrong = templateShape(foldTemplate(template, e.Folds))
		}
		if wrong != "" {
			errs.Add(field, wrong)
			continue
		}
		if first, taken := shapes[shape]; taken {
			errs.Add(field, fmt.Sprintf("fits the same paths as %s", e.Templates[first]))
			continue
		}
		shapes[shape] = i
	}
}

func templateShape(template string) (shape, wrong string) {
	const must = "must be a path such as /orders/{id} or /files/*"
	if len(template) > maxTemplate || !strings.HasPrefix(template, "/") {
		return "", fmt.Sprintf("%s, of at most %d bytes", must, maxTemplate)
	}
	segments := strings.Split(template[1:], "/")
	if len(segments) > maxTemplateDepth {
		return "", fmt.Sprintf("must have at most %d segments", maxTemplateDepth)
	}
	for i, segment := range segments {
		switch {
		case isPlaceholder(segment) && rules.IsAttributeName(segment[1:len(segment)-1]):
			segments[i] = "{}"
		case segment == "*" && i == len(segments)-1:
		case strings.ContainsAny(segment, "{}*"):
			return "", must + ": a placeholder is a whole segment, and * is the last"
		case cleanPath("/"+segment) != "/"+segment:
			return "", fmt.Sprintf("%s, in the spelling that paths are compared in: %q is %q", must, segment,
				cleanPath("/" + segment)[1:])
		case segment == "" && i < len(segments)-1:
			return "", must + ", without empty segments"
		}
	}
	return strings.Join(segments, "/"), ""
}
