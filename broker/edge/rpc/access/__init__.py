"""Who calls, and what the call may do: checked where every call enters."""
