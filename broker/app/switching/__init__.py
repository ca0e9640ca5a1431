"""Switches the logs of a running process between drivers."""
