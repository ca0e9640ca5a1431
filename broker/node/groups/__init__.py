"""Consumer groups: actors that lease messages of a vchannel to members."""
