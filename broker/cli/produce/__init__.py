"""The input of `tidemark produce`: files and stdin, lines and typed rows, and where it stands."""
