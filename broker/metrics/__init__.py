"""What a process tells Prometheus: one table of names, and the port that serves them.

Everything is counted elsewhere and read here when somebody looks.
"""
