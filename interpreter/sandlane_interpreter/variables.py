"""Environment variables of one call, set and taken back inside a Python kernel."""

import os

_before = {}


def set(values, keep):
    """Sets the variables; with `keep`, what they were is noted for `restore`."""
    if keep:
        _before.update({name: os.environ.get(name) for name in values})
    os.environ.update(values)


def restore():
    """Brings back what `set` noted, and forgets it."""
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _before.clear()
