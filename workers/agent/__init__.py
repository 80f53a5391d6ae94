"""The node agent: heartbeats, hardware readings, engines, shipping of usage records. Imports without Django.

`machine.py` decides (events in, instructions out), `loop.py` acts, everything else is one hand each.
Engines are detached children; they outlive the agent, which adopts them again.
"""
