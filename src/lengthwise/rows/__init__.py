"""Rows in and rows out: files, pipes and memory."""

from lengthwise.rows.columns import AnswerColumn, answer_columns, choose_text_columns
from lengthwise.rows.memory import MemorySource, memory_source
from lengthwise.rows.read import open_source
from lengthwise.rows.source import Source
from lengthwise.rows.write import Sink, open_sink

__all__ = [
    "AnswerColumn",
    "MemorySource",
    "Sink",
    "Source",
    "answer_columns",
    "choose_text_columns",
    "memory_source",
    "open_sink",
    "open_source",
]
