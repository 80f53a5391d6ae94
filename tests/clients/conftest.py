"""The stack that the tests of this folder share."""

from tests.stack import fresh_stack, more_models, shared_stack, stack

__all__ = ["fresh_stack", "more_models", "shared_stack", "stack"]
