"""Rules of growing segments: which segment a row goes to, and when one is sealed."""
