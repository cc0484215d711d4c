"""What the attackers learnt from public people; of rendered ones kept in the user's cache under its recipe's hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import platformdirs
import safetensors.numpy
import torch
from numpy.typing import NDArray

from dpose.errors import DposeError
from dpose.files import file_bytes, write_atomic
from dpose.privacy.statement import software_versions
from dpose.release.regions import IMAGENET
from dpose.stats import Floats
from dpose_lab.attacks.discriminant import DescriptorProjection, Scorer, learn_attributes, learn_people
from dpose_lab.attacks.identities import Identities, PersonPictures, Progress
from dpose_lab.attacks.learners import Restorer, learn_restoring, resized, steps_of
from dpose_lab.attacks.transforms import RAW, Transform

RECIPE = 1
"""Raised where a change of the code makes other attackers of the same settings."""
TEACHING = "teaching"
Arrays = Mapping[str, NDArray[Any]]


MOST_SIDE = 4096
"""An embedder's input is no larger, pixels."""


@dataclass(frozen=True)
class AttackerEffort:
    """What the attacker puts into it.

    Attributes:
        people: Public people to learn from.
        pictures: Of each.
        seed: Of everything.
    """

    people: int = 500
    pictures: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.people < 2 or self.pictures < 2:
            raise DposeError(
                "attacker-data-too-few",
                "the attacker needs two people and two pictures of each",
                "--learn-from",
                "ask for more",
            )


@dataclass
class AttackerTraining:
    """Public people, and what is learnt from them; their pictures are loaded when something first needs them.

    Attributes:
        identities: Whose public people.
        effort: How much.
        note: Called with a line when something long begins, and how many steps it has; gives what counts them.
    """

    identities: Identities
    effort: AttackerEffort
    note: Callable[[str, int], Progress] = field(repr=False)

    @cached_property
    def album(self) -> PersonPictures:
        """The public people's pictures."""
        count = min(self.effort.people, len(self.identities.public)) * self.effort.pictures
        note = self.note("the attacker's own pictures", count)
        return self.identities.teaching(self.effort.people, self.effort.pictures, note)

    @cached_property
    def _digest(self) -> str:
        """What tells these pictures from those of another renderer or folder: a digest of the first ones."""
        few = self.identities.load([(who, 0) for who in self.identities.public[:2]], lambda: None)
        digest = hashlib.sha256(json.dumps(self.identities.public).encode())
        for picture in few.pictures:
            digest.update(picture.tobytes())
        return digest.hexdigest()

    def embedder(self, release: Transform) -> DescriptorProjection:
        """Who is it, learnt from pictures shown in this way."""

        def learn() -> Arrays:
            return learn_people(self._taught(release).described(), self.album.people).arrays()

        return DescriptorProjection.of(self._kept("people", release, learn))

    def scorer(
        self, release: Transform, label: Callable[[PersonPictures], NDArray[np.bool_]], names: Sequence[str]
    ) -> Scorer:
        """What do they look like, learnt from pictures shown in this way."""

        def learn() -> Arrays:
            taught = self._taught(release)
            return learn_attributes(taught.described(), label(taught), taught.people).arrays()

        return Scorer.of(self._kept(f"attributes: {', '.join(names)}", release, learn))

    def restorer(self, release: Transform, size: tuple[int, int], epochs: int) -> Restorer:
        """What was the picture, learnt from pictures shown in this way, all at `size`, in so many passes over them."""

        def learn() -> Arrays:
            taught = self._taught(release)
            progress = self.note(f"learning to restore: {release.title}", steps_of(len(taught), epochs))
            pairs = resized(taught.pictures, size), resized(self.album.pictures, size)
            net = learn_restoring(*pairs, epochs, self.effort.seed, progress)
            return {name: tensor.numpy() for name, tensor in net.state_dict().items()}

        arrays = self._kept(f"restoring {size[0]}x{size[1]}, {epochs} epochs", release, learn)
        net = Restorer()
        net.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
        return net.eval()

    def _taught(self, release: Transform) -> PersonPictures:
        album = self.album
        progress = self.note(f"showing them to the attacker: {release.title}", len(album))
        return release.album(album, self.effort.seed, TEACHING, progress)

    def _kept(self, what: str, release: Transform, learn: Callable[[], Arrays]) -> Arrays:
        if not self.identities.look:
            return learn()  # what was learnt from somebody's files stays nowhere
        versions = software_versions()
        recipe = {
            "what": what,
            "shown": release.key,
            "data": self.identities.title,
            "pictures": self._digest,
            **asdict(self.effort),
            "recipe": RECIPE,
            "dpose": versions["dpose"],
            "torch": versions["torch"],
        }
        name = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:32]
        path = platformdirs.user_cache_path("dpose") / "attackers" / f"{name}.safetensors"
        found = _read(path)
        if found is None:
            found = {key: np.ascontiguousarray(array) for key, array in learn().items()}
            write_atomic(path, safetensors.numpy.save(found))
        return found


