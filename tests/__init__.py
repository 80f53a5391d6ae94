"""Tests mirror the tree: the test of a/b/c.py is tests/a/b/test_c.py."""
