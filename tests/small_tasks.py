"""Small data of every task, for the contract that all tasks are put through and for the tests of each."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boxed_images
import images
import numpy as np
import pose_images
import pytest
import scene_images
import signals
import treebanks

from structsmooth import BCFW, CasimirSVRG, SoftBCFW
from structsmooth.solvers import Solver
from structsmooth.tasks import FittedTask, Task, load_task
from structsmooth.tasks.localization import Detection
from structsmooth.tasks.localization.box_features import BACKBONES
from structsmooth.tasks.parsing.data import read_trees
from structsmooth.text.conll import read_conll

NAMES = {"John Smith": "PER", "Ada": "PER", "Acme Corp": "ORG", "New York City": "LOC"}
SUBJECTS = ["The DT B-NP\nold JJ I-NP\ncat NN I-NP", "He PRP B-NP", "Mary NNP B-NP"]
VERBS = ["slept VBD B-VP", "has VBZ B-VP\nbeen VBN I-VP\nsleeping VBG I-VP"]
PLACES = ["in IN B-PP\nthe DT B-NP\nhouse NN I-NP", "there RB B-ADVP"]
CHUNKS = "".join(f"{s}\n{v}\n{p}\n. . O\n\n" for s in SUBJECTS for v in VERBS for p in PLACES)
WORDS = ["abba", "cab", "dada", "bead", "ace", "z"]
BOXES = {
    **{f"dog{i}": [("dog", (6 + 3 * i, 5, 30 + 3 * i, 25))] for i in range(5)},
    **{f"cat{i}": [("cat", (10, 4 + 2 * i, 36, 26 + 2 * i))] for i in range(4)},
}


@dataclass(frozen=True)
class Case:
    """A task on small data.

    Attributes:
        name: on the command line.
        write: writes data into a folder, labelled or not; returns the path.
        spoil: writes a malformed file into a folder; returns its path, and where in it the fault is.
        gold: the label of an example, as an output.
        key: an output as something that can be compared and hashed.
        read_back: keys of the best outputs in what the task wrote.
        default_data: files of the data in the folder of larger data sets; none if the package has them.
        settings: of the task; all have flags.
        variants: other settings.
        solver: learns the data.
        lam: for the solver.
        passes: for the solver.
        reached: metrics on the training data after that, at least.
        unlabelled: what the task says of examples without labels.
    """

    name: str
    write: Callable[[Path, bool], str]
    spoil: Callable[[Path], tuple[str, str]]
    gold: Callable[[Any], Any]
    key: Callable[[Any], Any]
    read_back: Callable[[str, Sequence[Any]], list[Any]]
    reached: dict[str, float]
    unlabelled: str
    settings: dict[str, Any] = field(default_factory=dict)
    variants: tuple[dict[str, Any], ...] = ()
    solver: Solver[Any] = field(default_factory=BCFW)
    lam: float = 1.0
    passes: int = 400
    default_data: tuple[str, ...] = ()

    @property
    def task_type(self) -> type[Task]:
        return load_task(self.name)

    def placed(self, folder: Path) -> dict[str, Any]:
        """The settings, with caches in the folder."""
        return self.settings | ({"features_cache": str(folder / "cache")} if self.name == "localization" else {})

    def task(self, folder: Path, **settings: Any) -> Task:
        """The task with the settings of the case, or some others."""
        return self.task_type(**(self.placed(folder) | settings))

    def flags(self, folder: Path, **settings: Any) -> list[str]:
        """The same on the command line."""
        texts: list[str] = []
        for name, value in (self.placed(folder) | settings).items():
            flag = name.replace("_", "-")
            texts += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
        return texts


@dataclass(frozen=True)
class Trained:
    """A case in a folder, and what came of its training."""

    case: Case
    folder: Path
    path: str
    task: Task
    examples: list[Any]
    fitted: FittedTask
    result: Any

    @property
    def weights(self) -> Any:
        return self.result.weights

    def outputs(self, examples: Sequence[Any] | None = None) -> list[Any]:
        """The best output of each example."""
        examples = self.examples if examples is None else examples
        return [ranked[0][1] for ranked in self.fitted.predict(self.weights, examples)]


def trained(case: Case, folder: Path) -> Trained:
    path, task = case.write(folder, True), case.task(folder)
    examples = task.read(path)
    fitted = task.fit(examples)
    result = case.solver.solve(fitted.problem(examples), lam=case.lam, passes=case.passes)
    return Trained(case, folder, path, task, examples, fitted, result)


def small_networks(patch: pytest.MonkeyPatch) -> None:
    """A backbone that is small and random."""
    patch.setitem(BACKBONES, "tiny", boxed_images.tiny)


# Column files.


def entities(tag: Callable[[str, str], str] = lambda prefix, kind: f"{prefix}-{kind}") -> str:
    """Sentences of three columns in the scheme BIO: two names with a verb between them."""
    lines = []
    for first, first_kind in NAMES.items():
        for second, second_kind in NAMES.items():
            for i, word in enumerate(first.split()):
                lines.append(f"{word} NNP {tag('BI'[i > 0], first_kind)}")
            lines.append("visited VBD O")
            for i, word in enumerate(second.split()):
                lines.append(f"{word} NNP {tag('BI'[i > 0], second_kind)}")
            lines += [". . O", ""]
    return "\n".join(lines)


def untagged(text: str) -> str:
    return "\n".join(" ".join(line.split()[:-1]) for line in text.splitlines())


def column_file(text: str) -> Callable[[Path, bool], str]:
    def write(folder: Path, labelled: bool) -> str:
        path = folder / ("train.txt" if labelled else "words.txt")
        path.write_text(text if labelled else untagged(text))
        return str(path)

    return write


def spoiled_columns(folder: Path) -> tuple[str, str]:
    (folder / "bad.txt").write_text("The DT B-NP\n\ncat NN X-NP\n")
    return str(folder / "bad.txt"), ":3: "


def read_tags(text: str, _: Sequence[Any]) -> list[tuple[str, ...]]:
    return [tuple(sentence.tags or ()) for sentence in read_conll(io.StringIO(text))]


NO_TAGS = "these sentences have no tags|expected a word and a tag|bad tag"
NER = Case(
    "ner",
    column_file(entities()),
    spoiled_columns,
    gold=lambda sentence: sentence.tags,
    key=tuple,
    read_back=read_tags,
    reached={"f1": 1.0},
    unlabelled=NO_TAGS,
    settings={"bits": 10},
    variants=({"bits": 0}, {"rich": False}, {"scheme": "BIOES", "rich": True}),
    solver=CasimirSVRG(),
    lam=1e-3,
    passes=10,
)
CHUNKING = Case(
    "chunking",
    column_file(CHUNKS),
    spoiled_columns,
    gold=lambda sentence: sentence.tags,
    key=tuple,
    read_back=read_tags,
    reached={"f1": 1.0},
    unlabelled=NO_TAGS,
    variants=({"bits": 12}, {"scheme": "BIOES"}),
    default_data=("conll2000/train.txt.gz", "conll2000/test.txt.gz"),
)

# Handwritten words.


def letters(words: Sequence[str] = WORDS, noise: float = 0.0) -> dict[str, np.ndarray]:
    """An archive of words; each letter has its own picture, with some pixels flipped. Words alternate between folds."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 2, (26, 128), dtype=np.uint8)
    labels = np.array([ord(letter) - ord("a") for word in words for letter in word], dtype=np.uint8)
    flips = rng.random((len(labels), 128)) < noise
    return {
        "pixels": pictures[labels] ^ flips.astype(np.uint8),
        "labels": labels,
        "word_start": np.cumsum([0, *map(len, words)]).astype(np.int32),
        "word_fold": (np.arange(len(words)) % 2).astype(np.uint8),
    }


