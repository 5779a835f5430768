"""Engine options: frozen, checked when made, never changed afterwards."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from lengthwise.errors import OptionError, suggestion

CHOICES = {
    "strategy": ("packed", "bucketed", "sequential"),
    "device": ("auto", "cpu", "cuda", "mps"),
    "dtype": ("auto", "float32", "bfloat16", "float16"),
    "on_long": ("truncate", "error", "skip"),
    "on_mismatch": ("fail", "warn"),
}
POSITIVE = ("batch_size", "max_batch_tokens", "window", "threads", "max_length")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the engine runs.

    strategy          packed (no padding, shared beginnings once), bucketed or sequential
    batch_size        most rows in a bucket
    max_batch_tokens  most tokens in a pack or a padded bucket
    device, dtype     "auto" takes an accelerator when there is one, and float32 on CPUs
    threads           CPU threads; None: what cgroup and affinity allow
    window            rows read, answered, verified and written at a time
    max_length        longest prompt in tokens; None: what the model can
    on_long           what to do with a longer row: truncate its text, error (stop), skip
    verify            "sample", "all", "none" or how many distinct prompts to compare
    on_mismatch       fail (exit code 4, no output) or warn
    """

    strategy: str = "packed"
    batch_size: int = 32
    max_batch_tokens: int = 1024
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    window: int = 4096
    max_length: int | None = None
    on_long: str = "truncate"
    verify: str | int = "sample"
    on_mismatch: str = "fail"

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise OptionError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}.")
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise OptionError(f"{name} is {value!r}; it must be a whole number of at least 1.")
        object.__setattr__(self, "verify", parse_verify(self.verify))

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> EngineOptions:
        """Options from keyword arguments; an unknown name is an error with a suggestion."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise OptionError(f"there is no option {name!r}{suggestion(name, known)}")
        return cls(**values)

    def resolve(self, *, device: str, dtype: str, threads: int) -> EngineOptions:
        """The same options with every "auto" replaced by what this machine has."""
        return replace(self, device=device, dtype=dtype, threads=threads)


def parse_verify(value: str | int) -> str | int:
    """``"sample" | "all" | "none"`` or a count as int; anything else is an OptionError."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if value in ("sample", "all", "none") or (isinstance(value, int) and value > 0):
        return value
    if value == 0:
        return "none"
    raise OptionError(f"verify is {value!r}; it must be sample, all, none or a number of prompts.")
