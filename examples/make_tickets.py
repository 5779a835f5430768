"""Make ``tickets.csv``: 240 support tickets of a fictitious software company, the same ones every time.

    python examples/make_tickets.py [TARGET]

A third is written by hand (``ticket_source/hand_written.txt``); the others are put together from
``ticket_source/parts.toml`` and roughened the way real exports are: typos, capitals, HTML, quoted
threads, logs. The column ``category`` is the truth. No ticket, person or company in it is real.
"""

from __future__ import annotations

import csv
import html
import io
import random
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

SOURCE = Path(__file__).parent / "ticket_source"
TARGET = Path(__file__).parent / "tickets.csv"
COLUMNS = ("id", "created", "channel", "subject", "body", "category")
COUNT = 240
SEED = 18
RESENT = (5, 41, 77, 120, 163, 201)  # places whose ticket is sent once more, word for word
MONTHS = ("January", "February", "March", "October", "November", "December")
SYSTEMS = ("Windows 11", "Windows 10 22H2", "macOS 14.3", "Ubuntu 24.04", "Android 14", "iOS 17.4")


@dataclass(frozen=True, slots=True)
class Ticket:
    """One ticket before it gets an id and a time."""

    category: str
    channel: str
    subject: str
    body: str


class Dice:
    """Choices made from ``Random.random`` alone, the one sequence Python promises for a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random  # noqa: S311 - repeating is what it is for

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def between(self, low: int, high: int) -> int:
        return low + int(self._random() * (high - low + 1))

    def long_tailed(self, mean: float) -> int:
        """0 or more, geometric: comparisons only, so every platform gets the same."""
        count = 0
        while self.chance(mean / (mean + 1)):
            count += 1
        return count

    def pick(self, items: Sequence[T]) -> T:
        return items[self.between(0, len(items) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        keys = [self._random() for _ in items]
        return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]


class Slots(dict[str, str]):
    """What fills ``{amount}`` and the like; a value stays the same within one ticket."""

    def __init__(self, dice: Dice, parts: dict[str, Any]) -> None:
        super().__init__()
        self._dice = dice
        self._parts = parts

    def __missing__(self, name: str) -> str:
        self[name] = self._value(name)
        return self[name]

    def _value(self, name: str) -> str:
        dice = self._dice
        if digits := re.fullmatch(r"n([1-5])b?", name):
            count = int(digits[1])
            return str(dice.between(max(2, 10 ** (count - 1)), 10**count - 1))
        if name + "s" in self._parts:
            return str(dice.pick(self._parts[name + "s"]))
        makers: dict[str, Callable[[], str]] = {
            "amount": self._amount,
            "invoice": lambda: f"INV-2{dice.between(0, 9999):04}",
            "date": lambda: self._date(1),
            "date2": lambda: self._date(15),
            "month": lambda: dice.pick(MONTHS),
            "os": lambda: dice.pick(SYSTEMS),
            "pc": lambda: dice.pick(SYSTEMS[:2]),
            "colleague": lambda: dice.pick([name for name in self._parts["names"] if name != self["name"]]),
            "version": lambda: f"8.{dice.between(3, 5)}.{dice.between(0, 9)}",
            "email": lambda: f"{self['name'].lower()}@example.org",
            "email2": lambda: f"{self['name'].lower()}.{self['n2']}@example.net",
        }
        return self["file"].upper() if name == "file_upper" else makers[name]()

    def _amount(self) -> str:
        shape = self._dice.pick(("${}.00", "{},90 €", "£{}", "{}.50 EUR", "{{${}.00}}"))
        return shape.format(self._dice.between(9, 1400))

    def _date(self, first: int) -> str:
        day, month = self._dice.between(first, first + 12), self._dice.pick(MONTHS)
        return self._dice.pick((f"{day} {month}", f"{month} {day}", f"the {day}th", f"{day}.{month[:3]}"))


def read_hand_written(text: str) -> list[Ticket]:
    """The tickets of ``hand_written.txt``: a line ``@@ category | channel | subject``, then the body."""
    tickets = []
    for block in re.split(r"^@@ ", text, flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        category, channel, subject = (part.strip() for part in head.split("|", 2))
        subject = "" if subject == "(no subject)" else subject
        tickets.append(Ticket(category, channel, subject, body.rstrip("\n")))
    return tickets


def log(dice: Dice, parts: dict[str, Any], lines: int) -> str:
    """A log of the sync client; time goes on from line to line, and every line has its own numbers."""
    now, written = datetime(2025, 3, 4, 6, 12, 7), []
    for _ in range(lines):
        slots = Slots(dice, parts)
        slots["time"] = now.isoformat(sep=" ")
        written.append(dice.pick(parts["log_lines"]).format_map(slots))
        now += timedelta(seconds=dice.between(0, 12))
    return "\n".join(written)


def as_html(text: str) -> str:
    """What a mail program makes of plain text: escaped, one <p> a paragraph."""
    paragraphs = (html.escape(part).replace("\n", "<br>") for part in text.split("\n\n"))
    return "".join(f"<p>{part}</p>" for part in paragraphs)


def with_typos(dice: Dice, text: str) -> str:
    """Swap two inner letters of some longer words; words with anything but letters stay."""
    words = re.split(r"(\s+)", text)
    for i, word in enumerate(words):
        if len(word) > 4 and word.isalpha() and dice.chance(0.08):
            at = dice.between(1, len(word) - 3)
            words[i] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return "".join(words)


def in_a_hurry(text: str) -> str:
    """No capitals, hardly any punctuation."""
    return text.lower().replace("'", "").replace(". ", " ").rstrip(".")


def message(dice: Dice, parts: dict[str, Any], scenario: dict[str, Any], slots: Slots) -> str:
    """An opening, a long-tailed number of details, perhaps an aside and a request."""
    opening = dice.pick(scenario["openings"])
    sentences = [opening if opening.endswith((".", "?", "!")) else opening + "..."]
    details = dice.shuffled(scenario["details"])[: dice.long_tailed(2.8)]
    asides = dice.shuffled(parts["asides"])[: dice.long_tailed(0.6)]
    sentences += dice.shuffled(details + asides)
    if dice.chance(0.7):
        sentences.append(dice.pick(scenario["asks"]))
    if len(sentences) > 4:
        middle = dice.between(2, len(sentences) - 1)
        sentences[middle] = "\n\n" + sentences[middle]
    return " ".join(sentences).replace(" \n\n", "\n\n").format_map(slots)


def quoted(text: str) -> str:
    """The text with ``>`` in front of every line."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def as_mail(dice: Dice, parts: dict[str, Any], text: str, slots: Slots) -> str:
    """Greeting and closing around the text, sometimes a signature."""
    closing = dice.pick(parts["closings"])
    signature = dice.pick(parts["signatures"]) if dice.chance(0.35) else "{name}"
    return f"{dice.pick(parts['greetings'])}\n\n{text}\n\n{closing}\n{signature.format_map(slots)}"