def save_letters(folder: Path, name: str = "letters.npz", **changed: Any) -> str:
    """The path of an archive; arrays that are ``None`` are left out."""
    arrays = letters(noise=0.1) | changed
    np.savez(folder / name, **{key: array for key, array in arrays.items() if array is not None})
    return str(folder / name)


def write_letters(folder: Path, labelled: bool) -> str:
    return save_letters(folder) if labelled else save_letters(folder, "new.npz", labels=None)


def spoiled_letters(folder: Path) -> tuple[str, str]:
    return save_letters(folder, "bad.npz", labels=letters()["labels"] + 1), ": labels must be from 0 to 25"


OCR = Case(
    "ocr",
    write_letters,
    spoiled_letters,
    gold=lambda word: word.text,
    key=str,
    read_back=lambda text, _: text.splitlines(),
    reached={"letter_accuracy": 1.0, "word_accuracy": 1.0},
    unlabelled="these words have no labels",
    default_data=("ocr/ocr_letters.npz",),
)

# Sets of labels.


def tagged(count: int = 24) -> tuple[np.ndarray, list[list[str]]]:
    """Features, and labels that follow from them; the third is there if just one of the others is."""
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(count, 3)), 3)
    x[:2] = [[1, -1, 0.5], [-1, 1, 0.5]]
    return x, [
        [name for name, there in (("a", a > 0), ("b", b > 0), ("c", c > 0)) if there] or ["none"] for a, b, c in x
    ]


