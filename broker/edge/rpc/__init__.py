"""What every gRPC handler shares: middleware, flow control, metadata, limits."""
