package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
)

// tell makes an error of a post one that its tenant may read: it says what to look at, and neither the URL,
// whose query may hold a secret, nor which resolver, names and addresses there are inside this network.
func tell(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	_, isLookup := errors.AsType[*net.DNSError](err)
	dialled, isNetwork := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, ErrForbidden):
		return ErrForbidden
	case isLookup:
		return errors.New("the name of the host does not resolve")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return errors.New("the receiver did not answer in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the receiver closed the connection without an answer")
	case isNetwork: // its text has the addresses of both ends
		return fmt.Errorf("the connection failed: %w", dialled.Err)
	}
	return err
}

func isTimeout(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout()
}
