"""The whole of llmgw, as its users meet it."""
