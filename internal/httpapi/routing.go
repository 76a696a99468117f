package httpapi

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"
)

// PathParam returns a path parameter of the matched route, or "".
func PathParam(r *http.Request, name string) string { return mux.Vars(r)[name] }

// AnswerUnmatched makes a router answer unknown paths and methods with problem documents, as the route "unmatched", so
// that callers cannot invent route names.
func AnswerUnmatched(router *mux.Router, requests *Requests) {
	router.NotFoundHandler = requests.Route("unmatched", func(http.ResponseWriter, *http.Request) error {
		return NotFound.Problem("No resource has this path; compare it with the API description.")
	})
	router.MethodNotAllowedHandler = requests.Route("unmatched", func(w http.ResponseWriter, r *http.Request) error {
		allow := strings.Join(allowedMethods(router, r), ", ")
		w.Header().Set("Allow", allow)
		return WrongMethod.Problem("Use one of: " + allow + ".")
	})
}

func allowedMethods(router *mux.Router, r *http.Request) []string {
	var allowed []string
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		probe := *r
		probe.Method = method
		var match mux.RouteMatch
		if router.Match(&probe, &match) && match.MatchErr == nil {
			allowed = append(allowed, method)
		}
	}
	return allowed
}
