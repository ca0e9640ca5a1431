"""What the embedded queue decides: names, keys, ids, pages, positions, retention. No I/O."""
