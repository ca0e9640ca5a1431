module tidemark.example/go_producer

go 1.24

require (
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250227231956-55c901821b1e
	google.golang.org/grpc v1.71.0
	google.golang.org/protobuf v1.36.5
)

require (
	golang.org/x/net v0.34.0 // indirect
	golang.org/x/sys v0.29.0 // indirect
	golang.org/x/text v0.21.0 // indirect
)
