"""Messages and responses for engines and providers that speak chat completions only: the request there, the answer back.

Pure: bodies in, bodies out; events in, events out. `chat.py` reads what a chat says, the others write it in their own words.
"""