def write_svmlight(folder: Path, labelled: bool, name: str | None = None) -> str:
    x, sets = tagged()
    lines = [
        ("" if not labelled else ",".join(own)) + "".join(f" {i}:{v}" for i, v in enumerate(row, 1))
        for row, own in zip(x, sets, strict=True)
    ]
    path = folder / (name or ("train.svm" if labelled else "new.svm"))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def spoiled_svmlight(folder: Path) -> tuple[str, str]:
    (folder / "bad.svm").write_text("a,b 1:0.5\na 1:x\n")
    return str(folder / "bad.svm"), ":2: expected index:value"


def read_sets(text: str, _: Sequence[Any]) -> list[tuple[str, ...]]:
    return [tuple(json.loads(line)["sets"][0]["labels"]) for line in text.splitlines()]


MULTILABEL = Case(
    "multilabel",
    write_svmlight,
    spoiled_svmlight,
    gold=lambda example: tuple(sorted(example.labels)),
    key=tuple,
    read_back=read_sets,
    reached={"example_f1": 0.97, "subset_accuracy": 0.95},
    unlabelled="these examples have no labels",
    variants=({"pairs": "tree"}, {"pairs": "none"}, {"scaling": "standard"}),
    solver=BCFW(),
    lam=1e-3,
    passes=60,
    default_data=("yeast/yeast.npz",),
)

# Word alignment.

DICTIONARY = {"la": "the", "maison": "house", "fleur": "flower", "bleue": "blue", "petite": "small", "voit": "sees"}
TEXTS = {
    "la maison bleue": "the blue house",
    "la petite fleur": "the small flower",
    "la petite maison": "the small house",
    "la fleur bleue": "the blue flower",
    "la maison voit la fleur": "the house sees the flower",
    "la petite fleur voit la maison bleue": "the small flower sees the blue house",
    "petite maison .": "small house .",
    "la fleur .": "the flower .",
}


def sentence_pairs(labelled: bool) -> list[str]:
    """Lines of sentences; links are those of the dictionary, words in their order."""
    lines = []
    for source, target in TEXTS.items():
        free, links = list(enumerate(target.split())), []
        for i, word in enumerate(source.split()):
            j = next(j for j, other in free if other == DICTIONARY.get(word, word))
            free = [own for own in free if own[0] != j]
            links.append(f"{i}-{j}")
        lines.append(" ||| ".join([source, target, *([" ".join(links)] if labelled else [])]))
    return lines


def write_pairs(folder: Path, labelled: bool) -> str:
    path = folder / ("train.txt" if labelled else "new.txt")
    path.write_text("\n".join(sentence_pairs(labelled)) + "\n")
    return str(path)


def spoiled_pairs(folder: Path) -> tuple[str, str]:
    (folder / "bad.txt").write_text("la maison ||| the house ||| 0-0 1-1\nla fleur ||| the flower ||| 0-0 1-2\n")
    return str(folder / "bad.txt"), ":2: link 1-2 is outside sentences of 2 and 2 words"


def read_links(text: str, _: Sequence[Any]) -> list[tuple[tuple[int, ...], ...]]:
    return [tuple(tuple(map(int, link.split("-"))) for link in line.split()) for line in text.splitlines()]


ALIGNMENT = Case(
    "alignment",
    write_pairs,
    spoiled_pairs,
    gold=lambda pair: tuple(sorted(pair.sure)),
    key=tuple,
    read_back=read_links,
    reached={"precision": 1.0, "recall": 1.0},
    unlabelled="these sentences have no links",
    variants=({"leave_out": "neighbours,spelling"}, {"missed": 1.0, "link_format": "naacl"}),
    lam=1e-2,
    passes=60,
    default_data=("hansards",),
)

# Images.


