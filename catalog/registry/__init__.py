"""The registry of models (the Hugging Face Hub, or a mirror that speaks its API), asked over HTTP. No tables, no Django.

`client` asks, `answers` tells refusals apart, `ranges` reads the beginning of a file that is far away. Nothing here waits for
better times: a refusal that time cures says after how many seconds (`retry_after`), and whoever asked decides.
"""
