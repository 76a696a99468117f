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

// tell turns the error of a post into one that the tenant may read, without the URL, whose query may hold a
// secret, and without resolvers, names and addresses of this network.
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
	case isNetwork: // the OpError itself names the addresses of both ends
		return fmt.Errorf("the connection failed: %w", dialled.Err)
	}
	return err
}

func isTimeout(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout()
}
