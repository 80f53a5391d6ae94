"""The cluster harness: real nodes as processes on one machine, with links between them that can be broken.

    stores.py    PostgreSQL and Valkey of the controllers
    links.py     the small proxy before each node: slow, refuse, silent, blackhole, reset, partition
    node.py      one node: its folder, addresses, processes, logs
    cluster.py   the whole: start, use, break, mend, end
    reaper.py    ends everything if the run is ended from outside
    load.py      many requests at once, and what became of each

docs/testing.md says how to run a test on it and how to read what it leaves.
"""
