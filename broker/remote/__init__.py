"""What is on the other side of a socket, as the ports a coordinator or a node knows it by.

Owns the calls between the processes of one cluster. Nothing in broker/node or broker/coordinator
knows that it exists: the app puts it in.
"""
