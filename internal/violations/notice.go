package violations

import (
	"fmt"
	"strconv"
	"time"
)

// Notice is a delivery with everything that its receiver is told.
type Notice struct {
	Delivery
	Of         Alert
	TenantSlug string
	Pattern    string // of the rule
}

// Summary says what happened in a sentence, without the subject: "user:{user_id} denied 1,200 checks of one subject within 5
// minutes."
func (n *Notice) Summary() string {
	if n.Test {
		return "This is a test. Nothing has happened."
	}
	whose := ""
	if n.Of.PerSubject {
		whose = " of one subject"
	}
	return fmt.Sprintf("%s denied %s%s within %s.", n.ruleText(), plural(n.Denied, "check"), whose, plural(int64(n.Of.Window/time.Minute), "minute"))
}

func (n *Notice) ruleText() string {
	if n.Pattern == "" {
		return "Rule " + strconv.FormatInt(int64(n.Of.Rule), 10)
	}
	return n.Pattern
}

// plural returns a number with its noun: "1 check", "1,200 checks".
func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits + " " + noun
}
