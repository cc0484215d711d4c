"""What weights have learnt from, by the names of public data sets: what they say of themselves, and what follows.

    learnt = trained_on("weights/vitpose-b-coco-aic-mpii.pth")    # of ("coco", "aic", "mpii"), which may not be all
    check_unseen(learnt, set_names_of(units), "vitpose-b", "image")   # refuses MPII, which nothing protects any more

A model folder says it in `config.json`, beside "task" and "model":

    "trained_on": {"datasets": ["coco", "aic"], "known": true, "licence": "Apache-2.0", "note": ""}

The folder of a run has such an entry by itself: of its own data, and of all that its first weights have learnt from.
Of weights from elsewhere model card, configuration and the names of file and folder are read, and what the user says is
added. Names say what weights have seen, and never what they have not: unless they are said to be all, the
statement takes as given that no protected unit was among the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpose.errors import DposeError
from dpose.files import file_json, file_text
from dpose.known_sets import SetNames, is_rendered, set_called, sets_in, shared, title_of

ENTRY = "trained_on"
"""In `config.json`."""
CONFIG, CARD = "config.json", "README.md"
NOT_KNOWN = "unknown"
"""What `model.init_data` says if it is not known."""
HERE = "as their config.json says"
ALL = "and from nothing else"
_FIELDS = {"datasets", "known", "licence", "note", "protected"}
_NAMELESS = ("model", "pytorch_model", "weights", "checkpoint", "best", "last", "final", "latest")
"""Files of weights that are called by what they are: the folder's name tells more."""
_LONGEST_CARD = 1 << 20


@dataclass(frozen=True)
class TrainedOn:
    """What weights have learnt from.

    Attributes:
        datasets: Sets that they learnt from without a guarantee, as "coco" or "lspet:public"; names that no table knows
            as they were given.
        known: Whether nothing else was learnt from.
        licence: Of the weights; "" where it is not said.
        note: For readers, such as "trained on data that are not public".
        protected: What a run learnt from under a guarantee that its own statement carries.
        how: By what this is known, as in "as the file's name says"; "" where another sentence says it.
    """

    datasets: tuple[str, ...] = ()
    known: bool = False
    licence: str = ""
    note: str = ""
    protected: tuple[str, ...] = ()
    how: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The entry in `config.json`."""
        found: dict[str, Any] = {
            "datasets": list(self.datasets),
            "known": self.known,
            "licence": self.licence,
            "note": self.note,
        }
        return found | ({"protected": list(self.protected)} if self.protected else {})

    @classmethod
    def from_dict(cls, values: Any, where: str, how: str = "") -> TrainedOn:
        """The entry that `to_dict` wrote, or that somebody wrote by hand; only `datasets` must be there."""
        named, where = values if isinstance(values, dict) else {}, f"{where}, {ENTRY}"
        wrong = sorted(set(named) - _FIELDS)
        lists = [named.get("datasets"), named.get("protected", [])]
        texts = [each for some in lists if isinstance(some, list) for each in some]
        texts += [named.get("licence", ""), named.get("note", "")]
        if (
            wrong
            or not all(isinstance(some, list) for some in lists)
            or not all(isinstance(text, str) for text in texts)
            or not isinstance(named.get("known", False), bool)
        ):
            what = f"has an unknown field {wrong[0]}" if wrong else "does not say what was learnt from"
            raise DposeError(
                "trained-on-field-unknown" if wrong else "trained-on-missing",
                what,
                where,
                'write {"datasets": ["coco"], "known": false, "licence": "MIT", "note": ""}',
            )
        return cls(
            tuple(lists[0] or ()),
            named.get("known", False),
            named.get("licence", ""),
            named.get("note", ""),
            tuple(lists[1] or ()),
            how,
        )

    def __add__(self, other: TrainedOn) -> TrainedOn:
        """Both together, as of weights that learnt from one and then from the other, or of two who tell of one."""
        hows = dict.fromkeys(filter(None, (self.how, other.how)))
        return TrainedOn(
            _once(self.datasets, other.datasets),
            self.known and other.known,
            self.licence or other.licence,
            "; ".join(dict.fromkeys(filter(None, (self.note, other.note)))),
            _once(self.protected, other.protected),
            " and ".join(hows),
        )

    @property
    def people(self) -> tuple[str, ...]:
        """The sets that show somebody: all but rendered people."""
        return tuple(name for name in self.datasets if not is_rendered(name))


NOTHING = TrainedOn(known=True)
"""What weights that are drawn at random have learnt from."""
NOT_SAID = TrainedOn()
"""What weights of which nothing is said have learnt from."""


def trained_on(place: str | Path, said: str | None = None, called: str = "") -> TrainedOn:
    """What the weights at `place` have learnt from, as far as anything tells.

    Args:
        place: A model folder or a file of weights. Nothing of it is loaded.
        said: What the user says (`model.init_data`): names with commas between them, or "unknown".
        called: What else the weights are called, such as their name on a hub.
    """
    place = Path(place)
    folder = place if place.is_dir() else place.parent
    config = _config(folder)
    entry = declared(folder)
    if entry is not None:
        found = entry
    elif isinstance(config.get("run"), Mapping):
        found = _of_settings(config["run"])
    else:
        found = _of_names(place, config, called)
    if said is None:
        return found
    notes = said_by_user(said)
    # names that file or card have are never taken back; the writer of the entry knows best whether they are all
    known = notes.known and (found.known or entry is None)
    return replace(found + notes, known=known)


def declared(folder: Path) -> TrainedOn | None:
    """The entry in the configuration of a model folder; None if it has none."""
    config = _config(folder)
    return TrainedOn.from_dict(config[ENTRY], str(folder / CONFIG), HERE) if ENTRY in config else None


def said_by_user(text: str) -> TrainedOn:
    """What `model.init_data` says: names with commas between them, of which "unknown" leaves open that there is more.

    >>> said_by_user("coco, AI Challenger").datasets, said_by_user("coco,unknown").known
    (('coco', 'aic'), False)
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise DposeError("trained-on-missing", "names no data", "model.init_data", "write coco,aic, or unknown")
    known = NOT_KNOWN not in names
    datasets = [_named(name) for name in names if name != NOT_KNOWN]
    return TrainedOn(_once(datasets), known, how="as model.init_data says" if datasets else "")


