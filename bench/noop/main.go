// Command noop is what the benchmarks divide by: the least that a check endpoint on net/http can do. It has
// the listener settings and mux of Sluice's admin API, decodes the same body with encoding/json, and writes an answer
// that was recorded from Sluice, headers included.
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

	"github.com/sluicegate/sluice/internal/httpapi"
)

func main() {
	var recorded struct {
		Header http.Header
		Body   []byte
	}
	err := json.Unmarshal([]byte(os.Args[1]), &recorded)
	listener, listenErr := net.Listen("tcp", "127.0.0.1:0")
	if err != nil || listenErr != nil {
		panic(fmt.Sprint(err, listenErr))
	}
	router := mux.NewRouter().SkipClean(true)
	router.HandleFunc("/v1/check", func(w http.ResponseWriter, r *http.Request) {
		var check map[string]any
		if json.NewDecoder(r.Body).Decode(&check) == nil {
			maps.Copy(w.Header(), recorded.Header)
			_, _ = w.Write(recorded.Body)
		}
	}).Methods(http.MethodPost)
	fmt.Fprintln(os.Stderr, "listening", listener.Addr())
	panic(httpapi.NewServer(router, slog.New(slog.DiscardHandler)).Serve(listener))
}
