"""Probabilistic grammars of treebanks: rules of trees, unknown words, parses, perplexity, training without trees."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from structsmooth.structures import Grammar, Productions
from structsmooth.text.brackets import Phrase

Symbol = tuple[str, ...]
Sentence = Sequence[str]
_BATCH = 16  # sentences that are parsed together
_FORM = "< "  # what a form of an unknown word begins with, and no word, which has no blanks
_UNKNOWN = f"{_FORM}>"  # a word of which nothing is known


@dataclass(frozen=True)
class TreebankGrammar:
    """A probabilistic context-free grammar whose symbols are those of binarized trees.

    A constituent of more than two parts becomes a chain of binary rules, whose helping symbols remember its label and
    the last of its parts. Unary chains, as of S → VP, are kept: each is one rule from its first label, since
    rules a → b of a grammar may form no cycle. Words that occur at most ``rare`` times in the trees stand for unknown
    ones: they are known by their capital, digits, hyphens and last two letters, or, where those are rare, too, by
    nothing.

    Attributes:
        symbols: what the symbols of the grammar stand for, those of parts of speech first.
        productions: the rules between them.
        vocabulary: numbers of words and of forms of unknown ones.
        rules: logarithms of their probabilities [R], float64.
        start: the same [N] for the symbol of a sentence.
        words: the same [V, P] for words, given a part of speech.

    Reference:
        Charniak (1996); Johnson (1998), on parents; Klein and Manning (2003), on the order.

    Example:
        >>> from structsmooth.text.brackets import read_brackets
        >>> from io import StringIO
        >>> text = "(S (NP (DT a) (NN dog)) (VP (VBZ barks))) (S (NP (NN rain)) (VP (VBZ falls)))"
        >>> trees = read_brackets(StringIO(text))
        >>> grammar = TreebankGrammar.from_trees(trees, rare=0)
        >>> (tree,) = grammar.parse([["a", "dog", "falls"]])
        >>> print(tree)
        (S (NP (DT a) (NN dog)) (VP (VBZ falls)))
    """

    symbols: tuple[Symbol, ...]
    productions: Productions
    vocabulary: dict[str, int]
    rules: Tensor
    start: Tensor
    words: Tensor

    @classmethod
    def from_trees(
        cls, trees: Sequence[Phrase], *, order: int = 1, parents: bool = False, rare: int = 1
    ) -> "TreebankGrammar":
        """The grammar in which trees are most likely.

        Args:
            trees: constituents, as of :func:`~structsmooth.text.brackets.read_brackets`.
            order: how many of the last parts of a constituent the choice of the next one knows.
            parents: whether a constituent is known by the label of the one around it, too.
            rare: words that occur at most so often stand for unknown ones.

        Raises:
            ValueError: no trees, or one without constituents.
        """
        if not trees or not all(tree.phrases for tree in trees):
            raise ValueError("trees must be constituents, at least one")
        seen: Counter[tuple[Symbol, ...]] = Counter()
        starts = Counter(_count(tree, "", order, parents, seen) for tree in trees)
        leaves = Counter(leaf for tree in trees for leaf in tree.leaves())
        # Rare words become their forms first, and rare forms then the word of which nothing is known: so that the
        # counts of forms are those of all rare words.
        for name in (_form, lambda form: _UNKNOWN):
            often = Counter[str]()
            for (word, _), count in leaves.items():
                often[word] += count
            renamed: Counter[tuple[str, str]] = Counter()
            for (word, tag), count in leaves.items():
                is_kept = often[word] > rare or (name is not _form and not word.startswith(_FORM))
                renamed[word if is_kept else name(word), tag] += count
            leaves = renamed
        known = {symbol for rule in seen for symbol in rule} | {*starts} | {("tag", tag) for _, tag in leaves}
        symbols = tuple(sorted(known, key=lambda symbol: (symbol[0] != "tag", symbol)))
        number = {symbol: s for s, symbol in enumerate(symbols)}
        vocabulary = {word: w for w, word in enumerate(sorted({word for word, _ in leaves}))}
        tags = sum(symbol[0] == "tag" for symbol in symbols)
        words = torch.zeros(len(vocabulary) + 1, tags, dtype=torch.float64)
        for (word, tag), count in leaves.items():
            words[vocabulary[word], number["tag", tag]] = count
        start = torch.tensor([starts[symbol] for symbol in symbols], dtype=torch.float64)
        rules = torch.tensor([*seen.values()], dtype=torch.float64)
        productions = Productions([[number[symbol] for symbol in rule] for rule in seen], len(symbols))
        none = (rules.log(), start.log(), words.log())
        return cls(symbols, productions, vocabulary, *none)._with_counts(rules, start, words)

    def _with_counts(self, rules: Tensor, start: Tensor, words: Tensor) -> "TreebankGrammar":
        """The grammar whose probabilities are shares of counts; as before where nothing was counted."""
        heads = torch.tensor([rule[0] for rule in self.productions.rules or ()])
        of_rules = torch.zeros_like(start).index_add(0, heads, rules)[heads]
        pairs = ((self.rules, rules, of_rules), (self.start, start, start.sum()), (self.words, words, words.sum(0)))
        tables = [torch.where(total > 0, (counts / total).log(), old) for old, counts, total in pairs]
        return replace(self, rules=tables[0], start=tables[1], words=tables[2])

    def grammar(self, sentences: Sequence[Sentence], tags: Sequence[Sentence] | None = None, **options: Any) -> Grammar:
        """All trees of sentences; with ``tags``, those of the given parts of speech, to which words add nothing.

        The numbers of words are padded to a multiple of ten, so that few programs are built; ``options`` are those of
        :class:`~structsmooth.Grammar`.

        Raises:
            TypeError: a sentence that is a text, or tags that are.
            ValueError: an empty list, a part of speech that no tree had, or not one for each word.
        """
        if not sentences:
            raise ValueError("sentences must be at least one, got none")
        _check(sentences, tags)
        lengths = torch.tensor([len(sentence) for sentence in sentences])
        words = -10 * (-max(1, int(lengths.max())) // 10)
        index = torch.full((len(sentences), words), len(self.vocabulary))
        number = {symbol[1]: s for s, symbol in enumerate(self.symbols[: self.words.shape[1]])}
        for b, sentence in enumerate(sentences):
            rows = [self._number(word) for word in sentence] if tags is None else [number.get(t, -1) for t in tags[b]]
            if min(rows, default=0) < 0:
                raise ValueError(f"tags must be parts of speech of the trees, got {tags[b] if tags else rows}")
            index[b, : len(sentence)] = torch.tensor(rows)
        if tags is None:
            lexical = self.words[index]
        else:
            given = torch.arange(len(number)) == index.unsqueeze(2)
            lexical = torch.where(given, 0.0, -torch.inf).double()
        return Grammar(self.rules, lexical, self.start, lengths, productions=self.productions, **options)

    def _number(self, word: str) -> int:
        names = (word, _form(word), _UNKNOWN)
        return next((self.vocabulary[name] for name in names if name in self.vocabulary), len(self.vocabulary))

    def _grammars(
        self, sentences: Sequence[Sentence], tags: Sequence[Sentence] | None
    ) -> Iterator[tuple[list[int], Grammar]]:
        """Some sentences of similar lengths at a time: their numbers and their trees."""
        _check(sentences, tags)
        order = sorted(range(len(sentences)), key=lambda s: len(sentences[s]))
        for first in range(0, len(order), _BATCH):
            some = order[first : first + _BATCH]
            given = None if tags is None else [tags[s] for s in some]
            yield some, self.grammar([sentences[s] for s in some], given, validate_args=False)

    def parse(self, sentences: Sequence[Sentence], tags: Sequence[Sentence] | None = None) -> list[Phrase]:
        """The best tree of each sentence; one that has none gets its words without constituents, under the label "".

        Errors are those of :meth:`grammar`, apart from the empty list.
        """
        trees: list[Phrase] = [Phrase("", ())] * len(sentences)
        for some, grammar in self._grammars(sentences, tags):
            values, best = grammar.max()
            for s, value, y in zip(some, values.tolist(), best, strict=True):
                sentence = sentences[s]
                if sentence and value > -torch.inf:
                    (trees[s],) = self._trees(y.tolist(), sentence, 0, len(sentence) - 1)
                else:
                    parts = zip(tags[s] if tags else [""] * len(sentence), sentence, strict=True)
                    trees[s] = Phrase("", tuple(Phrase(tag, (word,)) for tag, word in parts))
        return trees

    def _trees(self, y: list[list[list[int]]], words: Sentence, i: int, j: int) -> list[Phrase]:
        """Words i to j as one tree, or as those that a helping symbol stands for."""
        symbols = [self.symbols[s] for s in y[i][j] if s >= 0]
        kind, label, *_ = symbols[-1]
        if kind == "tag":
            parts = [Phrase(label, (words[i],))]
        else:
            # Trees are binary, so there is one place at which a constituent falls into two.
            k = next(k for k in range(i, j) if y[i][k][0] >= 0 and y[k + 1][j][0] >= 0)
            parts = self._trees(y, words, i, k) + self._trees(y, words, k + 1, j)
        # A helping symbol has no label: its parts are those of the constituent around it.
        if len(symbols) == 1:
            return parts
        labels = symbols[1][3:] if symbols[1][0] == "chain" else symbols[0][1:2]
        for label in reversed(labels):
            parts = [Phrase(label, tuple(parts))]
        return parts

    def log_likelihood(self, sentences: Sequence[Sentence], tags: Sequence[Sentence] | None = None) -> Tensor:
        """Logarithms of the probabilities of sentences, or of their tags, float64; unknown words are forms."""
        values = torch.zeros(len(sentences), dtype=torch.float64)
        for some, grammar in self._grammars(sentences, tags):
            values[some] = grammar.logsumexp()
        return values

    def perplexity(self, sentences: Sequence[Sentence]) -> float:
        """exp of the mean negative log-likelihood of a word; infinite if a sentence has no tree."""
        words = max(1, sum(map(len, sentences)))
        return float((-self.log_likelihood(sentences).sum() / words).exp())

    def em_step(self, sentences: Sequence[Sentence]) -> tuple["TreebankGrammar", float]:
        """A step of expectation maximization on sentences without trees, which never makes them less likely.

        Expected counts are the gradients of the log-likelihood. Rules and words of probability 0 keep it.

        Returns:
            The new grammar, and the log-likelihood under the old one of all sentences that have a tree.

        Reference:
            Lari and Young (1990), the inside-outside algorithm.
        """
        tables = [table.clone().requires_grad_() for table in (self.rules, self.start, self.words)]
        counts, total = [torch.zeros_like(table) for table in tables], 0.0
        learned = replace(self, rules=tables[0], start=tables[1], words=tables[2])
        for _, grammar in learned._grammars(sentences, None):
            values = grammar.logsumexp()
            values = values[values > -torch.inf]
            total += float(values.detach().sum())
            counts = [c + g for c, g in zip(counts, torch.autograd.grad(values.sum(), tables), strict=True)]
        return self._with_counts(*counts), total


def _check(sentences: Sequence[Sentence], tags: Sequence[Sentence] | None) -> None:
    """Raise unless sentences are lists of words, and tags, if they are given, lists with one for each word."""
    if any(isinstance(sentence, str) for sentence in (*sentences, *(tags or ()))):
        raise TypeError("sentences and their tags must be lists of words, got a text: split it into words")
    sizes, given = list(map(len, sentences)), list(map(len, sentences if tags is None else tags))
    if len(given) != len(sizes):
        raise ValueError(f"tags must be a list for each of {len(sizes)} sentences, got {len(given)}")
    for s, (words, found) in enumerate(zip(sizes, given, strict=True)):
        if words != found:
            raise ValueError(f"sentence {s} has {words} words and {found} tags: give a tag for each word")


def _count(tree: Phrase, around: str, order: int, parents: bool, seen: Counter[tuple[Symbol, ...]]) -> Symbol:
    """Count the rules of a tree inside a constituent of the label ``around``; its symbol.

    Symbols are ("tag", part of speech); ("top", label, around), which is what others see of a constituent; ("chain",
    kind, around, labels...), if it has a chain of labels above its content; ("phrase", label, around), what has several
    parts; and ("rest", label, around, parts...), all of these but the first.
    """
    labels, node = [], tree
    while len(node.phrases) == 1:
        labels.append(node.label)
        node = node.phrases[0]
    if not node.phrases and not labels:
        return ("tag", node.label)
    labels += [node.label] if node.phrases else []
    above = [around, *labels][-2] if node.phrases else ""
    content: Symbol = ("phrase", node.label, above if parents else "") if node.phrases else ("tag", node.label)
    top: Symbol = ("top", labels[0], around if parents else "")
    head = top
    if len(labels) > 1:
        head = ("chain", *content[:1], content[-1], *labels)
        seen[top, head] += 1
    seen[head, content] += 1
    tops, head = [_count(child, node.label, order, parents, seen) for child in node.phrases], content
    for k in range(1, len(tops) - 1):
        rest = ("rest", *content[1:], *(part[1] for part in tops[max(0, k - order) : k]))
        seen[head, tops[k - 1], rest] += 1
        head = rest
    if tops:
        seen[head, tops[-2], tops[-1]] += 1
    return top


def _form(word: str) -> str:
    """What is known of an unknown word."""
    marks = [
        name
        for name, has in (
            ("capital", word[:1].isupper()),
            ("digit", any(map(str.isdigit, word))),
            ("hyphen", "-" in word),
        )
        if has
    ]
    return f"{_FORM}{' '.join([*marks, word[-2:].lower()])}>"
