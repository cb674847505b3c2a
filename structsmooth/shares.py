"""What belongs to each of several processes: whole files of many, or examples of one."""

import os

import numpy as np

from structsmooth import processes
from structsmooth.files import checksum, checksum_of_parts, shards


def process_share(n: int) -> range:
    """The numbers of this process's own examples.

    Raises:
        ValueError: fewer examples than processes.
    """
    if n < processes.count():
        raise ValueError(f"{processes.count()} processes need an example each, got {n} examples in all")
    return processes.share(n)


def own_files(path: str) -> list[str] | None:
    """The files that this process reads, of those that a pattern stands for: neighbours, as equal in bytes as may be.

    ``None`` if the files are so few, or so unequal, that a process would have none: then all read all of them.

    Raises:
        FileNotFoundError: no file matches the pattern.
    """
    files, count = shards(path), processes.count()
    if count == 1 or len(files) < count:
        return None
    sizes = np.array([os.path.getsize(file) for file in files])
    owners = (2 * sizes.cumsum() - sizes) * count // (2 * sizes.sum())  # of the byte in the middle of each file
    if len(np.unique(owners)) < count:
        return None
    return [file for file, owner in zip(files, owners, strict=True) if owner == processes.rank()]


def checksum_of_all(path: str) -> int:
    """The checksum of the training data of all processes, each of which reads its own files.

    Every process that joined calls it.

    Raises:
        OSError: a file that some process cannot read.
    """

    def own() -> tuple[list[int], int | None]:
        files = own_files(path)
        return ([], checksum(path)) if files is None else (list(map(checksum, files)), None)

    parts, whole = processes.run_on_all_ranks(own)
    return checksum_of_parts(processes.concatenated(parts)) if whole is None else whole
