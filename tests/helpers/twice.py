"""Data in which every picture is there twice."""

from dpose.units import WrappedUnits


class Twice(WrappedUnits):
    """Every unit of another dataset under two names."""

    def __len__(self):
        return 2 * len(self.dataset)

    def unit_id(self, index):
        return f"{super().unit_id(index // 2)} {index % 2}"

    def content_hashes(self, index):
        return super().content_hashes(index // 2)

    def file_hashes(self, index):
        return super().file_hashes(index // 2)

    def fingerprints(self, index):
        return super().fingerprints(index // 2)

    def subjects(self, index):
        return super().subjects(index // 2)

    def load(self, index, rng):
        return self.dataset.load(index // 2, rng)
