"""The allocator of ids: a durable counter with reserved ranges."""
