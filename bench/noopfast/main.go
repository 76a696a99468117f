// Command noopfast is the no-op server on the HTTP server that Sluice's checks stand on: what is left between it
// and a check is Sluice's own.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/valyala/fasthttp"
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
	fmt.Fprintln(os.Stderr, "listening", listener.Addr())
	panic(fasthttp.Serve(listener, func(c *fasthttp.RequestCtx) {
		var check map[string]any
		if json.Unmarshal(c.PostBody(), &check) == nil {
			for name, values := range recorded.Header {
				c.Response.Header.Set(name, values[0])
			}
			c.Response.SetBody(recorded.Body)
		}
	}))
}
