"""HTTP/1.1: connections, their limits, and the messages that handlers see."""
