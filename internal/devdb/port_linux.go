package devdb

import (
	"fmt"
	"os"
	"syscall"
)

// reservePort binds a socket with SO_REUSEADDR, without listening: a server that names the port with the same option,
// as all do, can listen on it.
func reservePort() (number int, kept *os.File, err error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, fmt.Errorf("make a socket: %w", err)
	}
	kept = os.NewFile(uintptr(socket), "reserved port")
	defer func() {
		if err != nil {
			_ = kept.Close()
		}
	}()
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, nil, fmt.Errorf("share its port: %w", err)
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, nil, fmt.Errorf("bind it: %w", err)
	}
	name, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, nil, fmt.Errorf("ask for its port: %w", err)
	}
	return name.(*syscall.SockaddrInet4).Port, kept, nil
}
