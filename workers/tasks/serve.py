"""The steps of a serve job. Each bears being begun again."""
