"""How a broker answers overload: watermarks of disk and memory, token buckets, rate limits."""
