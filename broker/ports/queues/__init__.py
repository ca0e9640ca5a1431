"""What the embedded queue needs of a store, and what every queue promises."""