def write_ellipses(folder: Path, labelled: bool) -> str:
    return images.write_all(folder / ("data" if labelled else "new"), 6, masks=labelled)


def spoiled_images(folder: Path) -> tuple[str, str]:
    images.write_all(folder / "bad", 2)
    (folder / "bad" / "images" / "e01.png").write_bytes(b"no image")
    return str(folder / "bad"), r"/images/e01\.png: no image"


def read_runs(text: str, pictures: Sequence[Any]) -> list[bytes]:
    lines = [json.loads(line) for line in text.splitlines()]
    best = [line["outputs"][0] for line in lines]
    assert [line["image"] for line in lines] == [p.name for p in pictures]
    assert [own["size"] for own in best] == [[*p.image.shape[:2]] for p in pictures]
    runs = [own["runs"] for own in best]
    return [np.repeat(np.arange(len(lengths)) % 2 == 1, lengths).tobytes() for lengths in runs]


SEGMENTATION = Case(
    "segmentation",
    write_ellipses,
    spoiled_images,
    gold=lambda picture: picture.mask,
    key=lambda mask: mask.tobytes(),
    read_back=read_runs,
    reached={"iou": 0.75, "accuracy": 0.93},
    unlabelled="e00 has no mask",
    settings={"colours": 6, "textures": 6},
    variants=({"pairwise": False},),
    lam=10 / 6,
    passes=15,
    default_data=("weizmann_horse/weizmann_horse_250.zip",),
)


def write_scenes(folder: Path, labelled: bool) -> str:
    return scene_images.write_all(folder / ("scenes" if labelled else "new"), 6, labelled)


def spoiled_scenes(folder: Path) -> tuple[str, str]:
    path = Path(scene_images.write_all(folder / "bad", 2))
    (path / "labels" / "s01.png").write_bytes((path / "images" / "s01.png").read_bytes())
    return str(path), r"/labels/s01\.png: expected one byte for each pixel"


def read_label_maps(text: str, scenes: Sequence[Any]) -> list[bytes]:
    lines = [json.loads(line) for line in text.splitlines()]
    best = [line["outputs"][0] for line in lines]
    assert [line["image"] for line in lines] == [s.name for s in scenes]
    assert [own["size"] for own in best] == [[*s.image.shape[:2]] for s in scenes]
    runs = [np.array(own["runs"]) for own in best]
    return [np.repeat(own[:, 0], own[:, 1]).astype(np.uint8).tobytes() for own in runs]


SCENES = Case(
    "scenes",
    write_scenes,
    spoiled_scenes,
    gold=lambda scene: scene.labels,
    key=lambda labels: labels.tobytes(),
    read_back=read_label_maps,
    reached={"pixel_accuracy": 0.97, "mean_iou": 0.95},
    unlabelled="s00 has no labels",
    settings={"side": 12, "colours": 6, "textures": 6},
    variants=({"graph": "stars"}, {"graph": "none"}, {"side": 16}),
    solver=SoftBCFW(rho=1.0, penalty="constant"),
    passes=50,
    default_data=("msrc21/msrc21_250.zip",),
)


def write_boxes(folder: Path, labelled: bool) -> str:
    table = boxed_images.write_all(folder, BOXES)
    if labelled:
        return str(table)
    (folder / "new.csv").write_text("\n".join(["image", *(f"{name}.png" for name in BOXES)]))
    return str(folder / "new.csv")


def spoiled_boxes(folder: Path) -> tuple[str, str]:
    (folder / "bad.csv").write_text("image,class,xmin,ymin,xmax,ymax\nx.png,dog,1,2,3,four\n")
    return str(folder / "bad.csv"), ":2: could not convert"


def read_detections(text: str, examples: Sequence[Any]) -> list[tuple[float, ...]]:
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["image"], row["class"]) for row in rows] == [(e.name, e.label) for e in examples]
    return [tuple(float(row[edge]) for edge in ("xmin", "ymin", "xmax", "ymax")) for row in rows]


LOCALIZATION = Case(
    "localization",
    write_boxes,
    spoiled_boxes,
    gold=lambda example: Detection(example.truth, 0.0),
    key=lambda detection: tuple(float(f"{edge:.6g}") for edge in detection.box),
    read_back=read_detections,
    reached={"corloc": 1.0, "mean_iou": 0.8},
    unlabelled="these images have no boxes",
    settings={"backbone": "tiny", "head": "linear", "jobs": 1},
    variants=({"head": "elu", "negatives": 2},),
    lam=1e-3,
    passes=30,
    default_data=("voc2012_animals/voc2012_animals_single_333.zip",),
)