def as_thread(dice: Dice, parts: dict[str, Any], text: str, slots: Slots) -> str:
    """A short answer on top of a reply by support on top of the first mail."""
    nudges = (
        "Any news on this?",
        "No, that did not help. Same as before.",
        "I have answered this already, see below!",
        "Reopening, because nothing has changed since {date}.",
        "Please do not close this. See below for the whole story.",
    )
    reply = dice.pick(parts["support_replies"]).format_map(slots)
    newest = as_mail(dice, parts, dice.pick(nudges).format_map(slots), slots)
    older = f"{reply}\n\n{slots['name']} wrote:\n{quoted(text)}"
    return f"{newest}\n\nOn {slots['date']}, Brindlewood Support wrote:\n{quoted(older)}"


def composed(dice: Dice, parts: dict[str, Any], scenario: dict[str, Any]) -> Ticket:
    """A ticket of the scenario, in the manners of its channel."""
    slots = Slots(dice, parts)
    channel = dice.pick(("email", "email", "email", "web", "web", "chat", "app"))
    subject = dice.pick(scenario["subjects"]).format_map(slots)
    text = message(dice, parts, scenario, slots)
    if scenario["category"] == "technical" and dice.chance(0.12):
        text += "\n\n" + log(dice, parts, 4 + dice.long_tailed(9))
    if channel == "email":
        text = as_mail(dice, parts, text, slots)
        for _ in range(min(dice.long_tailed(0.9), 4)):
            subject, text = "Re: " + subject, as_thread(dice, parts, text, slots)
    manners: list[Callable[[str], str]] = [str, str, str, str, lambda body: with_typos(dice, body)]
    if channel == "email":
        manners.append(as_html)
        manners.append(lambda body: body.replace("\n", "\r\n"))
    elif len(text) < 250:
        manners += [in_a_hurry, str.upper]
    return Ticket(scenario["category"], channel, subject, dice.pick(manners)(text))


