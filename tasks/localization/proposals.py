"""Boxes that may hold an object: selective search, run once for each image and kept on disk."""

import ctypes
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth import processes
from structsmooth.checkpoint import load_state, save_state
from structsmooth.files import keep
from structsmooth.messages import tracked
from structsmooth.settings import PositiveInt, check_settings
from structsmooth.tasks.images import cv2
from structsmooth.tasks.localization.images import Faults, ImageFile, decode

SearchMode = Literal["fast", "quality"]

# Images with a longer side are shrunk to it, which is the longer side of the images of PASCAL VOC.
_LONGEST_SIDE = 500
_SEED = 0
_TITLE = "selective search"


class Proposals(NamedTuple):
    """Boxes (xmin, ymin, xmax, ymax) proposed for an image, float32 [M, 4], and its size, all in pixels; M may be 0."""

    boxes: Tensor
    width: int
    height: int


@dataclass(frozen=True)
class SelectiveSearch:
    """OpenCV's selective search, with a folder that keeps its results.

    Files are named by the content of the image and the settings, and each is written atomically: an interrupted or
    killed run goes on where it was. The same image gives the same boxes in every run: OpenCV orders them with random
    numbers of the C library, which are seeded on POSIX systems. An image with a side longer than 500 pixels is shrunk
    to that size.

    Args:
        cache: folder for the results; made when needed.
        count: number of boxes to keep of an image, the first ones of the search.
        mode: ``"fast"``, or ``"quality"``, which searches more color spaces and takes several times as long.
        jobs: processes that search; one for each processor if not given. Processes of one run share the images out, and
            each of them has this many jobs.

    Raises:
        ValueError: a count or number of jobs below 1, or another mode.

    Reference:
        Uijlings et al. (2013), "Selective Search for Object Recognition".
    """

    cache: str | Path
    count: PositiveInt = 1000
    mode: SearchMode = "fast"
    jobs: PositiveInt | None = None

    def __post_init__(self) -> None:
        check_settings(self)

    def run(self, images: Sequence[ImageFile]) -> tuple[dict[ImageFile, Proposals], Faults]:
        """Proposals for all images that can be read, and what is wrong with the others.

        Raises:
            ImportError: OpenCV is not installed, or lacks its contributed modules.
        """
        _segmentation()
        faults = Faults()
        paths: dict[ImageFile, Path] = {}
        for image in images:
            with faults.noting(image):
                paths[image] = self._path(image.read_bytes())
        missing = {path: image for image, path in processes.share_out(paths.items()) if not path.is_file()}
        failed = {path: fault for part in processes.gathered(self._search(missing)) for path, fault in part.items()}
        for image, path in paths.items():
            if path in failed:
                faults.add(failed[path], str(image))
        return {image: _load(path) for image, path in paths.items() if path not in failed}, faults

    def _path(self, data: bytes) -> Path:
        return Path(self.cache) / "proposals" / f"{self.mode}-{self.count}" / f"{sha256(data).hexdigest()}.safetensors"

    def _search(self, missing: dict[Path, ImageFile]) -> dict[Path, str]:
        """Write the missing files; returns the faults of those that could not be written."""
        if not missing:
            return {}
        next(iter(missing)).parent.mkdir(parents=True, exist_ok=True)
        tasks = [(path, image, self.mode, self.count) for path, image in missing.items()]
        jobs = min(self.jobs or max(1, processes.processors() // processes.count()), len(tasks))
        if jobs == 1:
            results: Iterable[tuple[Path, str | None]] = map(_search_image, tasks)
            return {path: fault for path, fault in tracked(results, _TITLE, len(tasks)) if fault}
        # Processes, because the whole process shares the random numbers; spawned, because torch has threads.
        pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker)
        try:
            with interrupts_held():
                futures = [pool.submit(_search_image, task) for task in tasks]
            done = (future.result() for future in as_completed(futures))
            return {path: fault for path, fault in tracked(done, _TITLE, len(tasks)) if fault}
        except BrokenProcessPool as error:
            raise OSError("a process of selective search was killed; run again with fewer jobs to go on") from error
        finally:
            pool.shutdown(cancel_futures=True)


def selective_search(image: NDArray[np.uint8], count: int = 1000, mode: SearchMode = "fast") -> NDArray[np.float32]:
    """Boxes in an RGB image [height, width, 3] in the order of the search: float32 [M, 4] with M up to ``count``."""
    height, width = image.shape[:2]
    shrink = min(1.0, _LONGEST_SIDE / max(height, width))
    size = max(1, round(width * shrink)), max(1, round(height * shrink))
    if shrink < 1:
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    search = _segmentation().createSelectiveSearchSegmentation()
    search.setBaseImage(np.ascontiguousarray(image[:, :, ::-1]))
    search.switchToSelectiveSearchFast() if mode == "fast" else search.switchToSelectiveSearchQuality()
    if os.name == "posix":
        ctypes.CDLL(None).srand(_SEED)
    corner_and_size = np.asarray(search.process(), dtype=np.float64).reshape(-1, 4)[:count]
    boxes = np.hstack([corner_and_size[:, :2], corner_and_size[:, :2] + corner_and_size[:, 2:]])
    return np.asarray(boxes * np.tile([width / size[0], height / size[1]], 2), dtype=np.float32)


def _segmentation() -> Any:
    try:
        return cv2.ximgproc.segmentation
    except (ImportError, AttributeError) as error:
        raise ImportError("selective search needs OpenCV: pip install structsmooth[images]") from error


def _search_image(task: tuple[Path, ImageFile, SearchMode, int]) -> tuple[Path, str | None]:
    """Search one image and save the boxes; returns the path and the fault, if there is one."""
    path, file, mode, count = task
    try:
        image = decode(file.read_bytes())
        boxes = selective_search(image, count, mode)
    except (OSError, ValueError) as error:
        return path, str(error)
    except cv2.error as error:
        return path, f"selective search failed ({error.err})"
    size = {"width": image.shape[1], "height": image.shape[0]}
    keep(path, lambda target: save_state(target, {"boxes": torch.from_numpy(boxes)}, size))
    return path, None


def _load(path: Path) -> Proposals:
    tensors, values = load_state(path)
    return Proposals(tensors["boxes"], values["width"], values["height"])


@contextmanager
def interrupts_held() -> Iterator[None]:
    """A block in which Ctrl-C waits, and never reaches processes that start: they would complain while they load."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    """One thread, and silence on Ctrl-C: the main process ends the search."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
