"""An engine for tests, in this process, whose workers die when they are told to."""

import itertools
import pickle

from dpose.engines import WorkerDiedError, attempted


class Dying:
    """An engine whose workers die when `deaths` says so, before or after they have done the work."""

    def __init__(self, deaths=(), workers=2):
        self.workers, self.deaths, self.tasks, self.most = workers, set(deaths), {}, 0
        self.count = itertools.count()

    def submit(self, work, shared, item):
        task = next(self.count)
        shared, item = pickle.loads(pickle.dumps((shared, item)))  # noqa: S301  (as on the way to another process)
        self.tasks[task] = pickle.dumps(attempted(work, shared, item))
        self.most = max(self.most, len(self.tasks))
        return task

    def wait(self, tasks):
        return [max(tasks)]  # not in the order in which they came

    def result(self, task):
        found = pickle.loads(self.tasks.pop(task))  # noqa: S301
        if task in self.deaths:
            raise WorkerDiedError("killed")
        return found
