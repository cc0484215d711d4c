"""Models that attackers learn from public people; those learnt from rendered people are cached by recipe."""

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
from dpose_lab.attacks.discriminant import DescriptorProjection, Scorer, learn_attributes, learn_people
from dpose_lab.attacks.identities import Identities, PersonPictures, Progress
from dpose_lab.attacks.learners import Restorer, learn_restoring, resized, steps_of
from dpose_lab.attacks.transforms import RAW, Transform
from dpose_lab.stats import Floats

RECIPE = 1
"""Version of the recipe: raised when a change of the code changes the learnt models."""
TEACHING = "teaching"
Arrays = Mapping[str, NDArray[Any]]


DRAWS = 16
"""Releases of an original whose mean is what its next release is compared with."""
MOST_SIDE = 4096
"""Largest side of an embedder's input, pixels."""


@dataclass(frozen=True)
class AttackerEffort:
    """Data and seed of an attacker.

    Attributes:
        people: Number of public people to learn from.
        pictures: Number of pictures of each.
        seed: Seed of all randomness.
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
    """Public people and the models learnt from them; their pictures are loaded on first use.

    Attributes:
        identities: The data whose public people are used.
        effort: Number of people and pictures.
        note: Called with a line and a number of steps before a long task; returns a function that counts the steps.
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
        """Digest of the first pictures, which differs for another renderer or folder."""
        few = self.identities.load([(who, 0) for who in self.identities.public[:2]], lambda: None)
        digest = hashlib.sha256(json.dumps(self.identities.public).encode())
        for picture in few.pictures:
            digest.update(picture.tobytes())
        return digest.hexdigest()

    def embedder(self, release: Transform) -> DescriptorProjection:
        """Learn to recognise people from pictures released in this way."""

        def learn() -> Arrays:
            return learn_people(self._taught(release).described(), self.album.people).arrays()

        return DescriptorProjection.of(self._cached("people", release, learn))

    def scorer(
        self, release: Transform, label: Callable[[PersonPictures], NDArray[np.bool_]], names: Sequence[str]
    ) -> Scorer:
        """Learn to recognise attributes from pictures released in this way."""

        def learn() -> Arrays:
            taught = self._taught(release)
            return learn_attributes(taught.described(), label(taught), taught.people).arrays()

        return Scorer.of(self._cached(f"attributes: {', '.join(names)}", release, learn))

    def restorer(self, release: Transform, size: tuple[int, int], epochs: int) -> Restorer:
        """Learn to reconstruct pictures from releases at `size`, in so many passes over them."""

        def learn() -> Arrays:
            taught = self._taught(release)
            progress = self.note(f"learning to restore: {release.title}", steps_of(len(taught), epochs))
            pairs = resized(taught.pictures, size), resized(self.album.pictures, size)
            net = learn_restoring(*pairs, epochs, self.effort.seed, progress)
            return {name: tensor.numpy() for name, tensor in net.state_dict().items()}

        arrays = self._cached(f"restoring {size[0]}x{size[1]}, {epochs} epochs", release, learn)
        net = Restorer()
        net.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
        return net.eval()

    def _taught(self, release: Transform) -> PersonPictures:
        album = self.album
        progress = self.note(f"showing them to the attacker: {release.title}", len(album))
        return release.album(album, self.effort.seed, TEACHING, progress)

    def _cached(self, what: str, release: Transform, learn: Callable[[], Arrays]) -> Arrays:
        if not self.identities.look:
            return learn()  # models learnt from a user's files are not stored
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
        arrays = _read(path)
        if arrays is None:
            arrays = {key: np.ascontiguousarray(array) for key, array in learn().items()}
            write_atomic(path, safetensors.numpy.save(arrays))
        return arrays


def _read(path: Path) -> Arrays | None:
    """Read a cached model; None if the file is missing or damaged."""
    try:
        arrays: Arrays = safetensors.numpy.load(file_bytes(path))
    except (OSError, safetensors.SafetensorError):
        return None
    return arrays


