"""The only writers of the catalogue's tables: keyword arguments, an actor, one transaction, one event each."""
