"""How dates are written, a folder for each language (Django's FORMAT_MODULE_PATH)."""