def form_tickets(dice: Dice, parts: dict[str, Any]) -> list[Ticket]:
    """What the contact form sends: the same head every time, then a message."""
    tickets = []
    for form in parts["forms"]:
        for text in form["messages"]:
            slots = Slots(dice, parts)
            head = (
                "This message was sent with the contact form on our website. Reply to answer.\n\n"
                f"Topic: {form['topic']}\nWorkspace: team-{slots['n4']}.brindle.example\nPlan: Team\n"
                f"System: {slots['os']}\nMessage:\n"
            )
            body = head + text.format_map(slots)
            tickets.append(Ticket(form["category"], "web", f"Contact form: {form['topic']}", body))
    return tickets


def all_tickets(dice: Dice) -> list[Ticket]:
    """The tickets in the order they came in, those sent twice included."""
    parts = tomllib.loads((SOURCE / "parts.toml").read_text(encoding="utf-8"))
    tickets = [
        replace(ticket, body=fill_log(dice, parts, ticket.body))
        for ticket in read_hand_written((SOURCE / "hand_written.txt").read_text(encoding="utf-8"))
    ]
    tickets += form_tickets(dice, parts)
    tickets.append(Ticket("account", "email", "Can't sign in, see screenshot", ""))
    tickets.append(Ticket("account", "chat", "", " \n\t\n "))
    scenarios: list[dict[str, Any]] = []
    while len(tickets) < COUNT - len(RESENT):
        scenarios = scenarios or dice.shuffled(parts["scenarios"])
        tickets.append(composed(dice, parts, scenarios.pop()))
    tickets = dice.shuffled(tickets)
    for place in RESENT:
        tickets.insert(place + dice.between(1, 3), tickets[place])
    return tickets


def fill_log(dice: Dice, parts: dict[str, Any], body: str) -> str:
    """Put a log where ``[[log N]]`` stands, and the agent's name where ``{agent}`` does."""
    body = re.sub(r"\[\[log (\d+)\]\]", lambda found: log(dice, parts, int(found[1])), body)
    return body.replace("{agent}", "Mirela")


def make_csv() -> str:
    """The whole file: ids with leading zeros and gaps, times that only grow."""
    dice = Dice(SEED)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    number, created = 417, datetime(2025, 3, 3, 6, 58, 12)
    for ticket in all_tickets(dice):
        number += dice.between(1, 4)
        created += timedelta(seconds=20 + dice.between(1, 90) * dice.between(1, 90))
        stamp = created.strftime("%Y-%m-%dT%H:%M:%SZ")
        writer.writerow((f"{number:06}", stamp, ticket.channel, ticket.subject, ticket.body, ticket.category))
    return buffer.getvalue()


def main() -> None:
    """Write the file to the path given, or beside this script."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.write_text(make_csv(), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
