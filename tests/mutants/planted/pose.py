"""Faults of pose models: what a backbone may hold, and weights from a file."""

from __future__ import annotations

from collections import Counter

from mutants.planted.patches import Planted


def _read_once(original):
    """Whoever looks at what was read sees each tensor as read by one."""

    class Reads(original):
        def __exit__(self, *error):
            self.reads = Counter(dict.fromkeys(self.reads, 1))
            return super().__exit__(*error)

    return Reads


def _made_once(original):
    """Whoever looks at what was made sees each convolution as used once."""

    class Made(dict):
        def values(self):
            return set(super().values())

    class Reads(original):
        def __exit__(self, *error):
            self.made = Made(self.made)
            return super().__exit__(*error)

    return Reads


class _Still:
    """A model whose buffers seem to stay as they were at the first look."""

    def __init__(self, model) -> None:
        self._model, self._seen = model, {}

    def __getattr__(self, name: str):
        return getattr(self._model, name)

    def named_buffers(self):
        return [(place, self._seen.setdefault(place, b.clone())) for place, b in self._model.named_buffers()]


POSE = (
    Planted(
        "norms: a convolution that others read too takes BatchNorm up",
        lambda patch: patch.seen_by("dpose.pose.norms", "_Reads", _read_once),
        ("pose/test_timm_models.py::test_only_what_one_batchnorm_alone_reads_is_folded",),
    ),
    Planted(
        "norms: a convolution that is used twice takes BatchNorm up",
        lambda patch: patch.seen_by("dpose.pose.norms", "_Reads", _made_once),
        ("pose/test_timm_models.py::test_only_what_one_batchnorm_alone_reads_is_folded",),
    ),
    Planted(
        "timm: a backbone that stores what it sees passes",
        lambda patch: patch.argument("dpose.pose.timm_models:_refuse_mixing", "model", _Still),
        ("pose/test_timm_models.py::test_what_mixes_or_stores_is_refused",),
    ),
    Planted(
        "timm: weights from a file may run code",
        lambda patch: patch.seen_by(
            "dpose.pose.weights_file",
            "torch.load",
            lambda original: lambda *args, **kw: original(*args, **{**kw, "weights_only": False}),
            "_unpickled",
        ),
        ("pose/test_weights_file.py::test_files_that_are_not_its_weights",),
    ),
)
