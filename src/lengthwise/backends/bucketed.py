"""The classical strategy: padded batches, with left padding and explicit positions."""

from __future__ import annotations

from typing import Any

from lengthwise.backends.logits import chosen_logits, wanted_log_probs, wants_within_memory
from lengthwise.records import Bucket, FloatArray, LabelTrie, Pack, TokenIds


class BucketedBackend:
    """Runs buckets through any decoder with Transformers' own attention and masks."""

    name = "bucketed"

    def __init__(self, model: Any, vocab_size: int) -> None:
        self.model = model
        self.vocab_size = vocab_size

    def max_wants(self) -> int:
        return wants_within_memory(self.vocab_size)

    def head_resident(self, head: TokenIds) -> bool:  # noqa: ARG002 - the contract's
        return False

    def reset(self) -> None:
        """Nothing is ever resident."""

    def run(self, work: Pack | Bucket, trie: LabelTrie) -> list[FloatArray]:
        import torch  # noqa: PLC0415 - torch is loaded with the first model, not with the package

        if not isinstance(work, Bucket):
            raise TypeError("the bucketed backend runs buckets")
        width = work.width
        ids = torch.zeros(len(work.sequences), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, sequence in enumerate(work.sequences):
            ids[row, width - len(sequence) :] = torch.tensor(sequence)
            mask[row, width - len(sequence) :] = 1
        positions = (mask.cumsum(dim=1) - 1).clamp_(min=0)
        columns = [want.index % width for want in work.wants]
        keep = width - min(columns)
        rows = [want.index // width for want in work.wants]
        device = self.model.device
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        with torch.inference_mode():
            moved = {name: tensor.to(device) for name, tensor in inputs.items()}
            logits = chosen_logits(self.model, keep, **moved)
            wanted = logits[rows, [column - (width - keep) for column in columns]]
            return wanted_log_probs(wanted, work.wants, trie)
