//go:build unix && !linux

package devdb

import (
	"net"
	"os"
)

// reservePort cannot keep the port bound: these systems would refuse it to the server.
func reservePort() (number int, kept *os.File, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	return l.Addr().(*net.TCPAddr).Port, nil, l.Close()
}
