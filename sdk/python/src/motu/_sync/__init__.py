# Written by generate.py; change that, or what it reads.
"""The synchronous client, made from `_aio`."""
