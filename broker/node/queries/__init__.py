"""Questions about several pchannels at once: cuts, and counts over a span of ticks."""