def learnt_by_run(start: TrainedOn, own: SetNames, *, guaranteed: bool, fitted_on: SetNames) -> TrainedOn:
    """What the weights that a run releases have learnt from: its first weights' data, and its own.

    Args:
        start: Of the first weights.
        own: What the run trained on.
        guaranteed: Whether its statement says what that tells of them.
        fitted_on: Public data that its method read as they are.
    """
    mine = () if guaranteed else own.notes
    return TrainedOn(
        _once(start.datasets, mine, fitted_on.notes),
        start.known and own.whole and fitted_on.whole,
        start.licence,
        start.note,
        _once(start.protected, own.notes if guaranteed else ()),
    )


def check_unseen(learnt: TrainedOn, names: SetNames, weights: str, unit: str) -> None:
    """Refuse to protect units of a set that the first weights have learnt from, as far as names tell.

    **Guarantee.** None of its own: it refuses claims that cannot hold. Noise bounds what a run adds to its first
    weights and takes nothing out of them. Names alone are compared, and those of pictures where data in a common format
    look like a public set's; no picture is read.

    Raises:
        DposeError: they have; says which weights, which set, and how that is known.
    """
    found = shared(learnt.datasets, names.sets)
    if found is None:
        return
    seen, own = map(title_of, found)
    same = set_called(found[0]) == set_called(found[1]) or seen == own
    which = f"these {unit}s are of {own}" if same else f"{own} may have pictures in common with it"
    how = f" ({learnt.how})" if learnt.how else ""
    raise DposeError(
        "first-weights-learnt-from-units",
        f"the first weights learnt from {seen}{how}, and {which}: no noise that is added now protects them",
        weights,
        "start from weights that have not seen them, or treat the data as public (--method non-private)",
    )


def conditions_of(learnt: TrainedOn, unit: str, which: str) -> tuple[str, ...]:
    """What a guarantee takes as given of first weights, in sentences for readers who know nothing of the run.

    Args:
        learnt: What they have learnt from. Sets that another sentence speaks of (no `how`) are left out.
        unit: What is protected.
        which: The weights, as in "the first weights (sha256 ab...)".
    """
    lines = [named_line(learnt, unit, which)] if learnt.people and learnt.how else []
    if not learnt.known:
        besides, note = " besides" if lines else "", f": {learnt.note}" if learnt.note else ""
        lines.append(
            f"no protected {unit} was among the data that {which} learnt from{besides}, which are not known{note}"
        )
    return tuple(lines)


def named_line(learnt: TrainedOn, unit: str, which: str) -> str:
    """The sentence of those about the sets that are named, of which there must be one."""
    *others, last = map(title_of, learnt.people)
    listed = f"{', '.join(others)} or {last}" if others else last
    rest, how = f", {ALL}" if learnt.known else "", f" ({learnt.how})" if learnt.how else ""
    return f"no protected {unit} is a picture of {listed}, which {which} learnt from{rest}{how}"


