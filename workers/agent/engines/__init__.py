"""Engines: one adapter per kind behind the protocol in `base.py`; `launcher.py` is a program, run as the engine itself."""
