package httpapi

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"
)

// PathParam returns a path parameter of the route that matched, or "" if it has none of that name.
func PathParam(r *http.Request, name string) string { return mux.Vars(r)[name] }

// AnswerUnmatched makes a router answer paths and methods it has no route for with problem
// documents. Both count as one route, "unmatched", so that nobody can make up route names.
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

// allowedMethods asks the router itself, so that Allow cannot differ from the routes.
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
