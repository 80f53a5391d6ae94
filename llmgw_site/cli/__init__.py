"""The command line: one file per noun, and the commands that start services.

Nouns talk to the admin API as any client would (`client.py`); service commands start processes. Nothing here imports
Django, and what is heavy is imported inside the command that needs it, so that `llmgw --help` stays quick.
"""
