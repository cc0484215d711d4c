"""The parts of `benchmarks/fuzz.py`: how valid files are mutated, what reads them, and the processes that do."""
