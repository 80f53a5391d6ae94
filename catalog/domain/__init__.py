"""Pure: values in, values out. GGUF headers, engine arguments, key format, memory arithmetic."""
