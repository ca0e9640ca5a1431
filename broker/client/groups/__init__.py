"""Consumer groups: members that share the messages of a collection."""
