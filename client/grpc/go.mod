module github.com/sluicegate/sluice/client/grpc

go 1.26.0

require (
	github.com/sluicegate/sluice v0.1.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261005182115-fad411399dd8
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

// The client of this checkout; those who import this module get the released one.
replace github.com/sluicegate/sluice => ../../
