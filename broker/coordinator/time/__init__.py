"""The timestamp oracle, and the durable bound below which it hands out ticks."""
