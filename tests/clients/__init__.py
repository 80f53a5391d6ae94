"""Clients in other languages against a running llmgw; `make clients` installs them and runs these tests, and nothing else does."""
