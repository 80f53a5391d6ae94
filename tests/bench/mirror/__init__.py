"""How fast a node gives weights to another: the real gateway's node listener beside nginx, same file, same client, no TLS.

Both send one file that lies in the page cache over one connection, and over four (ranges, as nodes fetch), to a client that reads and throws
away. What a node's own checking and writing costs is measured apart, with the code that nodes fetch with. The gateway's memory is
looked at all the time.
"""
