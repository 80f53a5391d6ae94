"""`make bench-heartbeats`: what the heartbeats of 1,000 nodes cost one controller, on PostgreSQL.

controller.py  a PostgreSQL server, its rows, and a controller before it: the real `llmgw gateway` and `llmgw web`
settings.py    the product's settings; timing.py: beside them, what adds up the time of each call's queries
fleet.py       the nodes: signed heartbeats of three replicas each, every 30 s, each over a connection of its own
__main__.py    the measurement, the table, and var/bench/heartbeats.json
"""
