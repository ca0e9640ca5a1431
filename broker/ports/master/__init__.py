"""What the master needs from outside, and what others may ask of it."""
