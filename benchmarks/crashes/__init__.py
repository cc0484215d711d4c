"""The parts of `benchmarks/crash.py`: what is killed, and a disk that loses what was not made durable."""