@dataclass(frozen=True)
class Embedder:
    """A map from pictures of people to vectors of length 1.

    Attributes:
        title: Name in tables.
        embed: Function from an album to (N, D).
    """

    title: str
    embed: Callable[[PersonPictures], Floats] = field(repr=False)


def plain_embedder(school: AttackerTraining, onnx: str = "") -> Embedder:
    """The embedder that never saw a release: from an ONNX file, or learnt from raw pictures of public people."""
    if onnx:
        return onnx_embedder(onnx)
    project = school.embedder(RAW)
    return Embedder("learnt from raw pictures", lambda album: project(album.described()))


def adaptive_embedder(school: AttackerTraining, release: Transform) -> Embedder:
    """The embedder of an attacker who knows the mechanism and learnt from its releases of public people."""
    project = school.embedder(release)
    return Embedder("learnt from released pictures", lambda album: project(album.described()))


def with_originals(
    release: Transform, originals: PersonPictures, seen: PersonPictures, seed: int
) -> tuple[Embedder, PersonPictures, PersonPictures]:
    """How one who has the originals asks which was released: an embedder, and what of originals and releases it takes.

    By the odds of the bits where the mechanism has them; else by pixels, compared with the mean of `DRAWS` releases
    more of each original, less what all originals have in common.
    """
    title = "which of the originals"
    if slicing := release.slicing:
        known = originals.instead([slicing.values(picture) for picture in originals.pictures])
        read = seen.instead([slicing.read(picture) for picture in seen.pictures])
        embedder = Embedder(title, lambda album: np.stack([slicing.evidence(each) for each in album.pictures]))
        return embedder, known, read
    size = originals.pictures[0].shape[:2]

    def flat(album: PersonPictures) -> Floats:
        same = (picture if picture.shape[:2] == size else resized([picture], size)[0] for picture in album.pictures)
        return np.stack([picture.astype(np.float64).reshape(-1) for picture in same])

    draws = (release.album(originals, seed, f"original {k}").pictures for k in range(DRAWS))
    known = originals.instead([np.mean(each, 0) for each in zip(*draws, strict=True)])
    common = flat(known).mean(0)

    def embed(album: PersonPictures) -> Floats:
        vectors = flat(album) - common
        return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))

    return Embedder(title, embed), known, seen


def onnx_embedder(text: str) -> Embedder:
    """Make an embedder from an ONNX file, run with onnxruntime (an optional dependency).

    It takes (1, 3, H, W) or (N, 3, H, W), float32, RGB, (x - 127.5) / 127.5 as ArcFace's models do, and gives one
    vector a picture; H and W are 112 if the model does not fix them. It sees the picture cut to the person's box.

    Args:
        text: The file, with ",imagenet" appended if its input is normalised by ImageNet's mean and deviation.
    """
    file = text.removesuffix(",imagenet")
    try:
        import onnxruntime
    except ImportError:
        raise DposeError("package-missing", "an embedder needs onnxruntime", file, "pip install onnxruntime") from None
    if not Path(file).is_file():
        raise DposeError("file-missing", "there is no such file", file)
    try:
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        (entry, *others) = session.get_inputs()
    except Exception as error:  # the only common base of onnxruntime's own exceptions
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
                vector = session.run(None, {entry.name: given.transpose(2, 0, 1)[None].astype(np.float32)})[0]
            except Exception as error:
                raise DposeError("onnx-run-failed", "the model cannot be run on a picture", file) from error
            vectors.append(np.asarray(vector, np.float64).reshape(-1))
        stacked = np.stack(vectors)
        return np.asarray(stacked / np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), 1e-12))

    digest = hashlib.sha256(file_bytes(Path(file))).hexdigest()[:16]
    return Embedder(f"{Path(file).name} (sha256 {digest})", embed)