# Poses.


def write_figures(folder: Path, labelled: bool) -> str:
    return pose_images.write_all(folder / ("figures" if labelled else "new"), 5, labelled)


def spoiled_figures(folder: Path) -> tuple[str, str]:
    path = Path(pose_images.write_all(folder / "bad", 2))
    (path / "joints.csv").write_text("file,joint,x,y\np00.png,head,3,4\np00.png,hand,3,four\n")
    return str(path), r"/joints\.csv:3: expected a file, a joint and two numbers"


def key_of_pose(joints: Any) -> tuple[tuple[str, float, float], ...]:
    return tuple(sorted((name, round(x, 6), round(y, 6)) for name, (x, y) in joints.items()))


def read_poses(text: str, people: Sequence[Any]) -> list[Any]:
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["image"], line["size"]) for line in lines] == [(p.name, [*p.image.shape[:2]]) for p in people]
    return [key_of_pose(line["outputs"][0]["joints"]) for line in lines]


POSE = Case(
    "pose",
    write_figures,
    spoiled_figures,
    gold=lambda person: person.joints,
    key=key_of_pose,
    read_back=read_poses,
    reached={"pck": 1.0, "pcp": 1.0},
    unlabelled="p00 has no joints",
    settings={"cell": 4, "window": 3, "longest": 52, "torso": "head,foot"},
    variants=({"window": 1}, {"longest": 40}),
    lam=0.1,
    passes=15,
    default_data=("lspet",),
)

# Segments of time series.


def write_signals(folder: Path, labelled: bool) -> str:
    return signals.save(folder) if labelled else signals.save(folder, "new.npz", segments=None)


def spoiled_signals(folder: Path) -> tuple[str, str]:
    rows = [[0, 3, 9, 0], [0, 8, 12, 1]]
    return signals.save(folder, "bad.npz", segments=np.array(rows)), ": segment 8 to 12 of series s0 overlaps"


def read_segments(text: str, examples: Sequence[Any]) -> list[tuple[Any, ...]]:
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["rank"] == "1"]
    return [
        tuple((int(row["start"]), int(row["stop"]), row["label"]) for row in rows if row["series"] == example.name)
        for example in examples
    ]


SEGMENTS = Case(
    "segments",
    write_signals,
    spoiled_signals,
    gold=lambda series: series.segments,
    key=tuple,
    read_back=read_segments,
    reached={"boundary_f1": 0.95, "segment_f1": 1.0, "accuracy": 0.97},
    unlabelled="s0 has no segments",
    settings={"layers": 1, "width": 5},
    variants=({"layers": 2, "hidden": 3}, {"model": "semi-markov"}, {"step": 2, "any_order": True}),
    lam=0.1,
    passes=40,
    default_data=("ludb/ludb.npz",),
)
# Dependency trees.


def spoiled_treebank(folder: Path) -> tuple[str, str]:
    (folder / "bad.conllu").write_text(treebanks.conllu().replace("\tsees\t", "\t", 1))
    return str(folder / "bad.conllu"), ":5: expected a row of CoNLL-U"


PARSING = Case(
    "parsing",
    treebanks.write,
    spoiled_treebank,
    gold=lambda sentence: sentence.tree,
    key=lambda tree: (tree.heads, _shortened(tree.relations)),
    read_back=lambda text, _: [
        (sentence.tree.heads, sentence.tree.relations) for sentence in read_trees(io.StringIO(text)) if sentence.tree
    ],
    reached={"uas": 1.0, "las": 1.0},
    unlabelled="these sentences have no trees",
    settings={"bits": 12},
    variants=({"labelled": False}, {"projective": False}, {"subtypes": True, "pos": "xpos"}, {"order": 2}),
    lam=1e-2,
    passes=40,
    default_data=("ud_english_ewt/train.conllu.gz", "ud_english_ewt/test.conllu.gz"),
)


def _shortened(relations: Sequence[str]) -> tuple[str, ...]:
    return tuple(relation.partition(":")[0] for relation in relations)


CASES = [NER, CHUNKING, OCR, MULTILABEL, ALIGNMENT, SEGMENTATION, SCENES, LOCALIZATION, POSE, SEGMENTS, PARSING]
