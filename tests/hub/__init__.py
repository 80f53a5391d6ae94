"""A small hub for the tests: the API of the Hugging Face Hub over real HTTP, with real files and faults to switch on.

`repos` holds what there is, `app` answers, `faults` spoils, `serve` runs it. `test_faithful.py` runs the hub's own client
(`huggingface_hub`) against it.
"""
