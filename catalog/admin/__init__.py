"""The catalogue's pages in the console. Every save is a call of a service."""
