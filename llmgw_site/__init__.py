"""The porch: settings, urls, asgi, CLI, console and the all-in-one start. Composes; starts nothing when imported."""