def seen_line(learnt: TrainedOn, names: SetNames) -> str:
    """A sentence for a score on data of these names, where the scored weights have learnt from that set; "" where not.

    Of a run's own data it is told for the same split alone, since the others are apart.
    """
    found = shared((*learnt.datasets, *learnt.protected), names.sets)
    if found is not None:
        seen, own = map(title_of, found)
        how = f", {learnt.how}" if learnt.how else ""
        common = "" if set_called(found[0]) == set_called(found[1]) else f"; {own} may have pictures in common with it"
        return (
            f"These weights have seen the set that is scored: they learnt from {seen}{how}{common}. The score says "
            "little of pictures that they have not seen."
        )
    if not learnt.known and names.sets and not all(map(is_rendered, names.sets)):
        note = f" ({learnt.note})" if learnt.note else ""
        return (
            f"Whether these weights have seen the set that is scored is not known{note}: not all that they learnt from "
            "is named."
        )
    return ""


def card_lines(learnt: TrainedOn) -> list[str]:
    """The same for a model card, one line an item."""
    lines = [title_of(name) for name in learnt.datasets]
    lines += [f"{title_of(name)}, under the guarantee above" for name in learnt.protected]
    if not learnt.known:
        lines.append(f"more that is not known{f': {learnt.note}' if learnt.note else ''}")
    elif learnt.note:
        lines.append(learnt.note)
    return [*lines, *([f"licence of the first weights: {learnt.licence}"] if learnt.licence else [])]


def _of_settings(run: Mapping[str, Any]) -> TrainedOn:
    """The entry of a run folder that has none: its settings name data and first weights."""
    data, model = (value if isinstance(value := run.get(name), Mapping) else {} for name in ("data", "model"))
    private = data.get("private") or []
    named = [private] if isinstance(private, str) else private
    keys = [key for text in (*named, data.get("public") or "") for key in [set_called(str(text))] if key]
    return TrainedOn(_once(keys, sets_in(str(model.get("init") or ""))), how="as the settings of their run say")


def _of_names(place: Path, config: Mapping[str, Any], called: str) -> TrainedOn:
    """The entry of weights from elsewhere: by card, configuration, and names of file and folder."""
    real, notes = place.resolve(), list[tuple[str, Iterable[str]]]()
    own_folder = place.is_dir() or real.stem in _NAMELESS
    folder = real if place.is_dir() else real.parent
    names = [called, *([folder.name] if own_folder else []), *([] if place.is_dir() else [place.stem])]
    # a hub's cache: models--OWNER--NAME/snapshots/REVISION
    names += [part for part in real.parts if part.startswith("models--")]
    notes.append(("as their name says", sets_in(" ".join(names))))
    known_as = [str(config.get(key) or "") for key in ("_name_or_path", "datasets", "dataset", "train_dataset")]
    notes.append((HERE, sets_in(" ".join(known_as))))
    licence = ""
    if own_folder or config:
        front, body = _card(folder)
        notes.append(("as their model card says", (*front, *body)))
        licence = _licence(folder)
    found = [(how, tuple(keys)) for how, keys in notes]
    hows = [how for how, keys in found if keys]
    return TrainedOn(_once(*(keys for _, keys in found)), licence=licence, how=" and ".join(hows))


def _card(folder: Path) -> tuple[list[str], list[str]]:
    """Sets that a model card names: under `datasets`, and in sentences that speak of training."""
    matter, text = _front_matter(folder)
    listed = matter.get("datasets") or []
    front = [key for each in ([listed] if isinstance(listed, str) else listed) for key in sets_in(str(each))]
    sentences = re.split(r"\n\s*\n|(?<=[.!?])\s|\n[*|#-]", text)
    return front, [key for each in sentences if re.search(r"\btrain|\bfine-?tun", each, re.I) for key in sets_in(each)]


def _licence(folder: Path) -> str:
    found = _front_matter(folder)[0].get("license")
    return found if isinstance(found, str) else ""


def _front_matter(folder: Path) -> tuple[Mapping[str, Any], str]:
    """A card's metadata and its text; nothing of one that is missing or cannot be read."""
    import yaml

    try:
        text = file_text(folder / CARD, errors="replace", limit=_LONGEST_CARD)
    except OSError:
        return {}, ""
    parts = re.match(r"---\n(.*?)\n---\n(.*)", text, re.S)
    if parts is None:
        return {}, text
    try:
        found = yaml.safe_load(parts.group(1))
    except (yaml.YAMLError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}, parts.group(2)


def _config(folder: Path) -> Mapping[str, Any]:
    try:
        found = file_json(folder / CONFIG)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _named(name: str) -> str:
    """A set by its key, with its split; a name that no table knows as it stands."""
    key, (_, colon, split) = set_called(name), name.partition(":")
    return key + colon + split if key else name


def _once(*several: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in several for name in some))
