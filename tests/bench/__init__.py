"""`make bench`: what the data path costs, beside nginx proxying the same upstream in the same run.

stub.py        a fast upstream, its own process
load.py        the load generator, raw asyncio protocols
contenders.py  direct, nginx, and the real `llmgw gateway` with key, snapshot, spool and access log
measure.py     CPU and memory of a process tree
rounds.py      the measurements; report.py: the table, the ratios and var/bench/gateway.json
"""
