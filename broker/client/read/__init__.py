"""Reading: subscriptions to vchannels, and the scanners that a program iterates over."""
