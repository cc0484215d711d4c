"""Several processes of a run, played by threads: what they say to each other, and what each of them ends with."""

import threading
from concurrent.futures import ThreadPoolExecutor

from dpose.errors import DposeError


class Circle:
    """One of `count` readers (`dpose.privacy.shares.Readers`) that share a list and a barrier."""

    def __init__(self, index, count, said, barrier):
        self.index, self.count, self._said, self._barrier = index, count, said, barrier

    def gather(self, content):
        self._barrier.wait(20)
        self._said[self.index] = content
        self._barrier.wait(20)
        return list(self._said)

    def agree(self, digests):
        said = self.gather(b"".join(digests.values()))
        assert all(len(value) == 32 for value in digests.values())
        if len(set(said)) > 1:
            raise DposeError("processes-differ", f"they differ in {' or '.join(digests)}")


def together(count, do, reader=Circle):
    """What `do(reader)` returns or raises in each of `count` readers."""
    said, barrier = [b""] * count, threading.Barrier(count)

    def one(index):
        try:
            return do(reader(index, count, said, barrier))
        except DposeError as error:
            return error
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))
