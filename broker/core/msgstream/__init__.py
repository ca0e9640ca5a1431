"""Rules of message streams: which bucket a message goes to, and which window it comes in."""
