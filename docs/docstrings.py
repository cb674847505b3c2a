"""Docstrings of the reference: Sphinx roles become links, and examples become code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod):`~?([\w.]+)`")
_EXAMPLE = re.compile(r"^( *)Example:$", re.M)


class Docstrings(griffe.Extension):
    """Rewrites the docstrings of a package when all of it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Translate every docstring of ``pkg``."""
        for owner in _objects(pkg):
            if owner.docstring is not None:
                owner.docstring.value = _translate(owner, owner.docstring.value)


def _objects(parent: griffe.Object) -> Iterator[griffe.Object]:
    yield parent
    for member in parent.members.values():
        if isinstance(member, griffe.Object):
            yield from _objects(member)


def _translate(owner: griffe.Object, text: str) -> str:
    # Griffe knows the section by its plural only.
    return _ROLE.sub(lambda role: _link(owner, role[1]), _EXAMPLE.sub(r"\1Examples:", text))


def _link(owner: griffe.Object, name: str) -> str:
    """A link to what ``name`` means in the docstring of ``owner``; plain code if the reference does not have it."""
    label = f"<code>{name.rpartition('.')[2]}</code>"
    try:
        target = owner.resolve(name)
    except griffe.NameResolutionError:
        target = name
    return f'<autoref identifier="{target}" optional>{label}</autoref>'
