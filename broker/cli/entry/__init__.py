"""The module that the installed command starts with."""
