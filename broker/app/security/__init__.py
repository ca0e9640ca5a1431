"""TLS of a process: its certificates, what it refuses without them, and when they end."""
