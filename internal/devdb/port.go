package devdb

import (
	"fmt"
	"os"
	"strconv"
)

// Port is a loopback port that the system gives to nobody who asks for any free one, nor takes for an outgoing
// connection, until it is released: whoever names it can still listen on it, and while nobody does,
// connections are refused. So a server that was killed can come back at its address.
//
// Only Linux keeps ports so; elsewhere it is one that was free a moment ago.
type Port struct {
	number int
	kept   *os.File // a socket that is bound and does not listen; nil elsewhere
}

// ReservePort returns a port that nobody uses.
func ReservePort() (*Port, error) {
	number, kept, err := reservePort()
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return &Port{number, kept}, nil
}

// Addr is host:port.
func (p *Port) Addr() string { return address(p.number) }

func (p *Port) String() string { return strconv.Itoa(p.number) }

// Release lets the system give the port to others.
func (p *Port) Release() {
	if p.kept != nil {
		_ = p.kept.Close() // fails only if it was released already
	}
}
