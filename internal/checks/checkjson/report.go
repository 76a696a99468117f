package checkjson

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	maxReports  = 100
	aboveBounds = "inf"
)

var latencyBounds = func() map[string]int {
	indexes := map[string]int{aboveBounds: len(adapt.Bounds)}
	for i, bound := range adapt.Bounds {
		indexes[strconv.FormatInt(bound, 10)] = i
	}
	return indexes
}()

// DecodeReports reads reports on backends; the error is a *httpapi.Problem.
func DecodeReports(body []byte) ([]adapt.Report, error) {
	var from struct {
		Reports []reportJSON `json:"reports"`
	}
	if err := httpapi.Decode(body, &from); err != nil {
		return nil, err
	}
	var wrong mistakes
	if from.Reports == nil {
		wrong.add("/reports", "is missing; send the list of reports")
	}
	if wrong.tooMany("/reports", len(from.Reports), maxReports) {
		return nil, httpapi.BodyProblem(wrong)
	}
	reports := make([]adapt.Report, len(from.Reports))
	for i := range from.Reports {
		reports[i] = from.Reports[i].report("/reports/"+strconv.Itoa(i), &wrong)
	}
	return reports, httpapi.BodyProblem(wrong)
}

type reportJSON struct {
	Backend  string           `json:"backend"`
	Requests count            `json:"requests"`
	Errors   count            `json:"errors"`
	Latency  map[string]count `json:"latency_ms"` // by the name of the bucket
}

func (from *reportJSON) report(at string, wrong *mistakes) adapt.Report {
	report := adapt.Report{Backend: from.Backend}
	report.Requests, report.Errors = from.Requests.int64, from.Errors.int64
	for _, name := range slices.Sorted(maps.Keys(from.Latency)) {
		if bucket, known := latencyBounds[name]; known {
			report.Latency[bucket] = from.Latency[name].int64
		} else {
			wrong.add(at+"/latency_ms/"+name, "is no bucket; count the latencies in milliseconds up to "+boundNames()+
				" or, above them, "+aboveBounds)
		}
	}
	switch {
	case report.Backend == "":
		wrong.add(at+"/backend", "is missing or empty; send the name of the backend")
	case !rules.IsBackendName(report.Backend):
		wrong.add(at+"/backend", "must be the name of a backend, as rules have it: letters, digits, '_', '.' and '-'")
	}
	if !from.Requests.given {
		wrong.add(at+"/requests", "is missing; send how many requests there were")
		return report
	}
	if report.Errors > report.Requests {
		wrong.add(at+"/errors", fmt.Sprintf("must be at most the number of requests, %d", report.Requests))
	}
	if known := report.Latency.Count(); known > report.Requests {
		wrong.add(at+"/latency_ms", fmt.Sprintf(
			"counts %d requests; count each of the %d requests once, in the bucket of its latency", known,
			report.Requests))
	}
	return report
}

func boundNames() string {
	names := make([]string, len(adapt.Bounds))
	for i, bound := range adapt.Bounds {
		names[i] = strconv.FormatInt(bound, 10)
	}
	return strings.Join(names, ", ")
}

// AppendReported appends the answer to reports as a JSON object, with the ignored backends.
func AppendReported(b []byte, reports []adapt.Report, ignored []string) []byte {
	accepted := 0
	for i := range reports {
		if !slices.Contains(ignored, reports[i].Backend) {
			accepted++
		}
	}
	b = strconv.AppendInt(append(b, `{"accepted":`...), int64(accepted), 10)
	b = appendList(append(b, `,"ignored":`...), ignored, func(b []byte, backend *string) []byte {
		return httpapi.AppendText(b, *backend)
	})
	return append(b, '}')
}
