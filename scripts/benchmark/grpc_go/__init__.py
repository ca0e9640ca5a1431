"""A client whose bytes on the wire are those of grpc-go: its frames, windows, pings and writes."""
