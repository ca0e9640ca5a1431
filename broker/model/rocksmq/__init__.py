"""Values of the embedded queue."""
