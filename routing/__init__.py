"""The hall: requests in, tokens out.

A request: gateway/app.py takes it, auth.py turns the bearer into a key, domain/openai.py reads the body,
domain/choose.py picks a replica from the snapshot that table.py holds, forward.py pumps bytes through
upstream.py, domain/sse.py and domain/meter.py read along, ledger.py writes the usage record to the spool.
Controllers compile the snapshot in selectors.py and take usage records in through services.py.
Imports guard, cluster, catalog, lib; never workers.
"""
