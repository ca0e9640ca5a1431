"""Consumer groups on the wire: tidemark.v1.Groups."""
