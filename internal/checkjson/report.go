package checkjson

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	maxReports = 100
	// maxReported bounds each number of a report.
	maxReported = 1_000_000_000

	reportFields = "backend, requests, errors and latency_ms"
	// aboveBounds is the name of the last bucket.
	aboveBounds = "inf"
)

// latencyBounds are the names of a report's buckets.
var latencyBounds = func() map[string]int {
	places := map[string]int{aboveBounds: len(adapt.Bounds)}
	for i, bound := range adapt.Bounds {
		places[strconv.FormatInt(bound, 10)] = i
	}
	return places
}()

// DecodeReports reads what a service saw of backends. r records what is wrong with it.
func DecodeReports(r *httpapi.Reader) (reports []adapt.Report) {
	if !r.Object() {
		return nil
	}
	found := false
	for r.More() {
		if r.Name().String() != "reports" {
			r.RefuseUnknown("reports")
			continue
		}
		found = true
		if !r.Array() {
			continue
		}
		n := 0
		for ; r.More(); n++ {
			if n < maxReports {
				reports = append(reports, decodeReport(r, n))
			} else {
				r.Skip()
			}
		}
		if n > maxReports {
			r.Refuse(fmt.Sprintf("has %d elements; send at most %d in one request", n, maxReports))
		}
	}
	if !found {
		r.RefuseAt("/reports", "is missing; send the list of reports")
	}
	return reports
}

func decodeReport(r *httpapi.Reader, n int) (report adapt.Report) {
	at := "/reports/" + strconv.Itoa(n)
	if !r.Object() {
		return report
	}
	hasRequests := false
	for r.More() {
		switch r.Name().String() {
		case "backend":
			report.Backend = r.Text(rules.MaxBackendLength)
			if !rules.IsBackendName(report.Backend) {
				r.Refuse("must be the name of a backend, as rules have it: letters, digits, '_', '.' and '-'")
			}
		case "requests":
			hasRequests = true
			report.Requests = decodeCount(r)
		case "errors":
			report.Errors = decodeCount(r)
		case "latency_ms":
			decodeLatency(r, &report.Latency)
		default:
			r.RefuseUnknown(reportFields)
		}
	}
	if report.Backend == "" {
		r.RefuseAt(at+"/backend", "is missing or empty; send the name of the backend")
	}
	if !hasRequests {
		r.RefuseAt(at+"/requests", "is missing; send how many requests there were")
		return report
	}
	if report.Errors > report.Requests {
		r.RefuseAt(at+"/errors", fmt.Sprintf("must be at most the number of requests, %d", report.Requests))
	}
	if known := report.Latency.Count(); known > report.Requests {
		r.RefuseAt(at+"/latency_ms", fmt.Sprintf("counts %d requests; count each of the %d requests once, in the bucket of its latency", known, report.Requests))
	}
	return report
}

func decodeCount(r *httpapi.Reader) int64 {
	if !r.IsNumber() {
		r.Number() // refuses it
		return 0
	}
	text := r.Number()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxReported || strings.HasPrefix(text, "-") {
		r.Refuse(fmt.Sprintf("must be a whole number from 0 to %d, written in plain digits", maxReported))
		return 0
	}
	return n
}

// decodeLatency reads counts by the name of their bucket.
func decodeLatency(r *httpapi.Reader, latency *adapt.Histogram) {
	if !r.Object() {
		return
	}
	for r.More() {
		place, known := latencyBounds[r.Name().String()]
		if !known {
			r.Refuse("is no bucket; count the latencies in milliseconds up to " + boundNames() + " or, above them, " + aboveBounds)
			r.Skip()
			continue
		}
		latency[place] = decodeCount(r)
	}
}

func boundNames() string {
	names := make([]string, len(adapt.Bounds))
	for i, bound := range adapt.Bounds {
		names[i] = strconv.FormatInt(bound, 10)
	}
	return strings.Join(names, ", ")
}

// AppendReported appends the answer to reports as a JSON object. Of what was ignored it names the backends.
func AppendReported(b []byte, reports []adapt.Report, ignored []string) []byte {
	accepted := 0
	for i := range reports {
		if !slices.Contains(ignored, reports[i].Backend) {
			accepted++
		}
	}
	b = strconv.AppendInt(append(b, `{"accepted":`...), int64(accepted), 10)
	b = append(b, `,"ignored":[`...)
	for i, backend := range ignored {
		if i > 0 {
			b = append(b, ',')
		}
		b = httpapi.AppendText(b, backend)
	}
	return append(b, `]}`...)
}
