"""The systems and the bare disk loop that Tidemark is measured beside."""
