"""The data path: an async room without Django. Everything a request needs is in memory, from the snapshot.

Opened only by the CLI (`llmgw gateway`) and the site's asgi. `lifespan.py` is the only place where its parts meet.
"""
