package devdb

import (
	"fmt"
	"os"
	"strconv"
)

// Port is a reserved loopback port: a server that names it can listen, but the system gives it to nobody else, so a
// killed server can come back at its address. On systems other than Linux it is only a port that was free a moment ago.
type Port struct {
	number int
	kept   *os.File // a bound socket that does not listen; nil except on Linux
}

// ReservePort reserves a free port.
func ReservePort() (*Port, error) {
	number, kept, err := reservePort()
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return &Port{number, kept}, nil
}

// Addr returns host:port.
func (p *Port) Addr() string { return address(p.number) }

func (p *Port) String() string { return strconv.Itoa(p.number) }

// Release ends the reservation.
func (p *Port) Release() {
	if p.kept != nil {
		_ = p.kept.Close() // fails only if released before
	}
}
