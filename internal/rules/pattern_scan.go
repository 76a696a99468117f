package rules

import (
	"fmt"
	"net/netip"
	"strings"
)

type patternScanner struct {
	text string
	pos  int // of the next byte
}

func (p *patternScanner) done() bool { return p.pos == len(p.text) }

func (p *patternScanner) rest() string { return p.text[p.pos:] }

func (p *patternScanner) skip(b byte) bool {
	if p.done() || p.text[p.pos] != b {
		return false
	}
	p.pos++
	return true
}

func (p *patternScanner) upTo(stops string) string {
	start := p.pos
	if n := strings.IndexAny(p.rest(), stops); n >= 0 {
		p.pos += n
	} else {
		p.pos = len(p.text)
	}
	return p.text[start:p.pos]
}

func (p *patternScanner) segment() (Segment, error) {
	segment, err := p.field()
	if err != nil {
		return Segment{}, err
	}
	if segment.Field == FieldEndpoint {
		segment.Method = p.method()
	}
	start := p.pos
	text, quoted, err := p.literal()
	if err != nil {
		return Segment{}, err
	}
	if !quoted && isBraced(text) {
		return segment.asPlaceholder(text, start)
	}
	switch segment.Field {
	case FieldIP:
		segment.Prefix, err = parseNetwork(text)
	case FieldEndpoint:
		segment.Value = text
		if quoted {
			segment.Below = p.skip('*')
		} else {
			segment.Value, segment.Below = cutStar(text)
		}
		err = segment.checkEndpoint(quoted)
	case FieldUser:
		segment.Value, err = text, checkLength("a user id", text, MaxUserIDLength)
	default:
		segment.Value, err = text, checkLength("an attribute's value", text, MaxAttributeValueLength)
	}
	if err != nil {
		return Segment{}, patternError(start, "%v", err)
	}
	return segment, nil
}

func (p *patternScanner) field() (Segment, error) {
	start := p.pos
	name := p.upTo(":")
	segment := Segment{Field: Field(name)}
	attribute, isAttribute := strings.CutPrefix(name, "attr.")
	switch {
	case isAttribute && IsAttributeName(attribute):
		segment = Segment{Field: FieldAttribute, Attribute: attribute}
	case isAttribute:
		return Segment{}, patternError(start+len("attr."),
			"expected an attribute's name of 1 to %d letters, digits, '_', '.' or '-', found %q",
			MaxAttributeNameLength, attribute)
	case segment.Field == FieldGlobal:
		return Segment{}, patternError(start,
			"global stands alone: a pattern is either global or made of the other fields")
	case segment.Field != FieldUser && segment.Field != FieldEndpoint && segment.Field != FieldIP:
		return Segment{}, patternError(start,
			"expected user, endpoint, ip or attr.NAME, found %q; a value that contains ':' is written in double quotes",
			name)
	}
	if !p.skip(':') {
		return Segment{}, patternError(p.pos, "expected ':' and a value after %s", name)
	}
	return segment, nil
}

// IsAttributeName reports whether a name is valid for an attribute, in checks and patterns.
func IsAttributeName(name string) bool { return isName(name, MaxAttributeNameLength) }

func isName(text string, longest int) bool {
	return text != "" && len(text) <= longest && strings.IndexFunc(text, isNotNameRune) < 0
}

func isNotNameRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-'
}

func (p *patternScanner) method() string {
	method, _, spaced := strings.Cut(p.rest(), " ")
	if !spaced || !isMethod(method) {
		return ""
	}
	p.pos += len(method) + 1
	return method
}

func isMethod(text string) bool {
	return strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") == "" && text != "" && text[0] >= 'A' && text[0] <= 'Z'
}

func (p *patternScanner) literal() (text string, quoted bool, err error) {
	start := p.pos
	if p.skip('"') {
		text, err = p.quoted(start)
		return text, true, err
	}
	text = p.upTo(`:"`)
	switch {
	case strings.HasPrefix(p.rest(), `"`):
		return "", false, patternError(p.pos,
			"expected no quote inside a bare value: write the whole value in double quotes, and each quote in it twice")
	case text == "":
		return "", false, patternError(start,
			"expected a value, found nothing; a value that contains ':' is written in double quotes")
	case strings.TrimSpace(text) != text:
		return "", false, patternError(start,
			"expected a value without space around it, found %q; if the space belongs to it, write it in double quotes",
			text)
	}
	return text, false, nil
}

func (p *patternScanner) quoted(start int) (string, error) {
	var text strings.Builder
	for {
		text.WriteString(p.upTo(`"`))
		if !p.skip('"') {
			return "", patternError(p.pos, "expected the closing quote of the value that begins at byte %d", start)
		}
		if !p.skip('"') {
			break
		}
		text.WriteByte('"')
	}
	if text.Len() == 0 {
		return "", patternError(start, "expected a value, found nothing between the quotes")
	}
	return text.String(), nil
}

func (s Segment) asPlaceholder(text string, at int) (Segment, error) {
	switch {
	case text != s.placeholder():
		return Segment{}, patternError(at,
			"unknown placeholder %s: %s takes %s, or %q in double quotes for that very text", text, s.name(),
			s.placeholder(), text)
	case s.Method != "":
		return Segment{}, patternError(at,
			"expected an endpoint after the method %s, found %s, which stands for all of them", s.Method, text)
	}
	s.Placeholder = true
	return s, nil
}

func cutStar(text string) (value string, below bool) {
	if strings.HasSuffix(text, "/*") {
		return strings.TrimSuffix(text, "*"), true
	}
	return text, false
}

func (s Segment) checkEndpoint(quoted bool) error {
	switch {
	case quoted && s.Below && !strings.HasSuffix(s.Value, "/"):
		return fmt.Errorf("expected '/' before the star: it matches what lies below a path, as in %q*", s.Value+"/")
	case quoted:
		return nil
	case strings.Contains(s.Value, "*"):
		return fmt.Errorf("expected '*' only at the end, after '/', as in /api/*; if the star belongs to a route "+
			"template, write it in double quotes: %q", s.Value)
	case strings.Contains(s.Value, " "):
		return fmt.Errorf("expected no space except after a method in capital letters; if it belongs to the "+
			"endpoint, write it in double quotes: %q", s.Value)
	}
	return nil
}

func checkLength(what, text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("expected %s of at most %d bytes, found %d", what, most, len(text))
	}
	return nil
}

// parseNetwork reads an address or a network in CIDR notation.
func parseNetwork(text string) (netip.Prefix, error) {
	addr, err := netip.ParseAddr(text)
	if err == nil && addr.Zone() == "" {
		addr = PlainIP(addr)
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf(
			`expected {ip}, an address such as 203.0.113.7 or "2001:db8::1" in quotes, or a network such as `+
				`203.0.113.0/24, found %q`, text)
	}
	prefix = PlainNetwork(prefix)
	if masked := prefix.Masked(); masked != prefix {
		return netip.Prefix{}, fmt.Errorf("expected a network without host bits: %s lies in %s", prefix.Addr(), masked)
	}
	return prefix, nil
}
