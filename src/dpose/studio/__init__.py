"""A page on one's own machine: release pictures, plan trainings, look at runs and at the account. Closed to others.

    dpose studio --folder photos --folder runs

`security` stands before everything; `roots` and `workplace` say which files are read and where copies lie; what reads
a stranger's file is a process of its own with limits (`worker`); the other modules answer one view each. No guarantee
is computed here: a release is made by `dpose.release`, exactly as the command line makes it.
"""
