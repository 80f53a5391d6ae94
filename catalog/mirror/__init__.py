"""Weights fetched once, checked, and kept. Files only: no tables, no Django, no event loop.

`fetch` brings one file whole over several connections and goes on after any interruption; `parts` is its memory on disk.
"""
