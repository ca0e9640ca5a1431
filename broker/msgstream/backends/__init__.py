"""The logs that streams run on: Tidemark, memory, and RocksMQ."""
