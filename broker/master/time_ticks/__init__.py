"""The time tick producer: reports of proxies and write nodes in, one message a tick on channels."""
