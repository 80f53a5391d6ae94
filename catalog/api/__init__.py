"""The catalogue's part of the admin API. Each write is one call of a service; permissions are Django's."""
