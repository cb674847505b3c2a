"""Small generated data of tasks, in the layouts that the tasks read."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Pixels = NDArray[np.uint8]

_WORDS = ("quiz", "jumping", "fox", "lazy", "brown", "wizard", "vexed", "black", "sphinx", "quartz", "judge")
_DICTIONARY = {
    "la": "the",
    "le": "the",
    "maison": "house",
    "fleur": "flower",
    "chat": "cat",
    "bleue": "blue",
    "petite": "small",
    "petit": "small",
    "voit": "sees",
    "aime": "likes",
}
_PHRASES = {
    "la maison bleue": "the blue house",
    "la petite fleur": "the small flower",
    "le petit chat": "the small cat",
    "la petite maison": "the small house",
}
_JOINTS = {
    "head": (0, -34),
    "neck": (0, -20),
    "left_hand": (-26, -6),
    "right_hand": (26, -10),
    "hip": (0, 10),
    "foot": (4, 40),
}
# Size and height of a wave, and samples to the next one.
_WAVES = ((10, 0.2, 4), (9, 1.0, 8), (18, 0.35, 0))
_LIMBS = (("head", "neck"), ("neck", "left_hand"), ("neck", "right_hand"), ("neck", "hip"), ("hip", "foot"))


def letters(folder: Path, seed: int) -> str:
    """Words in a small font, with letters moved and pixels flipped: an archive for the task ``ocr``."""
    rng = np.random.default_rng(seed)
    words = 3 * _WORDS
    drawn = np.stack([_letter(letter, rng) for word in words for letter in word])
    labels = np.array([ord(letter) - ord("a") for word in words for letter in word], dtype=np.uint8)
    starts = np.cumsum([0, *map(len, words)]).astype(np.int32)
    np.savez(folder / "letters.npz", pixels=drawn, labels=labels, word_start=starts)
    return str(folder / "letters.npz")


def chunks(folder: Path, seed: int) -> str:
    """Sentences of a small grammar: a column file for the task ``chunking``."""
    rng = np.random.default_rng(seed)
    nouns = ("The DT B-NP\nold JJ I-NP\ncat NN I-NP", "He PRP B-NP", "Mary NNP B-NP", "a DT B-NP\nflower NN I-NP")
    verbs = ("slept VBD B-VP", "has VBZ B-VP\nbeen VBN I-VP\nsleeping VBG I-VP", "waits VBZ B-VP")
    places = ("in IN B-PP\nthe DT B-NP\nhouse NN I-NP", "there RB B-ADVP", "on IN B-PP\nthe DT B-NP\nbank NN I-NP")
    parts = ("\n".join(rng.choice(options) for options in (nouns, verbs, places)) for _ in range(30))
    (folder / "chunks.txt").write_text("".join(f"{sentence}\n. . O\n\n" for sentence in parts), encoding="utf-8")
    return str(folder / "chunks.txt")


def weather(folder: Path, seed: int) -> str:
    """Labels that exclude or need each other: lines for the task ``multilabel``."""
    rng = np.random.default_rng(seed)
    lines = []
    for x in rng.normal(size=(150, 4)):
        sun, rain = x[0] > 0, x[1] > 0.2
        there = {
            "sun": sun,
            "rain": rain,
            "rainbow": sun and rain,
            "snow": not rain and x[2] < -0.3,
            "wind": x[3] > 0,
            "calm": x[3] <= 0,
        }
        noisy = x + rng.normal(0, 0.25, 4)
        values = " ".join(f"{i}:{value:.3f}" for i, value in enumerate(noisy, 1))
        lines.append(",".join(name for name, is_there in there.items() if is_there) + " " + values)
    (folder / "weather.svm").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / "weather.svm")


def translations(folder: Path, seed: int) -> str:
    """Sentences of a small dictionary with their links: lines for the task ``alignment``."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(40):
        first, second = rng.choice(list(_PHRASES), 2)
        verb = rng.choice(["voit", "aime"])
        source = [*first.split(), verb, *second.split()]
        target = [*_PHRASES[first].split(), _DICTIONARY[verb], *_PHRASES[second].split()]
        lines.append(" ||| ".join([" ".join(source), " ".join(target), " ".join(_links(source, target))]))
    (folder / "translations.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / "translations.txt")


def blobs(folder: Path, seed: int) -> str:
    """A striped animal without a head on a meadow, with masks: a folder for the task ``segmentation``."""
    rng = np.random.default_rng(seed)
    for number in range(10):
        rows, columns = np.indices((120, 180))
        centre, radii = rng.uniform([45, 60], [70, 120]), rng.uniform([18, 38], [28, 55])
        inside = ((rows - centre[0]) / radii[0]) ** 2 + ((columns - centre[1]) / radii[1]) ** 2 < 1
        legs = (rows > centre[0]) & (rows < 112) & ((columns - centre[1]).astype(int) % 34 < 9)
        mask = inside | (legs & (abs(columns - centre[1]) < 0.8 * radii[1]))
        colour = (
            np.where(mask[..., None], [205, 190, 160], [105, 140, 80]) - 60 * ((columns // 7 % 2) * mask)[..., None]
        )
        _save(folder / "images" / f"{number:02}.png", colour + rng.normal(0, 16, (120, 180, 3)))
        _save(folder / "masks" / f"{number:02}.png", 255 * mask)
    return str(folder)


def houses(folder: Path, seed: int) -> str:
    """A house on grass under the sky, with labels: a folder for the task ``scenes``."""
    rng = np.random.default_rng(seed)
    colours = np.array([[120, 165, 215], [90, 145, 70], [165, 85, 70], [75, 60, 55]])
    for number in range(10):
        rows, columns = np.indices((120, 180))
        horizon, left, top = rng.integers(55, 75), rng.integers(20, 90), rng.integers(25, 40)
        labels = (rows >= horizon).astype(np.int64)
        wall = (rows >= top + 15) & (rows < top + 65) & (columns >= left) & (columns < left + 62)
        roof = (rows >= top) & (rows < top + 15) & (abs(columns - left - 31) < 12 + 2 * (rows - top))
        labels = np.where(roof, 3, np.where(wall, 2, labels))
        _save(folder / "images" / f"{number:02}.png", colours[labels] + rng.normal(0, 12, (120, 180, 3)))
        _save(folder / "labels" / f"{number:02}.png", labels)
    (folder / "classes.txt").write_text("sky\ngrass\nwall\nroof\n", encoding="utf-8")
    return str(folder)


def balls(folder: Path, seed: int) -> str:
    """A ball among bricks, with its box: a table for the task ``localization``."""
    rng = np.random.default_rng(seed)
    lines = ["image,class,xmin,ymin,xmax,ymax"]
    for number in range(8):
        canvas = Image.new("RGB", (180, 120), (170, 175, 165))
        pen = ImageDraw.Draw(canvas)
        for x, y in rng.integers([0, 0], [150, 100], (3, 2)).tolist():
            pen.rectangle([x, y, x + 34, y + 16], fill=(140, 80, 60))
        x, y, side = rng.integers([5, 5, 40], [115, 55, 60]).tolist()
        pen.ellipse([x, y, x + side, y + side], fill=(225, 200, 60), outline=(60, 60, 60), width=3)
        pen.chord([x, y, x + side, y + side], 20, 160, fill=(40, 90, 160))
        _save(folder / f"{number:02}.png", np.asarray(canvas) + rng.normal(0, 10, (120, 180, 3)))
        lines.append(f"{number:02}.png,ball,{x},{y},{x + side + 1},{y + side + 1}")
    (folder / "balls.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / "balls.csv")


def figures(folder: Path, seed: int) -> str:
    """Stick figures with their joints: a folder for the task ``pose``."""
    rng = np.random.default_rng(seed)
    lines = ["file,joint,x,y"]
    for number in range(16):
        middle = rng.integers([60, 50], [85, 62])
        joints = {"head": middle + np.array(_JOINTS["head"])}
        for parent, child in _LIMBS:
            limb = np.subtract(_JOINTS[child], _JOINTS[parent])
            joints[child] = joints[parent] + limb + rng.integers(-4, 5, 2)
        _save(folder / "images" / f"{number:02}.png", _figure(joints) + rng.normal(0, 14, (120, 144, 3)))
        lines += [f"{number:02}.png,{name},{x},{y}" for name, (x, y) in joints.items()]
    (folder / "joints.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder)


def clauses(folder: Path, seed: int) -> str:
    """Made-up sentences of a subject, a verb, an object and a place: a treebank for the task ``parsing``."""
    rng = np.random.default_rng(seed)
    nouns, adjectives = ["cat", "bird", "child", "friend", "garden", "river"], ["old", "small", "red", "quiet"]

    def phrase(relation: str, preposition: str = "") -> list[tuple[str, str, str, int]]:
        """Words with their parts of speech, relations and heads, by place in the phrase; its own is -1."""
        words = [*([(preposition, "ADP", "case")] if preposition else []), ("the", "DET", "det")]
        words += [(str(rng.choice(adjectives)), "ADJ", "amod")] * int(rng.integers(2))
        return [(*word, len(words)) for word in words] + [(str(rng.choice(nouns)), "NOUN", relation, -1)]

    sentences = []
    for _ in range(40):
        subject, verb = phrase("nsubj"), [(str(rng.choice(["sees", "likes", "follows"])), "VERB", "root", -1)]
        place = phrase("obl", str(rng.choice(["in", "near"]))) if rng.integers(2) else []
        rows: list[str] = []
        for part in (subject, verb, phrase("obj"), place, [(".", "PUNCT", "punct", -1)]):
            begin = len(rows)
            for word, tag, relation, head in part:
                number = begin + head + 1 if head >= 0 else 0 if relation == "root" else len(subject) + 1
                rows.append(f"{len(rows) + 1}\t{word}\t_\t{tag}\t_\t_\t{number}\t{relation}\t_\t_")
        sentences.append("\n".join(rows))
    path = folder / "clauses.conllu"
    path.write_text("\n\n".join(sentences) + "\n\n", encoding="utf-8")
    return str(path)


def beats(folder: Path, seed: int) -> str:
    """Waves of made-up heartbeats over noise and drift: an archive for the task ``segments``."""
    rng = np.random.default_rng(seed)
    signal, segments, length, series = [], [], 400, 20
    for number in range(series):
        beat = rng.normal(0, 0.05, length) + 0.15 * np.sin(np.arange(length) / rng.uniform(40, 80))
        at = int(rng.integers(5, 40))
        while at + 90 < length:
            for label, (size, height, gap) in enumerate(_WAVES):
                stop = at + size + int(rng.integers(-2, 3))
                beat[at:stop] += height * rng.uniform(0.6, 1.2) * np.sin(np.linspace(0, np.pi, stop - at)) ** 2
                segments.append((number, at, stop, label))
                at = stop + gap + int(rng.integers(0, 8))
            at += int(rng.integers(15, 45))
        signal.append(beat)
    np.savez(
        folder / "beats.npz",
        signal=np.concatenate(signal),
        series_start=length * np.arange(series + 1),
        segments=np.array(segments),
        labels=np.array(["P", "QRS", "T"]),
        rate=np.array(100.0),
    )
    return str(folder / "beats.npz")


def _letter(letter: str, rng: np.random.Generator) -> Pixels:
    """16 x 8 pixels of 0 and 1, row by row."""
    canvas = Image.new("L", (8, 16))
    x, y = rng.integers([0, 1], [2, 4])
    ImageDraw.Draw(canvas).text((int(x), int(y)), letter, fill=255, font=ImageFont.load_default(11))
    on = (np.asarray(canvas) > 110) ^ (rng.random((16, 8)) < 0.04)
    return on.astype(np.uint8).ravel()


def _links(source: list[str], target: list[str]) -> Iterator[str]:
    """Links of the words in their order."""
    free = list(enumerate(target))
    for i, word in enumerate(source):
        j, partner = next((j, other) for j, other in free if other == _DICTIONARY[word])
        free.remove((j, partner))
        yield f"{i}-{j}"


def _figure(joints: dict[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """Limbs as lines, the head as a circle, hands and feet as squares."""
    canvas = Image.new("RGB", (144, 120), (196, 200, 190))
    pen = ImageDraw.Draw(canvas)
    places = {name: tuple(map(float, place)) for name, place in joints.items()}
    for first, second in _LIMBS:
        pen.line([places[first], places[second]], fill=(60, 66, 90), width=5)
    (x, y), radius = places["head"], 9
    pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(150, 95, 70))
    for name in ("left_hand", "right_hand", "foot"):
        x, y = places[name]
        pen.rectangle([x - 4, y - 4, x + 4, y + 4], fill=(30, 30, 30))
    return np.asarray(canvas).astype(np.int64)


def _save(path: Path, pixels: NDArray[np.float64] | NDArray[np.int64]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path)
