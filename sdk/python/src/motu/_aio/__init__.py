"""The asynchronous client. `generate.py` makes its synchronous twin, `_sync`."""
