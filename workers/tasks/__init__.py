"""Celery tasks. Each looks at the rows, does a short piece of work outside any transaction, and comes back."""
