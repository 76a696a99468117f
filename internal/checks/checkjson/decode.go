package checkjson

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// The bounds of a check, in bytes for texts.
const (
	maxEndpoint   = 1024
	maxMethod     = 32
	maxIP         = 64 // every address is shorter
	maxPlan       = 256
	minRecordID   = 16
	maxRecordID   = 255
	maxAttributes = 16
	maxChecks     = 1000

	MaxBody      = 64 << 10
	MaxBatchBody = 1 << 20
)

const checkFields = "user_id, plan, endpoint, method, ip, cost, costs, attributes, reserve, reserve_for, record and " +
	"record_id"

// DecodeCheck reads a check; r records its mistakes.
func DecodeCheck(r *httpapi.Reader) enforce.Check {
	c := enforce.Check{Cost: enforce.Token}
	if !r.Object() {
		return c
	}
	hasCost, hasID, namesRequests := false, false, true
	for r.More() {
		switch r.Name().String() {
		case "user_id":
			c.UserID = decodeUserID(r)
		case "plan":
			c.Plan = r.Text(maxPlan)
		case "endpoint":
			c.Endpoint = r.Text(maxEndpoint)
		case "method":
			c.Method = decodeMethod(r)
		case "ip":
			c.IP = decodeIP(r)
		case "cost":
			c.Cost = decodeCost(r)
			refuseSecond(r, &hasCost)
		case "costs":
			namesRequests = decodeCosts(r, &c)
			refuseSecond(r, &hasCost)
		case "attributes":
			c.Attributes = decodeAttributes(r)
		case "reserve":
			c.Reserve = r.Bool()
		case "reserve_for":
			c.ReserveFor = decodeReserveFor(r)
		case "record":
			c.Record = r.Bool()
		case "record_id":
			c.RecordID, hasID = decodeRecordID(r), true
		default:
			r.RefuseUnknown(checkFields)
		}
	}
	if c.Record && !namesRequests { // a record has no default cost
		c.Cost = 0
	}
	switch {
	case c.Record && !hasCost:
		r.Refuse("is a record without cost or costs; send the cost of what has happened")
	case c.Record && (c.Reserve || c.ReserveFor != 0):
		r.Refuse("cannot both record and reserve; settle a reservation at /v1/settle")
	case hasID && !c.Record:
		r.Refuse("has a record_id, which only a record can have; send record true with it")
	}
	return c
}

func decodeRecordID(r *httpapi.Reader) enforce.RecordID {
	id := r.Text(maxRecordID)
	if len(id) < minRecordID || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
		r.Refuse(fmt.Sprintf("must be %d to %d visible ASCII characters, such as a random UUID", minRecordID,
			maxRecordID))
		return enforce.RecordID{}
	}
	return enforce.RecordIDOf(id)
}

// DecodeBatch appends the checks of a batch to checks.
func DecodeBatch(r *httpapi.Reader, checks []enforce.Check) []enforce.Check {
	found := false
	if !r.Object() {
		return checks
	}
	for r.More() {
		if r.Name().String() != "checks" {
			r.RefuseUnknown("checks")
			continue
		}
		found = true
		if !r.Array() {
			continue
		}
		n := 0
		for ; r.More(); n++ {
			if n < maxChecks {
				checks = append(checks, DecodeCheck(r))
			} else {
				r.Skip()
			}
		}
		if n > maxChecks {
			r.Refuse(fmt.Sprintf("has %d elements; send at most %d in one batch", n, maxChecks))
		}
	}
	if !found {
		r.RefuseAt("/checks", "is missing; send the list of checks")
	}
	return checks
}

func decodeUserID(r *httpapi.Reader) string {
	if !r.IsNumber() {
		return r.Text(rules.MaxUserIDLength)
	}
	id := r.Number()
	switch {
	case strings.ContainsAny(id, ".eE") || id == "-0":
		r.Refuse("must be a string or an integer written in plain digits")
		return ""
	case len(id) > rules.MaxUserIDLength:
		r.Refuse(fmt.Sprintf("has %d digits; at most %d are accepted", len(id), rules.MaxUserIDLength))
		return ""
	}
	return id
}

func decodeMethod(r *httpapi.Reader) string {
	method := r.Text(maxMethod)
	if !rules.IsToken(method) {
		r.Refuse("must be an HTTP method such as GET: letters, digits and !#$%&'*+-.^_`|~")
		return ""
	}
	return method
}

func decodeIP(r *httpapi.Reader) netip.Addr {
	text := r.Text(maxIP)
	if text == "" {
		return netip.Addr{}
	}
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.Zone() != "" {
		r.Refuse("must be an IPv4 or IPv6 address such as 203.0.113.9 or 2001:db8::1, without port, zone or prefix " +
			"length")
		return netip.Addr{}
	}
	return rules.PlainIP(ip)
}

func decodeCost(r *httpapi.Reader) enforce.Tokens {
	if !r.IsNumber() {
		r.Number() // refuses it
		return enforce.Token
	}
	millionths, err := rules.ParseCost(r.Number())
	if err != nil {
		r.Refuse(err.Error())
	}
	return enforce.Tokens(millionths)
}

func decodeCosts(r *httpapi.Reader, c *enforce.Check) (namesRequests bool) {
	if !r.Object() {
		return false
	}
	n := 0
	for ; r.More(); n++ {
		meter, err := rules.ParseMeter(r.Name().String())
		if err != nil {
			r.Refuse("is not a meter: it " + err.Error())
			r.Skip()
			continue
		}
		if cost := decodeCost(r); n < rules.MaxMeters {
			c.SetCost(meter, cost)
		}
		namesRequests = namesRequests || meter == ""
	}
	if n > rules.MaxMeters {
		r.Refuse(fmt.Sprintf("has %d meters; send at most %d", n, rules.MaxMeters))
	}
	return namesRequests
}

func refuseSecond(r *httpapi.Reader, hasCost *bool) {
	if *hasCost {
		r.Refuse("gives the cost a second time; send either cost, which is the cost of requests, or costs")
	}
	*hasCost = true
}

func decodeAttributes(r *httpapi.Reader) []rules.Attribute {
	if !r.Object() {
		return nil
	}
	n := 0
	var attributes []rules.Attribute
	for ; r.More(); n++ {
		name := r.Name().String()
		if !rules.IsAttributeName(name) {
			r.Refuse("is not an attribute's name: 1 to " + strconv.Itoa(rules.MaxAttributeNameLength) +
				" letters, digits, '_', '.' and '-'")
			r.Skip()
			continue
		}
		value := r.Text(rules.MaxAttributeValueLength)
		if n < maxAttributes {
			attributes = append(attributes, rules.Attribute{Name: name, Value: value})
		}
	}
	if n > maxAttributes {
		r.Refuse(fmt.Sprintf("has %d attributes; send at most %d", n, maxAttributes))
	}
	return attributes
}
