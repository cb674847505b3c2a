"""The modules of the project by the names they install as: models/ and tasks/ are packages of structsmooth."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = {"structsmooth": "structsmooth", "models": "structsmooth.models", "tasks": "structsmooth.tasks"}
EVERYTHING = {**LIBRARY, "scripts": "scripts"}


def modules(folders: dict[str, str]) -> dict[str, Path]:
    """Every module of some folders by its installed name; the module of a package ends in ``__init__``."""
    return {
        ".".join([package, *path.relative_to(ROOT / folder).with_suffix("").parts]): path
        for folder, package in folders.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def module_names(folders: dict[str, str]) -> list[str]:
    """The same modules by the names they are imported by."""
    return [name.removesuffix(".__init__") for name in modules(folders)]