def _read(path: Path) -> Arrays | None:
    """What the cache holds; a file that is missing or damaged is as good as none."""
    try:
        found: Arrays = safetensors.numpy.load(file_bytes(path))
    except (OSError, safetensors.SafetensorError):
        return None
    return found


@dataclass(frozen=True)
class Embedder:
    """From pictures of people to vectors of length 1.

    Attributes:
        title: For tables.
        embed: From an album to (N, D).
    """

    title: str
    embed: Callable[[PersonPictures], Floats] = field(repr=False)


def plain_embedder(school: AttackerTraining, onnx: str = "") -> Embedder:
    """The embedder that never saw a release: an ONNX file's, or one learnt from raw pictures of public people.

    Raises:
        DposeError: the file is no embedder.
    """
    if onnx:
        return onnx_embedder(onnx)
    project = school.embedder(RAW)
    return Embedder("learnt from raw pictures", lambda album: project(album.described()))


def adaptive_embedder(school: AttackerTraining, release: Transform) -> Embedder:
    """The embedder of somebody who knows the mechanism and learnt from its releases of public people."""
    project = school.embedder(release)
    return Embedder("learnt from released pictures", lambda album: project(album.described()))


def onnx_embedder(text: str) -> Embedder:
    """An embedder from an ONNX file, run with onnxruntime (an optional dependency).

    It takes (1, 3, H, W) or (N, 3, H, W), float32, RGB, (x - 127.5) / 127.5 as ArcFace's models do, and gives one
    vector a picture; H and W are 112 where it fixes none. It sees the picture cut to the person's box.

    Args:
        text: The file, with ",imagenet" behind it where its input is normalised by ImageNet's mean and deviation.

    Raises:
        DposeError: onnxruntime is not installed, or the file is no such model.
    """
    file = text.removesuffix(",imagenet")
    try:
        import onnxruntime
    except ImportError:
        raise DposeError(
            "package-missing", "an embedder needs onnxruntime", file, "pip install onnxruntime"
        ) from None
    if not Path(file).is_file():
        raise DposeError("file-missing", "there is no such file", file)
    try:
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        (entry, *others) = session.get_inputs()
    except Exception as error:  # onnxruntime's own classes share no base but this
        raise DposeError("onnx-unreadable", "is not a readable ONNX model", file) from error
    if others or len(entry.shape) != 4:
        raise DposeError("onnx-input-wrong", "must take pictures, (1, 3, H, W)", file)
    height, width = (side if isinstance(side, int) else 112 for side in entry.shape[2:])
    if not (0 < height <= MOST_SIDE and 0 < width <= MOST_SIDE):
        raise DposeError(
            "onnx-input-too-large",
            f"takes pictures of {width} x {height} pixels",
            file,
            f"use at most {MOST_SIDE} a side",
        )

    def embed(album: PersonPictures) -> Floats:
        vectors = []
        for picture, (x0, y0, x1, y1) in zip(album.pictures, album.boxes, strict=True):
            colour = picture if picture.ndim == 3 else np.repeat(picture[:, :, None], 3, axis=2)
            small: Any = cv2.resize(colour[y0:y1, x0:x1], (width, height), interpolation=cv2.INTER_AREA)
            level = small.astype(np.float32)
            given = (level / 255 - IMAGENET[0]) / IMAGENET[1] if file != text else (level - 127.5) / 127.5
            try:
                found = session.run(None, {entry.name: given.transpose(2, 0, 1)[None].astype(np.float32)})[0]
            except Exception as error:
                raise DposeError("onnx-run-failed", "the model cannot be run on a picture", file) from error
            vectors.append(np.asarray(found, np.float64).reshape(-1))
        stacked = np.stack(vectors)
        return np.asarray(stacked / np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), 1e-12))

    digest = hashlib.sha256(file_bytes(Path(file))).hexdigest()[:16]
    return Embedder(f"{Path(file).name} (sha256 {digest})", embed)
