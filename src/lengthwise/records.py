"""Frozen records that the stages hand on. Integers and arrays only; no torch, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TokenIds = tuple[int, ...]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive input records.

    ``cells`` holds only the columns the prompt needs: column name to one value a row, exactly as the
    format gave it (``None`` for a missing cell). ``line_numbers`` are 1-based lines (records for
    Parquet). ``payload`` belongs to the reader and writer of the format and is opaque to all others.
    """

    first_row: int
    cells: Mapping[str, Sequence[object]]
    line_numbers: Sequence[int]
    payload: object = None

    def __len__(self) -> int:
        return len(self.line_numbers)


@dataclass(frozen=True, slots=True)
class LabelTrie:
    """The labels' tokens, merged where they begin alike; node 0 stands right behind the prompt.

    ``parents[n]`` and ``tokens[n]`` say how node n > 0 is reached (``-1`` for node 0). ``edges`` are
    the (node, token) pairs whose log-probability is wanted, grouped by node in ascending order.
    ``paths[k]`` are the edge numbers whose sum is label k's score. A node without edges is never fed
    to the model, so it does not exist here.
    """

    parents: tuple[int, ...]
    tokens: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    paths: tuple[tuple[int, ...], ...]

    @property
    def label_count(self) -> int:
        return len(self.paths)

    @property
    def continuation_tokens(self) -> int:
        """Label tokens that must be fed to the model behind every prompt."""
        return len(self.parents) - 1

    def edges_of(self, node: int) -> range:
        """The edge numbers that leave ``node``."""
        numbers = [i for i, (source, _) in enumerate(self.edges) if source == node]
        return range(numbers[0], numbers[-1] + 1) if numbers else range(0)

    def prefix(self, node: int) -> TokenIds:
        """The tokens from behind the prompt up to and including ``node``."""
        reversed_tokens: list[int] = []
        while node > 0:
            reversed_tokens.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(reversed_tokens))


@dataclass(frozen=True, slots=True)
class LabelTokens:
    """How the labels are scored.

    ``tokens[k]`` are the tokens of label k behind the prompt (after the boundary rule, with the
    terminator when one is needed). ``scored[k]`` is the part whose log-probabilities are summed: the
    first token only when ``rule`` is "first-token". ``boundary`` is how many tokens at the end of an
    encoded prompt belong to the labels' encodings instead and are taken off.
    """

    tokens: tuple[TokenIds, ...]
    scored: tuple[TokenIds, ...]
    rule: str
    boundary: int
    terminator: int | None
    trie: LabelTrie


@dataclass(frozen=True, slots=True)
class Want:
    """A position whose next-token log-probabilities are wanted.

    ``index`` counts the pack's tokens laid end to end (for a bucket: the padded rows laid end to
    end); ``prompt`` is the distinct prompt and ``node`` the trie node the values belong to.
    """

    index: int
    prompt: int
    node: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens of the token tree with one parent (``-1``: none).

    ``start`` is the position of its first token counted from the root.
    """

    id: int
    parent: int
    start: int
    tokens: TokenIds

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Pack:
    """Segments that go through the model in one forward, laid end to end without padding.

    Parents stand before their children, in this pack or an earlier one. ``keep`` are segments of
    this pack that a later pack needs; ``release`` are kept segments no later pack needs.
    """

    segments: tuple[Segment, ...]
    wants: tuple[Want, ...]
    keep: tuple[int, ...] = ()
    release: tuple[int, ...] = ()

    @property
    def computed_tokens(self) -> int:
        return sum(len(segment) for segment in self.segments)

    @property
    def padding(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sequences of similar length, left-padded to the longest of them."""

    sequences: tuple[TokenIds, ...]
    wants: tuple[Want, ...]

    @property
    def computed_tokens(self) -> int:
        return self.width * len(self.sequences)

    @property
    def width(self) -> int:
        return max(len(sequence) for sequence in self.sequences)

    @property
    def padding(self) -> int:
        return self.computed_tokens - sum(len(sequence) for sequence in self.sequences)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the backend has to run for a window, in order."""

    work: tuple[Pack, ...] | tuple[Bucket, ...]
    peak_resident_tokens: int = 0

    @property
    def computed_tokens(self) -> int:
        return sum(item.computed_tokens for item in self.work)

    @property
    def padding(self) -> int:
        return sum(item.padding for item in self.work)


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The prompts of a window.

    ``prompt_of_row[i]`` is the index into ``prompts`` (distinct token sequences) or -1 for a row
    that gets no answer; ``status[i]`` says why, or is "ok" or "truncated". ``truncations`` are
    (row of the window, its prompt's tokens, tokens kept) of the rows whose text was cut.
    """

    prompts: tuple[TokenIds, ...]
    prompt_of_row: IntArray
    status: tuple[str, ...]
    truncations: tuple[tuple[int, int, int], ...] = ()

    @property
    def row_tokens(self) -> int:
        """Prompt tokens of all answered rows, duplicates counted each time."""
        lengths = np.array([len(p) for p in self.prompts], dtype=np.int64)
        answered = self.prompt_of_row[self.prompt_of_row >= 0]
        return int(lengths[answered].sum()) if len(answered) else 0


@dataclass(frozen=True, slots=True)
class Answers:
    """Decisions for rows or distinct prompts, one entry each.

    ``label`` is the index of the winner or -1; ``log_probs`` (n, labels) are normalised over the
    labels; ``mass`` is the labels' total probability over the full vocabulary; ``margin`` the
    winner's log-probability minus the second's; ``tied`` marks exact ties, decided by label order.
    Rows without an answer hold NaN.
    """

    label: IntArray
    log_probs: FloatArray
    margin: FloatArray
    mass: FloatArray
    tied: NDArray[np.bool_]
    status: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.label)

    def take(self, index: Sequence[int]) -> Answers:
        """The answers at ``index``, in that order."""
        places = np.asarray(index, dtype=np.int64)
        arrays = {name: getattr(self, name)[places] for name in ANSWER_ARRAYS}
        return Answers(**arrays, status=tuple(self.status[i] for i in places))

    def replaced(self, index: Sequence[int], new: Answers) -> Answers:
        """These answers with those at ``index`` taken from ``new``, which has one for each."""
        places = np.asarray(index, dtype=np.int64)
        arrays = {name: getattr(self, name).copy() for name in ANSWER_ARRAYS}
        status = list(self.status)
        for name, values in arrays.items():
            values[places] = getattr(new, name)
        for place, said in zip(places, new.status, strict=True):
            status[place] = said
        return Answers(**arrays, status=tuple(status))


ANSWER_ARRAYS = ("label", "log_probs", "margin", "mass", "tied")
