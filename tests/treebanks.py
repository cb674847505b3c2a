"""A small made-up treebank."""

from itertools import product
from pathlib import Path

NOUNS, VERBS = ("dog", "cat", "child"), ("sees", "likes")
_TAGS = {"the": "DET", "old": "ADJ", ".": "PUNCT", **dict.fromkeys(NOUNS, "NOUN"), **dict.fromkeys(VERBS, "VERB")}


def sentences() -> list[list[tuple[str, str, int, str]]]:
    """Words with their parts of speech, heads and relations: two noun phrases around a verb."""
    found = []
    for subject, verb, object_, old in product(NOUNS, VERBS, NOUNS[:2], (False, True)):
        first = ["the", *(["old"] if old else []), subject]
        words = [*first, verb, "the", object_, "."]
        root = len(first) + 1
        heads = [len(first)] * (len(first) - 1) + [root, 0, root + 2, root, root]
        relations = [*(["det", "amod"][: len(first) - 1]), "nsubj", "root", "det", "obj:direct", "punct"]
        found.append([(w, _TAGS[w], h, r) for w, h, r in zip(words, heads, relations, strict=True)])
    return found


def conllu(labelled: bool = True) -> str:
    """The text of all, with comments and a row of two words."""
    blocks = []
    for number, rows in enumerate(sentences(), 1):
        lines = [f"# sent_id = {number}", f"1-2\t{rows[0][0]}{rows[1][0]}" + "\t_" * 8]
        for i, (word, tag, head, relation) in enumerate(rows, 1):
            tree = [str(head), relation] if labelled else ["_", "_"]
            lines.append("\t".join([str(i), word, word, tag, tag.lower(), "_", *tree, "_", "_"]))
        blocks.append("\n".join(lines) + "\n\n")
    return "".join(blocks)


def write(folder: Path, labelled: bool) -> str:
    path = folder / ("train.conllu" if labelled else "new.conllu")
    path.write_text(conllu(labelled))
    return str(path)
