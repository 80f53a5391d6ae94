"""Migrations: small, reversible, named for their reason, never edited once released."""
