// Command noop is the no-op server that the benchmarks divide by. A request is decoded like a check, and answered with
// a recorded answer of Sluice.
//
//	noop nethttp ANSWER     the least on net/http: listener settings and mux of Sluice's admin API, encoding/json
//	noop fasthttp ANSWER    on the HTTP server of Sluice's checks, so the rest of a check is Sluice's own
package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"

	"github.com/gorilla/mux"
	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/httpapi"
)

type answer struct {
	Header http.Header
	Body   []byte
}

func main() {
	var recorded answer
	err := json.Unmarshal([]byte(os.Args[2]), &recorded)
	listener, listenErr := net.Listen("tcp", "127.0.0.1:0")
	if err != nil || listenErr != nil {
		panic(fmt.Sprint(err, listenErr))
	}
	fmt.Fprintln(os.Stderr, "listening", listener.Addr())
	if os.Args[1] == "fasthttp" {
		panic(fasthttp.Serve(listener, recorded.serveFast))
	}
	router := mux.NewRouter().SkipClean(true)
	router.HandleFunc("/v1/check", recorded.serve).Methods(http.MethodPost)
	panic(httpapi.NewServer(router, slog.New(slog.DiscardHandler)).Serve(listener))
}

func (a *answer) serve(w http.ResponseWriter, r *http.Request) {
	var check map[string]any
	if json.NewDecoder(r.Body).Decode(&check) == nil {
		maps.Copy(w.Header(), a.Header)
		_, _ = w.Write(a.Body)
	}
}

func (a *answer) serveFast(c *fasthttp.RequestCtx) {
	var check map[string]any
	if json.Unmarshal(c.PostBody(), &check) == nil {
		for name, values := range a.Header {
			c.Response.Header.Set(name, values[0])
		}
		c.Response.SetBody(a.Body)
	}
}
